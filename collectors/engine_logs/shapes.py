"""The words for a log's lines, in which each engine's table is written.

A shape is a literal mark, searched for at the speed of memory, and a pattern for the few lines that hold it. A group is
named after the fact and its unit: ``weights_gib`` is ``weights_bytes``. Patterns are not anchored (processes, times and
colours stand in front), and every repetition in them is bounded.
"""

import re
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from collectors.readings import FailureKind, RankTitle

Combine = Literal["last", "sum", "most"]
Where = RankTitle | int | None
"""Whom a line speaks of: a rank, a device by its number among those of the process, or nobody (host memory)."""


class Shape(Struct, frozen=True, kw_only=True):
    """One shape of a line with sizes. ``combine``: what several such lines of one rank and start make.

    ``versions`` are those that write it, where they are known.
    """

    mark: bytes
    pattern: re.Pattern[str]
    combine: Combine = "last"
    versions: str = ""


class FailureShape(Struct, frozen=True, kw_only=True):
    """A line of memory that ran out; ``figures`` are searched for one by one. ``told_once``: never written twice."""

    kind: FailureKind
    mark: bytes
    figures: tuple[re.Pattern[str], ...] = ()
    told_once: bool = False


class LogFormat(Struct, frozen=True, kw_only=True):
    """The log of an engine.

    ``starts`` stand at the beginning of a run, ``ready`` where sizes change no more, ``again`` where those before were
    a trial. ``where``: whom a line speaks of. ``several_models``: models come and go, and the sizes are of the last.
    ``from_free_memory``: weights and graphs are differences of the device's free memory.
    ``port``: of the process that a start is of. ``first_speaks``: a node's first rank says for all what is alike.
    ``hint``: what to do about a log without any size.
    """

    title: str
    starts: tuple[bytes, ...]
    shapes: tuple[Shape, ...]
    where: Callable[[str], Where]
    ready: tuple[bytes, ...] = ()
    again: tuple[bytes, ...] = ()
    several_models: bool = False
    port: re.Pattern[str] | None = None
    first_speaks: bool = False
    from_free_memory: bool = False
    hint: str | None = None


def shape(mark: str, pattern: str, *, combine: Combine = "last", versions: str = "") -> Shape:
    """A shape from text."""
    return Shape(mark=mark.encode(), pattern=re.compile(pattern), combine=combine, versions=versions)
