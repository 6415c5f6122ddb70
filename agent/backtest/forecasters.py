"""What is scored: the forecast of this program, and beside it what people have: a threshold, and a straight line."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from agent.memory.forecast import EVERY_SECONDS, PoolForecaster
from agent.memory.signals import PoolFacts, PoolSignal

LINE_SECONDS = 300.0


class Look(Struct, frozen=True, kw_only=True):
    """One look at a pool: whether there is an alarm, and how likely it runs out within 2 and 5 minutes."""

    at: float
    alarm: bool
    probability_2min: float | None = None
    probability_5min: float | None = None


class Forecaster(Protocol):
    """Takes signals as they come; is looked at every five seconds."""

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
        return Look(
            at=now,
            alarm=found.level in ("at_risk", "critical"),
            probability_2min=found.probability_2min,
            probability_5min=found.probability_5min,
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

    def add(self, signal: PoolSignal) -> None:
        if signal.used_ratio is not None:
            self._samples.append((signal.at, signal.used_ratio))

    def look(self, now: float) -> Look:
        while self._samples and self._samples[0][0] < now - LINE_SECONDS:
            self._samples.popleft()
        return Look(at=now, alarm=self._at_end(now) > 1)

    def _at_end(self, now: float) -> float:
        count = len(self._samples)
        if count < 2:
            return 0.0
        times = [at - now for at, _ in self._samples]
        mean_t, mean_v = sum(times) / count, sum(value for _, value in self._samples) / count
        square = sum((t - mean_t) ** 2 for t in times)
        if square == 0:
            return 0.0
        slope = sum((t - mean_t) * v for t, (_, v) in zip(times, self._samples, strict=True)) / square
        return mean_v + slope * (LINE_SECONDS - mean_t)


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
    """A look with the first signal that is five seconds after the look before."""
    found: list[Look] = []
    for signal in signals:
        forecaster.add(signal)
        if not found or signal.at >= found[-1].at + EVERY_SECONDS:
            found.append(forecaster.look(signal.at))
    return found
