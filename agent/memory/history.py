"""What the last minutes tell: growth of a pool, and peaks of a device between scrapes. Times are handed in."""

from collections import deque
from itertools import combinations
from statistics import median

from agent.memory.trend import BIN_SECONDS, after_last_fall

GROWTH_SECONDS = 180.0
GROWTH_LEAST_SECONDS = 30.0
KEEP_SECONDS = 600.0


class PoolHistory:
    """Used tokens of one pool, one point a tick, for ten minutes.

    ``pace``: seconds of its life in one of the clock, another than 1 only of a simulated pool. Growth is by its life.
    """

    def __init__(self, pace: float = 1.0) -> None:
        self._pace = pace
        self.clear()

    def add(self, at: float, used_tokens: int) -> None:
        """Append a reading; one that is not newer than the last is ignored."""
        last = self._points[-1][0] if self._points else at - 1
        if at <= last:
            return
        lived = at * self._pace
        if self._bin and lived >= self._bin[0][0] + BIN_SECONDS:
            self._close_bin()
        self._bin.append((lived, used_tokens))
        if lived >= last * self._pace + BIN_SECONDS:  # readings are so rare that each is a bin
            self._close_bin()
        self._points.append((at, used_tokens))
        while self._points[0][0] < at - KEEP_SECONDS:
            self._points.popleft()

    def clear(self) -> None:
        """Forget everything: the engine restarted, slept, or was blind for too long."""
        self._points: deque[tuple[float, int]] = deque()
        self._bin: list[tuple[float, int]] = []
        self._centres: deque[tuple[float, float]] = deque()
        self._growth: float | None = None

    @property
    def points(self) -> tuple[tuple[float, int], ...]:
        return tuple(self._points)

    def growth_tokens_per_second(self) -> float | None:
        """Net growth: the median slope (Theil-Sen) between medians of 10 s over the last 180 s, anew every 10 s.

        A median of pair slopes is not moved by bursts that come and go, but a fall (many requests ended at once) would
        be read as a slope for minutes: the window begins anew after one. None before 30 s of readings.
        """
        return self._growth

    def _close_bin(self) -> None:
        """Add the medians of time and tokens of the bin that is over."""
        end = self._bin[-1][0]
        self._centres.append((median(at for at, _ in self._bin), median(used for _, used in self._bin)))
        self._bin.clear()
        while self._centres[0][0] <= end - GROWTH_SECONDS:
            self._centres.popleft()
        self._growth = _slope(after_last_fall(list(self._centres)))


def _slope(centres: list[tuple[float, float]]) -> float | None:
    if len(centres) < 2 or centres[-1][0] - centres[0][0] < GROWTH_LEAST_SECONDS - BIN_SECONDS:
        return None
    return median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(centres, 2))


class Peaks:
    """The highest of a quantity over a sliding window and since the start."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._samples: deque[tuple[float, int]] = deque()
        self.highest: int | None = None

    def add(self, at: float, value: int) -> None:
        """Take one sample in O(1): only those are kept that can still become the highest of the window."""
        self.highest = value if self.highest is None else max(self.highest, value)
        while self._samples and self._samples[-1][1] <= value:
            self._samples.pop()
        self._samples.append((at, value))
        self._forget(at)

    def window_highest(self, now: float) -> int | None:
        self._forget(now)
        return self._samples[0][1] if self._samples else None

    def _forget(self, now: float) -> None:
        while self._samples and self._samples[0][0] < now - self._window_seconds:
            self._samples.popleft()
