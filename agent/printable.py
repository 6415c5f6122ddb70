"""Texts of others on a terminal: nothing in them that it would act on, and no line of their own.

A server says its version, its model's name and its replicas' as it likes, and so does a file of a model.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T", bound=Struct)


def printable(text: str) -> str:
    """The text with escapes for what can't be printed: control characters, line breaks, changes of direction."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def encodable(text: str) -> str:
    """The text, with escapes for what a path has that is not of UTF-8: as it stands in documents."""
    return text.encode("utf-8", "backslashreplace").decode()


def all_printable(record: T) -> T:
    """The same record with every text in it printable, its keys too."""
    return msgspec.convert(_printable(msgspec.to_builtins(record)), type(record))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_printable(key): _printable(one) for key, one in value.items()}
    return [_printable(one) for one in value] if isinstance(value, list | tuple) else value
