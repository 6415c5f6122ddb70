"""What is known of one pool at a moment: what a forecast weighs, as shares, so that pools of any size are alike."""

from collections import deque

from msgspec import Struct

from agent.memory.demand import Demand, demands
from agent.memory.exhaustion import exhaustion_of
from agent.memory.running_set import Running, RunningSet
from agent.memory.signals import PoolFacts, PoolSignal
from agent.memory.trend import Trend

BLIND_SECONDS = 120.0
LEAST_SECONDS = 60.0


class Evidence(Struct, frozen=True, kw_only=True):
    """``used`` now; ``slope`` per second, ``swing`` of the medians of 10 s from one to the next.

    ``minutes``: whole ones that it has been followed, at most 30. ``running`` is None where the engine does not tell
    how many requests run or how large the pool is. ``reserves``: what is used was set aside, and does not grow.
    """

    used: float
    slope: float
    slope_sd: float
    swing: float
    minutes: int
    running: Running | None
    demands: tuple[Demand, ...]
    capacity: int
    reserves: bool = False


class PoolState:
    """One pool as its signals come."""

    def __init__(self, facts: PoolFacts) -> None:
        self.facts = facts
        self.exhaustion = exhaustion_of(facts.engine, facts.kind)
        self.trend = Trend()
        self.generation = 0  # how often everything began anew
        means = self.exhaustion
        self.requests = RunningSet(cap=facts.max_sequences, live_gauges=means.live_gauges, grows=not means.reserves)
        self._begin()

    def _begin(self) -> None:
        self.last: PoolSignal | None = None
        self.began_at: float | None = None
        self.shortage_at: float | None = None
        self._shortages: deque[tuple[float, int]] = deque(maxlen=64)

    def clear(self) -> None:
        """Begin everything anew; how long answers get is kept, for the model is the same."""
        self.generation += 1
        self.trend.clear()
        self.requests.clear()
        self._begin()

    def add(self, now: PoolSignal) -> None:
        """Take one reading; what can't follow the one before begins everything anew."""
        if now.used_ratio is None:
            if self.last is not None:
                self.clear()
            return
        last = self.last
        if last is not None and now.at <= last.at:
            return
        if last is not None and went_back(last, now):
            self.clear()
            last = None
        if last is not None and now.at - last.at > BLIND_SECONDS:
            self.trend.restart_window()
            self.began_at = None
        if self.began_at is None:
            self.began_at = now.at
        if last is not None and is_shortage(last, now, live_gauges=self.exhaustion.live_gauges):
            self.shortage_at = now.at
        self._count(last, now)
        self.last = now
        self.trend.add(now.at, now.used_ratio)
        if now.running is not None:
            self.requests.add(now)

    def shortages_since(self, at: float) -> int | None:
        """How many requests were counted as short of room since then; None where the engine does not count them."""
        if self.last is None or self.last.shortages is None:
            return None
        return sum(count for when, count in self._shortages if when > at)

    def _count(self, last: PoolSignal | None, now: PoolSignal) -> None:
        before = last.shortages if last is not None else None
        if before is not None and now.shortages is not None and now.shortages > before:
            self._shortages.append((now.at, now.shortages - before))

    def evidence(self) -> Evidence | None:
        """None of less than a minute of data."""
        now, trend = self.last, self.trend
        if now is None or now.used_ratio is None or trend.slope is None or trend.slope_sd is None:
            return None
        if self.began_at is None or now.at - self.began_at < LEAST_SECONDS:
            return None
        capacity = now.capacity_tokens or 0
        running = self.requests.state(capacity, now.used_ratio) if capacity else None
        return Evidence(
            used=now.used_ratio,
            slope=trend.slope,
            slope_sd=trend.slope_sd,
            swing=trend.swing or 0.0,
            minutes=trend.minutes,
            running=running,
            demands=() if running is None else demands(running, capacity, longest=self.facts.max_model_len),
            capacity=capacity,
            reserves=self.exhaustion.reserves,
        )


def is_shortage(last: PoolSignal, now: PoolSignal, *, live_gauges: bool) -> bool:
    """Whether a request lost its room between two signals: counted (a counter may appear with its first), or seen.

    vLLM counts a preemption when the request is scheduled again, up to 20 s late. The moment itself shows: fewer run,
    none of those that are gone has finished, as many more wait, and use falls from near the top. Not where gauges are
    renewed at other times than counters (``live_gauges``).
    """
    if now.shortages is not None and now.shortages > (last.shortages or 0):
        return True
    if not live_gauges or None in (last.running, now.running, last.waiting, now.waiting):
        return False
    finished = 0 if last.finished is None or now.finished is None else now.finished - last.finished
    gone = last.running - now.running - finished  # type: ignore[operator]
    more = now.waiting - last.waiting  # type: ignore[operator]
    fell = (last.used_ratio or 0.0) - (now.used_ratio or 0.0)
    return gone > 0 and more >= gone and fell > 0 and (last.used_ratio or 0.0) >= 0.9


def went_back(last: PoolSignal, now: PoolSignal) -> bool:
    """A counter that is lower than before: another run of the engine."""
    pairs = (
        (last.generation_tokens, now.generation_tokens),
        (last.prompt_tokens, now.prompt_tokens),
        (last.shortages, now.shortages),
        (last.finished, now.finished),
    )
    return any(before is not None and after is not None and after < before for before, after in pairs)
