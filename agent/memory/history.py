"""What the last minutes tell: growth of a pool, and peaks of a device between scrapes. Times are handed in."""

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
        for at, used in reversed(self._points):
            if at <= end - GROWTH_SECONDS:
                break
            bins.setdefault(int((end - at) // BIN_SECONDS), []).append((at, used))
        centres = [(median(at for at, _ in points), median(used for _, used in points)) for points in bins.values()]
        return centres[::-1]


def _after_last_fall(centres: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points after the last fall between neighbours by more than a quarter of the highest."""
    highest = max((used for _, used in centres), default=0.0)
    falls = [n for n in range(1, len(centres)) if centres[n - 1][1] - centres[n][1] > FALL_SHARE * highest]
    return centres[falls[-1] :] if falls else centres


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
