"""Use of KV pools over the last minutes, out of the ring on disk: of each chunk only what a chart needs. It blocks.

The newest segments are read first and each only once, so that a second look costs a segment; past the deadline what
was read by then is what is known.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Union, get_args

import msgspec
from msgspec import Struct

from agent.recorder.chunks import contents
from agent.recorder.records import Record

STEP_SECONDS = 5.0
MAX_MINUTES = 30
MAX_POINTS = 100_000
DEADLINE_SECONDS = 4.0
FRESH_SECONDS = 5.0
REST_SECONDS = 0.002
"""After each chunk: the event loop goes first."""

Key = tuple[str, str, str]
"""Server, replica and kind."""
Points = dict[Key, dict[int, int]]
"""The most tokens in each step since the epoch."""


class _Pool(Struct):
    replica: str
    kind: str = "full"
    used_tokens: int | None = None


class _Reading(Struct):
    at: float
    figures_at: float | None = None
    pools: tuple[_Pool, ...] = ()


class _Server(Struct, tag="server"):
    name: str
    reading: _Reading | None = None


class _Ticked(Struct, tag="tick"):
    at: float
    wall: float


class _Start(Struct, tag="start"):
    at: float
    wall: float


_READ = (_Server, _Ticked, _Start)
_OTHERS = {kind.__struct_config__.tag for kind in get_args(Record)} - {kind.__struct_config__.tag for kind in _READ}
_kinds: Any = Union[(*_READ, *(msgspec.defstruct(f"_{tag}", [], tag=tag) for tag in sorted(_OTHERS)))]
_decoder: msgspec.msgpack.Decoder[tuple[Any, ...]] = msgspec.msgpack.Decoder(tuple[_kinds, ...])


class Past:
    """What ``segments`` hold, oldest first. ``clock`` is monotonic, ``wall`` seconds since the epoch."""

    def __init__(
        self,
        segments: Callable[[], Sequence[Path]],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._segments = segments
        self._clock = clock
        self._wall = wall
        self._rest = rest
        self._known: dict[Path, tuple[int, Points]] = {}
        self._answer: tuple[float, bytes] | None = None
        self._reading: asyncio.Future[bytes] | None = None

    async def asked(self, in_thread: Callable[[Callable[[], bytes]], asyncio.Future[bytes]]) -> bytes:
        """``json``, for all who ask meanwhile by one thread."""
        if self._reading is None or self._reading.done():
            self._reading = in_thread(self.json)
        return await asyncio.shield(self._reading)

    def json(self) -> bytes:
        """The last minutes as ``vramscope.history/1``; who asks again within five seconds gets the same."""
        now = self._clock()
        if self._answer is None or now - self._answer[0] >= FRESH_SECONDS:
            content = self._read(now + DEADLINE_SECONDS)
            self._answer = (self._clock(), content)
        return self._answer[1]

    def _read(self, deadline: float) -> bytes:
        since = self._wall() - MAX_MINUTES * 60
        known: dict[Path, tuple[int, Points]] = {}
        pools: Points = {}
        for path in reversed(self._segments()):
            if self._clock() >= deadline or sum(map(len, pools.values())) > MAX_POINTS:
                break
            try:
                status = path.stat()
                if status.st_mtime < since:
                    break
                known[path] = self._segment(path, status.st_size, deadline)
            except (OSError, ValueError, ArithmeticError, RecursionError, msgspec.MsgspecError):
                continue  # it has just gone, is of another version, or was made up
            for key, steps in known[path][1].items():
                of_all = pools.setdefault(key, {})
                for step, used in steps.items():
                    of_all[step] = max(used, of_all.get(step, 0))
        self._known = known
        return _encoded(pools, since)

    def _segment(self, path: Path, size: int, deadline: float) -> tuple[int, Points]:
        before = self._known.get(path)
        if before is not None and before[0] == size:
            return before
        points: Points = {}
        offset = None
        with path.open("rb") as file:
            for content in contents(file):
                offset = _take(content, offset, points)
                self._rest(REST_SECONDS)
                if self._clock() >= deadline:
                    return 0, points  # to be read again
        return size, points


def _take(content: bytes, offset: float | None, points: Points) -> float | None:
    """Add the readings of one chunk; ``offset`` leads from its clock to the wall's."""
    for record in _decoder.decode(content):
        if isinstance(record, _Ticked | _Start):
            offset = record.wall - record.at
        elif isinstance(record, _Server) and record.reading is not None and offset is not None:
            reading = record.reading
            at = reading.at if reading.figures_at is None else reading.figures_at
            step = int((at + offset) / STEP_SECONDS)
            for pool in reading.pools:
                if pool.used_tokens is not None:
                    steps = points.setdefault((record.name, pool.replica, pool.kind), {})
                    steps[step] = max(pool.used_tokens, steps.get(step, 0))
    return offset


def _encoded(pools: Points, since: float) -> bytes:
    return msgspec.json.encode(
        {
            "schema": "vramscope.history/1",
            "interval_seconds": STEP_SECONDS,
            "pools": [
                {
                    "server": server,
                    "replica": replica,
                    "kind": kind,
                    "points": [
                        (step * STEP_SECONDS, used)
                        for step, used in sorted(steps.items())
                        if step * STEP_SECONDS >= since
                    ],
                }
                for (server, replica, kind), steps in sorted(pools.items())
            ],
        }
    )
