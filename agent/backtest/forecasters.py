"""What is scored: the forecast of this program, and beside it what people have: a threshold, and a straight line."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from agent.memory.forecast import PoolForecaster
from agent.memory.signals import PoolFacts, PoolSignal

LINE_SECONDS = 300.0


class Look(Struct, frozen=True, kw_only=True):
    """One look at a pool: whether there is an alarm, and where it was weighed anew, how likely it runs out."""

    at: float
    alarm: bool
    probability_2min: float | None = None
    probability_5min: float | None = None


class Forecaster(Protocol):
    """Takes signals as they come; is looked at with each."""

    def add(self, signal: PoolSignal) -> None: ...
    def look(self, now: float) -> Look: ...


class Ours:
    """An alarm is a level of at_risk or more."""

    def __init__(self, facts: PoolFacts) -> None:
        self._forecaster = PoolForecaster(facts)

    def add(self, signal: PoolSignal) -> None:
        self._forecaster.add(signal)

    def look(self, now: float) -> Look:
        found = self._forecaster.forecast(now)
        if found is None:
            return Look(at=now, alarm=False)
        fresh = found.at == now
        return Look(
            at=now,
            alarm=found.level in ("at_risk", "critical"),
            probability_2min=found.probability_2min if fresh else None,
            probability_5min=found.probability_5min if fresh else None,
        )


class Threshold:
    """Use of 90 % or more."""

    def __init__(self, facts: PoolFacts) -> None:
        self._used: float | None = None

    def add(self, signal: PoolSignal) -> None:
        self._used = signal.used_ratio

    def look(self, now: float) -> Look:
        return Look(at=now, alarm=self._used is not None and self._used >= 0.9)


class Line:
    """``predict_linear(used[5m], 300) > 1``: least squares through the samples of five minutes, two are enough."""

    def __init__(self, facts: PoolFacts) -> None:
        self._samples: deque[tuple[float, float]] = deque()
        self._begin: float | None = None
        self._sums = [0.0] * 4  # of t, v, t^2 and t v, with t since the first sample

    def add(self, signal: PoolSignal) -> None:
        if signal.used_ratio is not None:
            self._begin = signal.at if self._begin is None else self._begin
            self._samples.append((signal.at - self._begin, signal.used_ratio))
            self._count(*self._samples[-1], sign=1)

    def look(self, now: float) -> Look:
        since = now - (self._begin or 0.0)
        while self._samples and self._samples[0][0] < since - LINE_SECONDS:
            self._count(*self._samples.popleft(), sign=-1)
        return Look(at=now, alarm=self._at(since + LINE_SECONDS) > 1)

    def _count(self, t: float, v: float, *, sign: int) -> None:
        for n, value in enumerate((t, v, t * t, t * v)):
            self._sums[n] += sign * value

    def _at(self, t: float) -> float:
        count = len(self._samples)
        sum_t, sum_v, sum_tt, sum_tv = self._sums
        if count < 2 or (square := sum_tt - sum_t * sum_t / count) < 1e-6:
            return 0.0
        slope = (sum_tv - sum_t * sum_v / count) / square
        return sum_v / count + slope * (t - sum_t / count)


class Held:
    """Another's alarm, kept for three minutes after it went: fewer of them, and longer."""

    def __init__(self, inner: Forecaster, seconds: float = 180.0) -> None:
        self._inner = inner
        self._seconds = seconds
        self._last: float | None = None

    def add(self, signal: PoolSignal) -> None:
        self._inner.add(signal)

    def look(self, now: float) -> Look:
        if self._inner.look(now).alarm:
            self._last = now
        return Look(at=now, alarm=self._last is not None and now - self._last < self._seconds)


OURS = "forecast"
FORECASTERS: dict[str, Callable[[PoolFacts], Forecaster]] = {
    OURS: Ours,
    "use >= 90 %": Threshold,
    "use >= 90 %, held 180 s": lambda facts: Held(Threshold(facts)),
    "predict_linear 5 min": Line,
    "predict_linear 5 min, held 180 s": lambda facts: Held(Line(facts)),
}


def looks(forecaster: Forecaster, signals: list[PoolSignal]) -> list[Look]:
    """A look with each signal."""
    found = []
    for signal in signals:
        forecaster.add(signal)
        found.append(forecaster.look(signal.at))
    return found
