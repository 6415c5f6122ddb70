"""Creep of memory outside the KV pools, told apart from steps: what grows by itself and what was put there once.

Envelope: the 20 % quantile of the lowest of each of ten minutes, so that temporaries do not count. Step: neighbouring
envelopes differ by more than 24 MiB and four deviations of such differences; it is remembered and never drawn on.
Creep: Theil-Sen over pairs of envelopes between which there is no step, each pair weighted by its distance in time
(Jaeckel 1972). Deviation of the slope: ``s / sqrt(sum of squared distances from the segments' means)``, which for one
segment is ``sqrt(12) s / (T sqrt(n))``, times ``sqrt((1 + r) / (1 - r))`` for neighbours that resemble each other by r.
"""

import math
from collections import deque
from collections.abc import Sequence
from itertools import combinations, pairwise, takewhile
from statistics import median

from msgspec import Struct

MIB = 2**20
MINUTE_SECONDS = 60.0
HOUR_SECONDS = 3600.0
ENVELOPE_MINUTES = 10
STEP_BYTES = 24 * MIB
STEP_DEVIATIONS = 4.0
SLOPE_DEVIATIONS = 3.0  # of 4, 2 MiB an hour beside three steps would be told in 12 hours only every other time
HALF_DEVIATIONS = 8**0.5  # two, and as much again for the other half
LEAST_SECONDS = 2 * HOUR_SECONDS - 2 * MINUTE_SECONDS
LEAST_BYTES_PER_HOUR = 20 * MIB
LEAST_MINUTES = 5
POINT_SECONDS = 2 * MINUTE_SECONDS
MOST_POINTS = 96  # about three hours; then every second one goes, and the next ones are twice as far apart
STATE_SECONDS = 10 * MINUTE_SECONDS
MOST_STEPS = 16
GAP_SECONDS = 10 * MINUTE_SECONDS
UNSURE_SECONDS = 4.5 * MINUTE_SECONDS

Point = tuple[float, float]


class Step(Struct, frozen=True, kw_only=True):
    """A change of level: ``at`` is when it was seen, up to ten minutes after it happened; negative: it fell."""

    at: float
    bytes: int


class Creep(Struct, frozen=True, kw_only=True):
    """A slope that is beyond doubt, with its standard deviation; ``rise_bytes`` is what it has come to so far."""

    bytes_per_hour: float
    deviation: float
    rise_bytes: int


class CreepWatch:
    """One quantity of bytes over hours, in O(1) memory; times are monotonic seconds and come in order."""

    def __init__(self) -> None:
        self.steps: deque[Step] = deque(maxlen=MOST_STEPS)
        self.creep: Creep | None = None
        self.transient_bytes: int | None = None
        self._since: float | None = None
        self._points: list[tuple[int, float, float]] = []  # segment, time, envelope
        self._segment = 0
        self._apart = POINT_SECONDS
        self._state_at = -math.inf
        self._begin(None)

    def _begin(self, at: float | None) -> None:
        """A new segment, of which nothing is known yet."""
        self._segment += 1
        self._at = at
        self._minute: tuple[float, int, int] | None = None  # its end, lowest, highest
        self._lows: deque[int] = deque(maxlen=ENVELOPE_MINUTES)
        self._highs: deque[tuple[int, int | None]] = deque(maxlen=ENVELOPE_MINUTES)  # and the envelope before
        self._changes: deque[int] = deque(maxlen=60)
        self.envelope: int | None = None

    def add(self, at: float, used_bytes: int, highest_bytes: int | None = None) -> None:
        """Take a reading; ``highest_bytes`` is the most since the reading before, where it was looked for."""
        if self._at is not None and at - self._at > GAP_SECONDS:
            self._begin(at)
        self._since = at if self._since is None else self._since
        self._at = at
        if self._minute is not None and at >= self._minute[0]:
            self._close(self._minute)
            self._minute = None
        high = used_bytes if highest_bytes is None else max(used_bytes, highest_bytes)
        if self._minute is None:
            self._minute = (at + MINUTE_SECONDS, used_bytes, high)
        else:
            end, low, highest = self._minute
            self._minute = (end, min(low, used_bytes), max(highest, high))

    def _close(self, minute: tuple[float, int, int]) -> None:
        at, low, high = minute
        self._lows.append(low)
        self._highs.append((high, self.envelope))
        if len(self._lows) < LEAST_MINUTES:
            return
        before, self.envelope = self.envelope, _quantile(self._lows)
        if before is not None:
            self._see_change(at, before, self.envelope)
        if len(self._highs) == ENVELOPE_MINUTES:
            self._see_transient(*self._highs[0])
        self._take_point(at, self.envelope)
        if self._since is not None and at - self._since >= LEAST_SECONDS and at >= self._state_at:
            self._state_at = at + STATE_SECONDS
            self.creep = creep_of(self._segments())

    def _see_transient(self, high: int, before: int | None) -> None:
        """A peak counts above the level before it and the one after: a step is none."""
        after = self.envelope or 0
        peak = max(0, high - max(after, after if before is None else before))
        self.transient_bytes = peak if self.transient_bytes is None else max(peak, self.transient_bytes)

    def _see_change(self, at: float, before: int, after: int) -> None:
        """A change is a step beside the usual ones: a steady climb is none, however fast.

        What was low before a rise, or high before a fall, is no part of the level after it.
        """
        change = after - before
        usual = median(list(self._changes)[-ENVELOPE_MINUTES:]) if len(self._changes) >= LEAST_MINUTES else 0
        spread = 1.4826 * median(abs(one - usual) for one in self._changes) if self._changes else 0.0
        self._changes.append(change)
        if abs(change - usual) <= max(STEP_BYTES, STEP_DEVIATIONS * spread):
            return
        last = self.steps[-1] if self.steps else None
        if last is not None and at - last.at <= 2.5 * MINUTE_SECONDS and (last.bytes > 0) == (change > 0):
            self.steps[-1] = Step(at=last.at, bytes=last.bytes + change)
        else:
            self.steps.append(Step(at=at, bytes=change))
        middle = (before + after) / 2
        new = list(takewhile(lambda low: (low > middle) == (change > 0), reversed(self._lows)))
        self._lows = deque(reversed(new), maxlen=ENVELOPE_MINUTES)
        if change > 0:  # the last envelopes before a rise are of ever fewer minutes, and so ever higher
            while self._points and self._points[-1][0] == self._segment and self._points[-1][1] > at - UNSURE_SECONDS:
                self._points.pop()
        self._segment += 1

    def _take_point(self, at: float, envelope: int) -> None:
        last = self._points[-1] if self._points else None
        if len(self._lows) < LEAST_MINUTES or (
            last is not None and last[0] == self._segment and at - last[1] < self._apart
        ):
            return
        self._points.append((self._segment, at, float(envelope)))
        if len(self._points) > MOST_POINTS:
            self._points = self._points[::2]
            self._apart *= 2

    def _segments(self) -> list[list[Point]]:
        found: dict[int, list[Point]] = {}
        for segment, at, value in self._points:
            found.setdefault(segment, []).append((at, value))
        return [points for points in found.values() if len(points) >= 2]


