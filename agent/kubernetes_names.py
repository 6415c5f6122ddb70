"""Names and labels as Kubernetes takes them, checked where they are given on a command line."""

import re
from collections.abc import Iterable
from typing import TypeVar

from agent.errors import InputError
from agent.memory.units import shown

T = TypeVar("T")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAMESPACE = re.compile(r"(?=.{1,63}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_PART = r"[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?"
_LABEL = re.compile(rf"([a-z0-9][-a-z0-9.]{{0,252}}/)?{_LABEL_PART}=({_LABEL_PART})?")


def object_name(option: str, text: str) -> str:
    """The text, as the name of an object.

    Raises:
        InputError: it can't be one.
    """
    return like(_NAME, option, text, "a name of Kubernetes, such as vramscope")


def namespace_name(text: str | None) -> str | None:
    """The text of ``--namespace``, if there is one.

    Raises:
        InputError: it can't be the name of a namespace.
    """
    return text and like(_NAMESPACE, "--namespace", text, "a name such as monitoring")


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """Those of ``--label KEY=VALUE``.

    Raises:
        InputError: one is not of this form, or not as Kubernetes takes it.
    """
    pairs = (like(_LABEL, "--label", text, "KEY=VALUE").partition("=") for text in texts)
    return once("--label", [(key, value) for key, _, value in pairs])


def once(option: str, pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """What an option gave by name.

    Raises:
        InputError: a name was given twice.
    """
    found: dict[str, T] = {}
    for name, value in pairs:
        if name in found:
            raise InputError(f"{option}: {shown(name)} is given twice; keep one")
        found[name] = value
    return found


def like(pattern: re.Pattern[str], option: str, text: str, expected: str) -> str:
    """The text of an option, which the pattern must match as a whole.

    Raises:
        InputError: it does not.
    """
    if not pattern.fullmatch(text):
        raise InputError(f"{option}: expected {expected}, got {shown(text)}")
    return text
