"""What the lines of a log say: sizes by rank or device since the newest start, and failures since the first line.

Nothing of a line is kept but numbers, a version and words of our own. Once the engine says that it is ready, sizes are
settled: whoever talks to it may have a line written that looks like one, and lines that show requests never count.
"""

import math
import re
from collections.abc import Iterator

from msgspec import Struct

from collectors.engine_logs.failures import FAILURES
from collectors.engine_logs.shapes import FailureShape, LogFormat, Shape, Where
from collectors.readings import FailureKind, LogFailure, LogReading, RankLog, RankTitle

REPEATED_SECONDS = 10.0
MAX_RANKS = 256
MAX_SEEN = 64  # events that the same again is compared with
_MAX_BYTES = 2**50
_MAX_COUNT = 10**15
_UNITS = {"bytes": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_COLOURS = re.compile(r"\x1b\[[\d;]{0,20}m")
_OF_REQUESTS = (b"Received request", b"prompt:", b"done request: ", b"log_server_r", b'"messages"', b"POST /", b"GET /")


class _Event(Struct, frozen=True, kw_only=True):
    kind: FailureKind
    figures: frozenset[tuple[str, int]]


class LogParser:
    """The state of one server's log. ``marks``: a line without one of them says nothing."""

    def __init__(self, log: LogFormat) -> None:
        self._format = log
        self.marks = tuple(
            dict.fromkeys(
                (
                    *log.starts,
                    *log.ready,
                    *log.again,
                    *(shape.mark for shape in log.shapes),
                    *(failure.mark for failure in FAILURES),
                )
            )
        )
        self._failures: dict[FailureKind, int] = {}
        self._seen: dict[_Event, float] = {}
        self._last: LogFailure | None = None
        self._port: int | None = None  # outlives what its own process says of its start
        self._start()

    def _start(self) -> None:
        self._version: str | None = None
        self._ready = False
        self._told = False  # any size, also of the host
        self._facts: dict[Where, dict[str, float]] = {}

    def take(self, line: bytes, at: float) -> None:
        """Take one line that was read at ``at`` (monotonic seconds)."""
        if any(mark in line for mark in _OF_REQUESTS):
            return
        if any(mark in line for mark in self._format.starts):
            self._start()
        elif any(mark in line for mark in self._format.again):
            self._facts = {}
        text = _COLOURS.sub("", line.decode("utf-8", "replace")).replace('\\"', '"')
        if self._format.port is not None and (port := self._format.port.search(text)):
            self._port = int(port[1])
        for failure in FAILURES:
            if failure.mark in line:
                self._fail(failure, text, at)
                break
        if self._ready:
            return
        for shape in self._format.shapes:
            if shape.mark in line:
                self._learn(shape, text)
        self._ready = any(mark in line for mark in self._format.ready)

    def _learn(self, shape: Shape, text: str) -> None:
        found = shape.pattern.search(text)
        if found is None:
            return
        self._told = True
        groups = {name: value for name, value in found.groupdict().items() if value is not None}
        version = groups.pop("version", None)
        self._version = version or self._version
        where = self._format.where(text)
        if where is None or not groups or (where not in self._facts and len(self._facts) >= MAX_RANKS):
            return
        facts = self._facts.setdefault(where, {})
        sums: dict[str, float] = {}
        for name, value in groups.items():
            field, number = _number(name, value)
            if number is not None:
                sums[field] = sums.get(field, 0) + number
        for field, number in sums.items():
            facts[field] = number + (facts.get(field, 0) if shape.combine == "sum" else 0)

    def _fail(self, failure: FailureShape, text: str, at: float) -> None:
        figures = dict(_figures(failure, text))
        event = _Event(kind=failure.kind, figures=frozenset(figures.items()))
        if not failure.told_once:
            if self._is_repeated(event, at):
                return
            self._see(event, at)
        self._failures[failure.kind] = self._failures.get(failure.kind, 0) + 1
        self._last = LogFailure(kind=failure.kind, at=at, figures=figures)

    def _see(self, event: _Event, at: float) -> None:
        self._seen.pop(event, None)
        self._seen[event] = at  # the newest stand last
        if len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]

    def _is_repeated(self, event: _Event, at: float) -> bool:
        """The same as one just before, or less about it: an exception's first line is often followed by its cause."""
        return any(
            at - when < REPEATED_SECONDS and one.kind == event.kind and event.figures <= one.figures
            for one, when in self._seen.items()
        )

    def reading(self, at: float) -> LogReading:
        """What is known now."""
        hint = self._format.hint if self._ready and not self._told else None
        ranks = sorted(self._facts.items(), key=lambda item: _order(item[0]))
        return LogReading(
            at=at,
            engine=self._format.title,
            version=self._version,
            ready=self._ready,
            several_models=self._format.several_models,
            port=self._port,
            first_speaks=self._format.first_speaks,
            from_free_memory=self._format.from_free_memory,
            ranks=tuple(_rank(where, facts) for where, facts in ranks),
            hint=hint,
            failures=dict(sorted(self._failures.items())),
            last_failure=self._last,
        )


def _order(where: Where) -> tuple[str, int, int]:
    if isinstance(where, RankTitle):
        return where.replica, where.pp_rank, where.tp_rank
    return "", 0, where or 0


def _number(name: str, text: str) -> tuple[str, float | None]:
    """Field and value of a group: bytes, a count, or times. What can't be a size is None."""
    field, _, unit = name.rpartition("_")
    field = field.removesuffix("_more")
    value = float(text.replace(",", "")) if text.replace(",", "") not in ("", ".") and text.count(".") < 2 else math.nan
    if unit in _UNITS:
        size = value * _UNITS[unit]
        return f"{field}_bytes", round(size) if 0 <= size <= _MAX_BYTES else None
    return f"{field}_{unit}", value if 0 <= value <= _MAX_COUNT else None


def _figures(failure: FailureShape, text: str) -> Iterator[tuple[str, int]]:
    for pattern in failure.figures:
        found = pattern.search(text)
        groups = found.groupdict() if found else {}
        for name, value in groups.items():
            if name.endswith("_unit"):
                continue
            unit = groups.get(f"{name}_unit")
            number = float(value) * (_UNITS[unit.lower()] if unit else 1)
            if name.endswith("_gib"):
                name, number = f"{name.removesuffix('_gib')}_bytes", number * _UNITS["gib"]
            if number <= _MAX_BYTES:
                yield name, round(number)


def _rank(where: Where, facts: dict[str, float]) -> RankLog:
    def whole(field: str) -> int | None:
        return round(facts[field]) if field in facts else None

    def size(field: str) -> int | None:
        """0 is less than the line's decimals can tell."""
        return whole(f"{field}_bytes") or None

    non_torch = whole("non_torch_bytes")
    if non_torch is None and "consumed_bytes" in facts and "weights_bytes" in facts:
        non_torch = max(0, round(facts["consumed_bytes"] - facts["weights_bytes"]))
    return RankLog(
        rank=where if isinstance(where, RankTitle) else None,
        device=where if isinstance(where, int) else None,
        weights_bytes=size("weights"),
        kv_pool_bytes=None if "override_count" in facts else size("kv_pool"),
        state_bytes=size("state"),
        cuda_graphs_bytes=whole("cuda_graphs_bytes"),
        activations_bytes=size("activations"),
        activation_peak_bytes=size("activation_peak"),
        non_torch_bytes=non_torch,
        kv_tokens=whole("kv_count"),
        max_concurrency=facts.get("concurrency_times"),
    )