def creep_of(segments: Sequence[Sequence[Point]]) -> Creep | None:
    """The slope in all segments together, where it is no doubt one and still goes on; None otherwise."""
    slope = slope_of(segments)
    if slope is None or slope <= 0:
        return None
    watched = sum(points[-1][0] - points[0][0] for points in segments)
    noise, deviation = _doubt(segments, slope)
    rise = slope * watched
    least = LEAST_BYTES_PER_HOUR * min(1.0, LEAST_SECONDS / watched) ** 1.5 / HOUR_SECONDS
    if slope <= max(least, SLOPE_DEVIATIONS * deviation) or rise <= 3 * noise or _slows_down(segments):
        return None
    return Creep(bytes_per_hour=slope * HOUR_SECONDS, deviation=deviation * HOUR_SECONDS, rise_bytes=round(rise))


def _doubt(segments: Sequence[Sequence[Point]], slope: float) -> tuple[float, float]:
    """The deviation of the points from lines of this slope, and that of the slope."""
    residuals = [_residuals(points, slope) for points in segments]
    flat = [one for part in residuals for one in part]
    freedom = len(flat) / max(1, len(flat) - len(segments) - 1)
    noise = 1.4826 * median(abs(one) for one in flat) * math.sqrt(freedom)
    alike = _alikeness(residuals)
    spans = sum(_span(points) for points in segments)
    return noise, noise / math.sqrt(spans) * math.sqrt((1 + alike) / (1 - alike))


def _slows_down(segments: Sequence[Sequence[Point]]) -> bool:
    """Whether the later half of the points grows less than half as fast as the earlier, no doubt: a warm-up does.

    Each half is weighed with its own noise: beside one line through both, a bend would count as noise and hide itself.
    """
    earlier, later = _halves(segments)
    before, now = slope_of(earlier), slope_of(later)
    return before is not None and now is not None and now + HALF_DEVIATIONS * _doubt(later, now)[1] < before / 2


def slope_of(segments: Sequence[Sequence[Point]]) -> float | None:
    """The median slope of all pairs inside segments, by their distance; None of fewer than ten pairs."""
    slopes = [((b[1] - a[1]) / (b[0] - a[0]), b[0] - a[0]) for points in segments for a, b in combinations(points, 2)]
    if len(slopes) < 10:
        return None
    slopes.sort()
    half = sum(weight for _, weight in slopes) / 2
    for slope, weight in slopes:
        half -= weight
        if half <= 0:
            return slope
    return slopes[-1][0]


def _residuals(points: Sequence[Point], slope: float) -> list[float]:
    level = median(value - slope * at for at, value in points)
    return [value - slope * at - level for at, value in points]


def _span(points: Sequence[Point]) -> float:
    mean = sum(at for at, _ in points) / len(points)
    return sum((at - mean) ** 2 for at, _ in points)


def _alikeness(residuals: Sequence[Sequence[float]]) -> float:
    """How much neighbours resemble each other, 0 to 0.9."""
    pairs = [pair for part in residuals for pair in pairwise(part)]
    whole = sum(one * one for part in residuals for one in part)
    return min(0.9, max(0.0, sum(a * b for a, b in pairs) / whole)) if whole > 0 else 0.0


def _quantile(lows: Sequence[int]) -> int:
    """The 20 % quantile."""
    return sorted(lows)[round((len(lows) - 1) / 5)]


def _halves(segments: Sequence[Sequence[Point]]) -> tuple[list[Sequence[Point]], list[Sequence[Point]]]:
    """The earlier and the later half of all points, in their segments."""
    left = sum(len(points) for points in segments) // 2
    earlier: list[Sequence[Point]] = []
    later: list[Sequence[Point]] = []
    for points in segments:
        earlier.append(points[:left])
        later.append(points[left:])
        left = max(0, left - len(points))
    return [part for part in earlier if len(part) >= 2], [part for part in later if len(part) >= 2]
