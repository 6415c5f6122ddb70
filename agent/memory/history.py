"""What the last minutes tell: growth of a pool, and extremes of a device between scrapes. Times are handed in."""

from collections import deque
from itertools import combinations
from statistics import median

BIN_SECONDS = 10.0
GROWTH_SECONDS = 180.0
GROWTH_LEAST_SECONDS = 30.0
FALL_SHARE = 0.25
KEEP_SECONDS = 600.0


class PoolHistory:
    """Used tokens of one pool, one point a tick, for ten minutes."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def add(self, at: float, used_tokens: int) -> None:
        """Append a reading; one that is not newer than the last is ignored."""
        if self._points and at <= self._points[-1][0]:
            return
        self._points.append((at, used_tokens))
        while self._points[0][0] < at - KEEP_SECONDS:
            self._points.popleft()

    def clear(self) -> None:
        """Forget everything: the engine restarted, slept, or was blind for too long."""
        self._points.clear()

    @property
    def points(self) -> tuple[tuple[float, int], ...]:
        return tuple(self._points)

    def growth_tokens_per_second(self) -> float | None:
        """Net growth: the median slope (Theil-Sen) between medians of 10 s over the last 180 s.

        A median of pair slopes is not moved by bursts that come and go, but a fall (many requests ended at once) would
        be read as a slope for minutes: the window begins anew after one. None before 30 s of readings.
        """
        centres = _after_last_fall(self._centres())
        if len(centres) < 2 or centres[-1][0] - centres[0][0] < GROWTH_LEAST_SECONDS - BIN_SECONDS:
            return None
        return median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(centres, 2))

    def _centres(self) -> list[tuple[float, float]]:
        """Medians of time and tokens over bins of 10 s that end at the last point, oldest first."""
        end = self._points[-1][0] if self._points else 0.0
        bins: dict[int, list[tuple[float, int]]] = {}
        for at, used in self._points:
            if at > end - GROWTH_SECONDS:
                bins.setdefault(int((end - at) // BIN_SECONDS), []).append((at, used))
        return [(median(at for at, _ in points), median(used for _, used in points)) for points in bins.values()]


def _after_last_fall(centres: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points after the last fall between neighbours by more than a quarter of the highest."""
    highest = max((used for _, used in centres), default=0.0)
    falls = [n for n in range(1, len(centres)) if centres[n - 1][1] - centres[n][1] > FALL_SHARE * highest]
    return centres[falls[-1] :] if falls else centres


class Extremes:
    """Highest and lowest of a quantity over a sliding window and since the start."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._highs: deque[tuple[float, int]] = deque()
        self._lows: deque[tuple[float, int]] = deque()
        self.highest: int | None = None
        self.lowest: int | None = None

    def add(self, at: float, value: int) -> None:
        """Take one sample in O(1): each deque keeps only samples that can still become the extreme."""
        self.highest = value if self.highest is None else max(self.highest, value)
        self.lowest = value if self.lowest is None else min(self.lowest, value)
        while self._highs and self._highs[-1][1] <= value:
            self._highs.pop()
        while self._lows and self._lows[-1][1] >= value:
            self._lows.pop()
        self._highs.append((at, value))
        self._lows.append((at, value))

    def window_highest(self, now: float) -> int | None:
        return self._oldest_within(self._highs, now)

    def window_lowest(self, now: float) -> int | None:
        return self._oldest_within(self._lows, now)

    def _oldest_within(self, samples: deque[tuple[float, int]], now: float) -> int | None:
        while samples and samples[0][0] < now - self._window_seconds:
            samples.popleft()
        return samples[0][1] if samples else None
