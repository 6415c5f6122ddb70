"""Words of a vLLM command line as flags with typed values, read as vLLM's own parser reads them.

``--flag value``, ``--flag=value``, underscores for dashes, ``--no-flag``, short forms, ``-O3``, JSON as a whole or by
``--flag.key value``; of a repeated flag the last counts. Source: vllm-project/vllm, ``utils/argparse_utils.py``.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from collectors.discovery.command import Value
from collectors.discovery.flags import MAX_TEXT_LENGTH, finite, plain_text, whole
from collectors.vllm.flags import ALIASES, KINDS, OTHER_SWITCHES, Kind

MAX_SETTINGS = 1000
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([kKmMgGtT])")
_FLAG = re.compile(r"--?[A-Za-z][^=\s]*(?:=.*)?", re.DOTALL)
_FACTORS: dict[str, int] = {letter: 1000**power for power, letter in enumerate("kmgt", 1)}
_FACTORS |= {letter: 1024**power for power, letter in enumerate("KMGT", 1)}
_TRUTH = {"true": True, "false": False}


class Flags(Struct, frozen=True, kw_only=True):
    """Known flags by their full name, and the first word that belongs to no flag."""

    values: dict[str, Value]
    bare: str | None = None


def parse(words: Sequence[str]) -> Flags:
    """The flags among words. A value that can't be one of its flag, or that holds a secret, is left out.

    A bare word is only taken where no flag of unknown arity can claim it: it could be somebody's key.
    """
    rest = deque(words)
    values: dict[str, Value] = {}
    keyed: dict[str, dict[str, object]] = {}
    bare: str | None = None
    is_free = True
    while rest:
        word = rest.popleft()
        if not _is_flag(word):
            bare = plain_text(word) if bare is None and is_free else bare
            continue
        name, keys, value = _split(word)
        positive = name.removeprefix("no-") if name not in KINDS else name
        kind = KINDS.get(positive)
        is_free = kind not in (None, "first", "several") or positive in OTHER_SWITCHES
        if kind is None:
            continue
        given = [value] if value is not None else _following(rest, kind=kind, is_keyed=bool(keys))
        if keys and given:
            _merge(keyed.setdefault(positive, {}), keys, given[0])
        elif positive != name:
            values[positive] = False
        else:
            values |= _typed(name, kind, given)
    values |= {name: as_json for name, value in keyed.items() if (as_json := _object(json.dumps(value))) is not None}
    return Flags(values=values, bare=bare)


def words_of(document: Mapping[object, object]) -> list[str]:
    """The settings of a ``--config`` file as the words vLLM makes of them."""
    words: list[str] = []
    for key, value in document.items():
        if not isinstance(key, str) or not _is_small(value):
            continue
        if isinstance(value, bool):
            words.append(f"--{key}" if value else f"--no-{key}")
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)] if value else []
        elif isinstance(value, dict):
            words += [f"--{key}", json.dumps(value, default=str)] if all(isinstance(k, str) for k in value) else []
        else:
            words.append(f"--{key}={value}")
    return words


def _is_flag(word: str) -> bool:
    return _FLAG.fullmatch(word) is not None


def _split(word: str) -> tuple[str, list[str], str | None]:
    """Full name, keys behind dots, and the value behind the equals sign."""
    if re.match(r"-O\d", word):
        return "optimization-level", [], word[2:]
    head, equals, value = word.partition("=")
    name, *keys = head.lstrip("-").split(".")
    name = name.replace("_", "-")
    if head.startswith("-O"):
        name = "compilation-config" if keys else "optimization-level"
    return ALIASES.get(name, name), [key for key in keys if key], value if equals else None


def _following(rest: deque[str], *, kind: Kind, is_keyed: bool) -> list[str]:
    """Take the words that belong to a flag of this kind."""
    if kind == "switch":
        return [rest.popleft()] if rest and rest[0].lower() in _TRUTH else []
    taken: list[str] = []
    while rest and not _is_flag(rest[0]) and (not taken or (kind in ("first", "several") and not is_keyed)):
        taken.append(rest.popleft())
    return taken


def _typed(name: str, kind: Kind, given: Sequence[str]) -> dict[str, Value]:
    if kind == "switch":
        return {name: _TRUTH.get(given[0].lower(), True) if given else True}
    if kind == "several":
        numbers = [whole(word) for word in given]
        return {} if None in numbers or not numbers else {name: ",".join(map(str, numbers))}
    value = _READERS[kind](given[0]) if given else None
    return {} if value is None else {name: value}


def _size(text: str) -> Value | None:
    """A whole number, also as 32k (thousands) or 32K (1024s); ``auto`` and its other name -1 as ``auto``."""
    if text.lower() == "auto" or text == "-1":
        return "auto"
    found = _SIZE.fullmatch(text)
    if not found:
        return whole(text)
    number, suffix = found.groups()
    if "." not in number:
        return int(number) * _FACTORS[suffix]
    return int(float(number) * _FACTORS[suffix]) if suffix.islower() else None


def _object(text: str) -> str | None:
    """A JSON object in one form."""
    if len(text) > MAX_TEXT_LENGTH:
        return None
    try:
        value = json.loads(text)
        return plain_text(json.dumps(value, allow_nan=False)) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


def _merge(target: dict[str, object], keys: Sequence[str], text: str) -> None:
    """Set one value of an object by its keys; a key that ends in + adds to a list."""
    *path, last = keys
    for key in path:
        inner = target.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        target = inner
    if last.endswith("+"):
        added = text.split(",")
        before = target.get(last[:-1])
        target[last[:-1]] = [*before, *added] if isinstance(before, list) else added
        return
    try:
        target[last] = json.loads(text)
    except (ValueError, RecursionError):
        size = _size(text)
        target[last] = text if size is None else size


def _is_small(value: object) -> bool:
    """Whether writing it out is cheap: an alias in YAML may stand for itself, or for a tree that doubles per level."""
    waiting, count = [value], 0
    while waiting and count <= MAX_SETTINGS:
        part = waiting.pop()
        count += 1
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return count <= MAX_SETTINGS


_READERS: dict[str, Callable[[str], Value | None]] = {
    "whole": whole,
    "size": _size,
    "number": finite,
    "text": plain_text,
    "object": _object,
    "first": plain_text,
}
