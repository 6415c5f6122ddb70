"""What is known of one pool at a moment, as the numbers that a forecast weighs.

All are shares of the pool, so that pools of any size are alike.
"""

import math

from msgspec import Struct

from agent.memory.demand import Demand, demands
from agent.memory.running_set import Running, RunningSet
from agent.memory.signals import PoolFacts, PoolSignal
from agent.memory.exhaustion import exhaustion_of
from agent.memory.trend import Trend

BLIND_SECONDS = 120.0
LEAST_SECONDS = 60.0


class Evidence(Struct, frozen=True, kw_only=True):
    """``used`` now; ``slope``, ``short_slope`` per second; ``swing``: of the medians of 10 s, from one to the next."""

    used: float
    slope: float
    slope_sd: float
    short_slope: float
    swing: float
    highest: float  # in the whole minutes before
    minutes: int
    minutes_above: int  # of them, those that went above what is used now
    running: Running | None
    demands: tuple[Demand, ...]
    capacity: int
    jump: float = 0.0


class PoolState:
    """One pool as its signals come."""

    def __init__(self, facts: PoolFacts) -> None:
        self.facts = facts
        self.exhaustion = exhaustion_of(facts.engine, facts.kind)
        self.trend = Trend()
        self.requests = RunningSet(cap=facts.max_sequences, live_gauges=self.exhaustion.live_gauges, grows=not self.exhaustion.reserves)
        self._begin()

    def _begin(self) -> None:
        self.last: PoolSignal | None = None
        self.began_at: float | None = None
        self.shortage_at: float | None = None
        self.restarted_at: float | None = None

    def clear(self) -> None:
        self.trend.clear()
        self.requests.clear()
        self._begin()

    def add(self, now: PoolSignal) -> None:
        """Take one reading; what can't follow the one before begins everything anew."""
        if now.used_ratio is None:
            self.clear()
            return
        last = self.last
        if last is not None and now.at <= last.at:
            return
        if last is not None and _went_back(last, now):
            self.clear()
            last = None
        if last is not None and now.at - last.at > BLIND_SECONDS:
            self.trend.restart_window()
            self.began_at = None
        if self.began_at is None:
            self.began_at = now.at
        if last is not None and is_shortage(last, now):
            self.shortage_at = now.at
        self.last = now
        self.trend.add(now.at, now.used_ratio)
        if now.running is not None:
            self.requests.add(now)

    def evidence(self) -> Evidence | None:
        """None of less than a minute of data."""
        now, trend = self.last, self.trend
        if now is None or now.used_ratio is None or trend.slope is None or trend.slope_sd is None:
            return None
        if self.began_at is None or now.at - self.began_at < LEAST_SECONDS:
            return None
        capacity = now.capacity_tokens or 0
        running = self.requests.state(capacity, now.used_ratio) if capacity else None
        highest = trend.highest(30)
        return Evidence(
            used=now.used_ratio,
            slope=trend.slope,
            slope_sd=trend.slope_sd,
            short_slope=trend.short_slope if trend.short_slope is not None else trend.slope,
            swing=trend.swing or 0.0,
            highest=now.used_ratio if highest is None else highest,
            minutes=trend.minutes,
            minutes_above=trend.times_above(now.used_ratio),
            running=running,
            demands=() if running is None else demands(running, capacity, longest=self.facts.max_model_len),
            capacity=capacity,
        )


def is_shortage(last: PoolSignal, now: PoolSignal) -> bool:
    """Whether a request lost its room between two signals: counted, or seen.

    vLLM counts a preemption when the request is scheduled again, up to 20 s late. The moment itself shows: fewer run,
    none of those that are gone has finished, as many more wait, and use falls from near the top.
    """
    if last.shortages is not None and now.shortages is not None and now.shortages > last.shortages:
        return True
    if None in (last.running, now.running, last.waiting, now.waiting, last.finished, now.finished):
        return False
    gone = last.running - now.running - (now.finished - last.finished)  # type: ignore[operator]
    more = now.waiting - last.waiting  # type: ignore[operator]
    fell = (last.used_ratio or 0.0) - (now.used_ratio or 0.0)
    return gone > 0 and more >= gone and fell > 0 and (last.used_ratio or 0.0) >= 0.9


def _went_back(last: PoolSignal, now: PoolSignal) -> bool:
    """A counter that is lower than before: another run of the engine."""
    pairs = (
        (last.generation_tokens, now.generation_tokens),
        (last.prompt_tokens, now.prompt_tokens),
        (last.shortages, now.shortages),
        (last.finished, now.finished),
    )
    return any(before is not None and after is not None and after < before for before, after in pairs)
