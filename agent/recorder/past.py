"""Use of pools and devices over the last minutes, out of the ring on disk: of each chunk what a chart needs. It blocks.

The newest segments are read first and each only once, so that a second look costs a segment; past the deadline what
was read by then is what is known.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, Union, get_args

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

K = TypeVar("K")
Key = tuple[str, str, str]
"""Server, replica and kind."""
Steps = dict[int, int]
"""The most in each step since the epoch."""


class _Found:
    """Tokens of pools and bytes of devices, by UUID."""

    def __init__(self) -> None:
        self.pools: dict[Key, Steps] = {}
        self.devices: dict[str, Steps] = {}

    def __len__(self) -> int:
        return sum(map(len, (*self.pools.values(), *self.devices.values())))

    def add(self, other: "_Found") -> None:
        _merge(self.pools, other.pools)
        _merge(self.devices, other.devices)


def _merge(all_steps: dict[K, Steps], more: dict[K, Steps]) -> None:
    for key, steps in more.items():
        mine = all_steps.setdefault(key, {})
        for step, used in steps.items():
            mine[step] = max(used, mine.get(step, 0))


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


class _Memory(Struct):
    at: float
    total_bytes: int
    free_bytes: int


class _Device(Struct):
    uuid: str | None = None
    memory: _Memory | None = None


class _NodeReading(Struct):
    devices: tuple[_Device, ...] = ()


class _Node(Struct, tag="node"):
    reading: _NodeReading | None = None


class _Ticked(Struct, tag="tick"):
    at: float
    wall: float


class _Start(Struct, tag="start"):
    at: float
    wall: float


_READ = (_Server, _Node, _Ticked, _Start)
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
        self._known: dict[Path, tuple[int, _Found]] = {}
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
        now = self._wall()
        since = now - MAX_MINUTES * 60
        known: dict[Path, tuple[int, _Found]] = {}
        found = _Found()
        for path in reversed(self._segments()):
            if self._clock() >= deadline or len(found) > MAX_POINTS:
                break
            try:
                status = path.stat()
                if status.st_mtime < since:
                    break
                known[path] = self._segment(path, status.st_size, deadline)
            except (OSError, ValueError, ArithmeticError, RecursionError, msgspec.MsgspecError):
                continue  # it has just gone, is of another version, or was made up
            found.add(known[path][1])
        self._known = known
        return _encoded(found, since, now)

    def _segment(self, path: Path, size: int, deadline: float) -> tuple[int, _Found]:
        before = self._known.get(path)
        if before is not None and before[0] == size:
            return before
        found = _Found()
        offset = None
        with path.open("rb") as file:
            for content in contents(file):
                offset = _take(content, offset, found)
                self._rest(REST_SECONDS)
                if self._clock() >= deadline:
                    return 0, found  # to be read again
        return size, found


def _take(content: bytes, offset: float | None, found: _Found) -> float | None:
    """Add the readings of one chunk; ``offset`` leads from its clock to the wall's."""
    for record in _decoder.decode(content):
        if isinstance(record, _Ticked | _Start):
            offset = record.wall - record.at
        elif isinstance(record, _Server) and record.reading is not None and offset is not None:
            reading = record.reading
            at = offset + (reading.at if reading.figures_at is None else reading.figures_at)
            for pool in reading.pools:
                if pool.used_tokens is not None:
                    _raise(found.pools.setdefault((record.name, pool.replica, pool.kind), {}), at, pool.used_tokens)
        elif isinstance(record, _Node) and record.reading is not None and offset is not None:
            for device in record.reading.devices:
                if device.uuid is not None and (memory := device.memory) is not None:
                    used = memory.total_bytes - memory.free_bytes
                    _raise(found.devices.setdefault(device.uuid, {}), memory.at + offset, used)
    return offset


def _raise(steps: Steps, at: float, used: int) -> None:
    step = int(at / STEP_SECONDS)
    steps[step] = max(used, steps.get(step, 0))


def _encoded(found: _Found, since: float, until: float) -> bytes:
    """What lies after ``until`` was recorded before the clock was set back."""

    def line(steps: Steps) -> list[tuple[float, int]]:
        times = ((step * STEP_SECONDS, used) for step, used in sorted(steps.items()))
        return [(at, used) for at, used in times if since <= at <= until]

    return msgspec.json.encode(
        {
            "schema": "vramscope.history/1",
            "interval_seconds": STEP_SECONDS,
            "pools": [
                {"server": server, "replica": replica, "kind": kind, "points": line(steps)}
                for (server, replica, kind), steps in sorted(found.pools.items())
            ],
            "devices": [{"uuid": uuid, "used": line(steps)} for uuid, steps in sorted(found.devices.items())],
        }
    )
