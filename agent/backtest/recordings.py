"""Recordings of single pools: what was read once a second, as JSON lines.

First line: ``{"schema": "vramscope.signals/1", "name": ..., "facts": {...}}``; then a ``PoolSignal`` a line.
"""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from agent.errors import InputError
from agent.memory.signals import PoolFacts, PoolSignal
from collectors.regular_file import read_regular

SUFFIX = ".signals.jsonl"
MAX_BYTES = 256 << 20


class Recording(Struct, frozen=True, kw_only=True):
    """One pool over time; signals are in order."""

    name: str
    facts: PoolFacts
    signals: list[PoolSignal]


class _Head(Struct, frozen=True, kw_only=True):
    schema: Literal["vramscope.signals/1"] = "vramscope.signals/1"
    name: str
    facts: PoolFacts


def read_recording(path: Path) -> Recording:
    """One recording.

    Raises:
        InputError: it can't be read, or a line is not what it should be.
    """
    try:
        lines = read_regular(path, max_bytes=MAX_BYTES).splitlines()
        head = msgspec.json.decode(lines[0] if lines else b"", type=_Head)
        decoder = msgspec.json.Decoder(PoolSignal)
        signals = [decoder.decode(line) for line in lines[1:]]
    except OSError as exc:
        raise InputError(f"{path}: {(exc.strerror or 'not readable').lower()}") from exc
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise InputError(f"{path}: not a recording of signals ({exc})") from exc
    if any(after.at <= before.at for before, after in itertools.pairwise(signals)):
        raise InputError(f"{path}: times go back; expected signals in order of a monotonic clock")
    return Recording(name=head.name, facts=head.facts, signals=signals)


def write_recording(path: Path, name: str, facts: PoolFacts, signals: Iterable[PoolSignal]) -> None:
    """A recording as ``read_recording`` takes it."""
    head = _Head(name=name, facts=facts)
    with path.open("wb") as file:
        for one in (head, *signals):
            file.write(msgspec.json.encode(one) + b"\n")
