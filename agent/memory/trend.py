"""How a pool's use moves: medians of 10 s, the robust slope through them, and how far it swings by itself.

Slope: Theil-Sen, the median of all pair slopes, which a third of outliers does not move (Sen 1968). It is no answer to
steps, so a fall by a quarter of the highest begins the window anew. Swing: the standard deviation of the differences of
neighbouring medians around their mean, per bin.
"""

import math
from collections import deque
from itertools import combinations, pairwise
from statistics import median

BIN_SECONDS = 10.0
WINDOW_SECONDS = 180.0
SWING_BINS = 60
MOST_MINUTES = 30
FALL_SHARE = 0.25

Centre = tuple[float, float]


class Trend:
    """Use of one pool over the last minutes, in O(1) memory. Times are monotonic seconds, values of any unit."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all: the engine was started anew, slept, or was not seen for too long."""
        self._bin: list[Centre] = []
        self._centres: deque[Centre] = deque(maxlen=SWING_BINS + 1)
        self._minute_ends: float | None = None
        self.minutes = 0
        self.slope: float | None = None
        self.slope_sd: float | None = None
        self.swing: float | None = None

    def restart_window(self) -> None:
        """Begin the slope anew after a time without readings; how long it is known stays."""
        self._bin.clear()
        self._centres.clear()
        self.slope = self.slope_sd = None

    @property
    def seconds(self) -> float:
        """The time between the first and the last median."""
        return self._centres[-1][0] - self._centres[0][0] if self._centres else 0.0

    def add(self, at: float, value: float) -> None:
        """Take one reading; they come in order. A bin closes when one comes 10 s or more after its first."""
        if self._bin and at >= self._bin[0][0] + BIN_SECONDS:
            self._close()
        self._bin.append((at, value))
        if self._minute_ends is None:
            self._minute_ends = at + 60.0
        elif at >= self._minute_ends:
            self._minute_ends = at + 60.0
            self.minutes = min(self.minutes + 1, MOST_MINUTES)

    def _close(self) -> None:
        self._centres.append((median(at for at, _ in self._bin), median(value for _, value in self._bin)))
        self._bin.clear()
        newest = self._centres[-1][0]
        window = after_last_fall([one for one in self._centres if one[0] > newest - WINDOW_SECONDS])
        self.slope, self.slope_sd = slope_of(window)
        self.swing = swing_of(self._centres)


def slope_of(centres: list[Centre]) -> tuple[float | None, float | None]:
    """The Theil-Sen slope per second, and its standard deviation were the residuals white: sqrt(12) s / (T sqrt(n)).

    ``s`` is 1.4826 times the median absolute residual. None of fewer than three points.
    """
    count = len(centres)
    if count < 3:
        return None, None
    slope = median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(centres, 2))
    level = median(value - slope * at for at, value in centres)
    spread = 1.4826 * median(abs(value - slope * at - level) for at, value in centres)
    return slope, math.sqrt(12) * spread / ((centres[-1][0] - centres[0][0]) * math.sqrt(count))


def swing_of(centres: deque[Centre]) -> float | None:
    """Standard deviation of the change from bin to bin, around its mean; None of fewer than six bins."""
    if len(centres) < 6:
        return None
    changes = [after[1] - before[1] for before, after in pairwise(centres)]
    mean = sum(changes) / len(changes)
    return math.sqrt(sum((one - mean) ** 2 for one in changes) / (len(changes) - 1))


def after_last_fall(centres: list[Centre]) -> list[Centre]:
    """The points after the last fall between neighbours by more than a quarter of the highest."""
    highest = max((value for _, value in centres), default=0.0)
    falls = [n for n in range(1, len(centres)) if centres[n - 1][1] - centres[n][1] > FALL_SHARE * highest]
    return centres[falls[-1] :] if falls else centres
