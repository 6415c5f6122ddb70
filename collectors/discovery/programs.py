"""Which program a command line starts, with or without an interpreter in front."""

import re
from collections.abc import Sequence

from msgspec import Struct

_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*")
_OPTION_M = re.compile(r"-[bBdEiIOPqRsSuvx]*m")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


class Started(Struct, frozen=True, kw_only=True):
    """``name``: a path or the bare name of a program, or a module where ``is_module``; ``words`` stand behind it.

    ``programs`` are the paths it was started by, an interpreter first.
    """

    name: str
    words: tuple[str, ...]
    programs: tuple[str, ...]
    is_module: bool = False

    @property
    def program(self) -> str:
        """The last part of its path; empty for a module."""
        return "" if self.is_module else self.name.rpartition("/")[2]


def started(argv: Sequence[str]) -> Started:
    """What a command line starts; the name is empty where an interpreter runs neither module nor script."""
    first, *rest = argv or [""]
    if not _INTERPRETER.fullmatch(first.rpartition("/")[2]):
        return Started(name=first, words=tuple(rest), programs=(first,))
    while rest:
        word = rest.pop(0)
        if _OPTION_M.fullmatch(word):
            name = rest[0] if rest and "/" not in rest[0] else ""
            return Started(name=name, words=tuple(rest[1:]), programs=(first,), is_module=True)
        if word in _WITH_VALUE:
            rest = rest[1:]
        elif word == "-c":
            break
        elif not word.startswith("-"):
            script = (word,) if word.startswith("/") else ()
            return Started(name=word, words=tuple(rest), programs=(first, *script))
    return Started(name="", words=(), programs=(first,))
