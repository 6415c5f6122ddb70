"""Seeing a pool run out before it does: one ``PoolForecaster`` for each pool, fed with what each reading tells of it.

Every five seconds it weighs what is known (``pool_state``): probabilities for 2 and 5 minutes (``probability``), the
time that is left, a level and why. Absent is what the data do not carry: less than a minute of them, a pool that is not
read now, and for two minutes after it ran out, for then use falls although nothing is well.
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.chains import Chains, chains_of, with_long
from agent.memory.exhaustion import Outcome
from agent.memory.levels import Holding, Level, Levels
from agent.memory.pool_state import Evidence, PoolState
from agent.memory.probability import features, probability
from agent.memory.signals import PoolFacts, PoolSignal

EVERY_SECONDS = 5.0
BLIND_SECONDS = 30.0
EXHAUSTED_SECONDS = 120.0
STORM_SECONDS = 60.0
MOST_SECONDS = 1800.0

WATCH_5MIN = 0.25
AT_RISK_5MIN = 0.65
AT_RISK_2MIN = 0.42
CRITICAL_2MIN = 0.7
AT_RISK_USED = 0.94
LIMITED_SECONDS = 30.0
CALM_5MIN = 0.1
WATCH_USED = 0.9
HOLDING = Holding(seconds=300.0, calm_seconds=110.0, lingering_seconds=120.0)

Cause = Literal["shortage", "full", "admitted_demand", "growth", "arrivals", "none"]


class Forecast(Struct, frozen=True, kw_only=True):
    """One pool as it was seen at ``at`` (monotonic). Times are seconds, shares 0-1; None: the data do not carry it.

    ``likely_seconds`` and ``early_seconds``: until it is full, 0 while exhausted, which it is until two minutes after
    the last request lost its place; None also beyond 30 minutes.
    ``outcome``: what happens then. ``cause``: what weighs most at the newest look. ``queue_at_limit``: requests wait
    for the sequence limit, not for room. ``age_seconds``: of the newest reading. ``held_seconds``: how long ago a look
    asked for the level last, None while one does.
    """

    at: float
    level: Level
    cause: Cause
    outcome: Outcome
    exhausted: bool
    used_ratio: float
    probability_2min: float | None = None
    probability_5min: float | None = None
    likely_seconds: float | None = None
    early_seconds: float | None = None
    growth_tokens_per_second: float | None = None
    admitted_ratio: float | None = None
    queue_at_limit: bool = False
    max_sequences: int | None = None
    shortages_per_minute: float | None = None
    chains: Chains | None = None
    age_seconds: float = 0.0
    held_seconds: float | None = None


class PoolForecaster:
    """One pool over time, in O(1) memory. ``add`` is cheap; a look is taken every five seconds, by ``forecast``, and
    when use comes to the top."""

    def __init__(self, facts: PoolFacts) -> None:
        self._state = PoolState(facts)
        self._levels = Levels(HOLDING)
        self._newest: Forecast | None = None
        self._generation = 0

    def add(self, signal: PoolSignal) -> None:
        """Take one reading. Use that is not told (the engine sleeps) and counters that fall begin everything anew."""
        self._state.add(signal)
        if self._state.generation != self._generation:
            self._generation = self._state.generation
            self._levels.clear()
            self._newest = None

    def forecast(self, now: float) -> Forecast | None:
        """The newest look; None while no pool is known. While it is not read its level stands and its numbers go."""
        last = self._state.last
        if last is None:
            return None
        age = now - last.at
        if age > BLIND_SECONDS:
            return None if self._newest is None else _blind(self._newest, age)
        if self._newest is None or last.at >= self._newest.at + EVERY_SECONDS or _crosses(self._newest, last):
            self._newest = self._look(last)
        return self._newest if age <= 0 else replace(self._newest, age_seconds=age)

    def _look(self, last: PoolSignal) -> Forecast:
        state, at, used = self._state, last.at, last.used_ratio or 0.0
        known = state.evidence()
        short = state.shortage_at is not None and at - state.shortage_at < EXHAUSTED_SECONDS
        told = known is not None and not short
        x = features(known) if known is not None and told else None
        soon, later = (probability(x, 120), probability(x, 300)) if x is not None else (None, None)
        limited = known is not None and known.running is not None and known.running.limited_seconds > LIMITED_SECONDS
        wanted = "critical" if short else _wanted(soon, later, used, limited=limited)
        calm = not short and (used < WATCH_USED if later is None else later < CALM_5MIN)
        level = self._levels.look(at, wanted, calm=calm)
        likely, early = (0.0, 0.0) if short else _left(known) if known is not None else (None, None)
        running = known.running if known is not None else None
        capacity = last.capacity_tokens
        return Forecast(
            at=at,
            level=level,
            cause=_cause(known, used, short=short, level=level),
            outcome=state.exhaustion.outcome,
            exhausted=short,
            used_ratio=used,
            probability_2min=soon,
            probability_5min=later,
            likely_seconds=likely,
            early_seconds=early,
            growth_tokens_per_second=None if known is None or capacity is None else known.slope * capacity,
            admitted_ratio=_admitted(known),
            queue_at_limit=bool(last.waiting and running and running.cap and running.count >= running.cap),
            max_sequences=running.cap if running else None,
            shortages_per_minute=state.shortages_since(at - STORM_SECONDS),
            chains=_chains(known, last),
            held_seconds=self._levels.held_seconds,
        )


def _crosses(newest: Forecast, last: PoolSignal) -> bool:
    """Whether use has come to the top since the look before: that does not wait for the next."""
    return newest.used_ratio < AT_RISK_USED <= (last.used_ratio or 0.0)


def _blind(newest: Forecast, age: float) -> Forecast:
    """What still stands of a look when nothing was read since: what is said of now goes."""
    return Forecast(
        at=newest.at,
        level=newest.level,
        cause=newest.cause,
        outcome=newest.outcome,
        exhausted=newest.exhausted,
        used_ratio=newest.used_ratio,
        age_seconds=age,
    )


def _wanted(soon: float | None, later: float | None, used: float, *, limited: bool) -> Level:
    """The level that one look asks for. A pool that stood full of waiting requests for a minute may live so."""
    full = used >= AT_RISK_USED and not limited
    if soon is None or later is None:
        return "at_risk" if full else "watch" if used >= WATCH_USED else "ok"
    if soon >= CRITICAL_2MIN:
        return "critical"
    if later >= AT_RISK_5MIN or soon >= AT_RISK_2MIN or full:
        return "at_risk"
    return "watch" if later >= WATCH_5MIN or used >= WATCH_USED else "ok"


def _left(known: Evidence) -> tuple[float | None, float | None]:
    """Seconds until it is full at its own growth, where that is certain; early at the most it may be, or is wanted."""
    if not _grows(known):
        return None, None
    room = max(0.0, 1 - known.used)
    likely = room / known.slope
    wanted = (one.seconds for one in known.demands if one.mean + one.sd >= known.capacity)
    early = min(room / (known.slope + 2 * known.slope_sd), next(wanted, likely))
    return (likely if likely <= MOST_SECONDS else None), (early if early <= MOST_SECONDS else None)


def _grows(known: Evidence) -> bool:
    """Whether use rises by more than what readings scatter; what an engine sets aside does not grow by itself."""
    return not known.reserves and known.slope > max(0.0, 2 * known.slope_sd)


def _admitted(known: Evidence | None) -> float | None:
    if known is None or not known.demands:
        return None
    return max(known.used, max(one.admitted for one in known.demands) / known.capacity)


def _cause(known: Evidence | None, used: float, *, short: bool, level: Level) -> Cause:
    if short:
        return "shortage"
    if level == "ok":
        return "none"
    if (_admitted(known) or 0.0) >= 1:
        return "admitted_demand"
    if used >= AT_RISK_USED:
        return "full"
    if known is not None and _grows(known):
        return "growth"
    return "arrivals"


def _chains(known: Evidence | None, last: PoolSignal) -> Chains | None:
    if known is None or known.running is None:
        return None
    running = known.running
    found = chains_of(mean=running.held, growth=running.speed * running.growth_share, lengths=last.lengths)
    return with_long(found, age=running.age, short=running.short) if running.age_is_known else found
