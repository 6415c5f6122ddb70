"""One episode: a pool under its traffic, seen through an endpoint that may be blind, stale or restarted."""

from collections.abc import Iterator
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.signals import PoolFacts, PoolSignal
from benchmarks.pools.simulator import Pool, Spec
from benchmarks.pools.traffic import Batch, Lengths, Rate, Users

AFTER_SECONDS = 150


class Scenario(Struct, frozen=True, kw_only=True):
    """What happens in an episode. Times are seconds from its start.

    ``blind``: no reading in these spans; ``stale_seconds``: gauges are renewed so seldom; ``asleep``: spans in which
    the engine has released its pool; ``restarts``: moments at which it begins anew; ``stalls``: spans in which it
    does not decode.
    """

    spec: Spec
    facts: PoolFacts
    lengths: Lengths = Lengths()
    rate: Rate | None = None
    longer: Rate | None = None
    cached: Rate | None = None
    batches: tuple[Batch, ...] = ()
    users: tuple[int, float, bool] | None = None  # how many, mean seconds to think, whether a talk goes on
    seconds: int = 2700
    blind: tuple[tuple[float, float], ...] = ()
    stale_seconds: int = 1
    digits: int | None = None
    asleep: tuple[tuple[float, float], ...] = ()
    restarts: tuple[float, ...] = ()
    stalls: tuple[tuple[float, float], ...] = ()


class Episode(Struct, frozen=True, kw_only=True):
    """What was seen, and when the pool first ran out (None: not in this episode)."""

    name: str
    facts: PoolFacts
    signals: list[PoolSignal]
    event_at: float | None


def play(name: str, scenario: Scenario, random: Random) -> Episode:
    """The episode; it ends some time after the first shortage, or after its seconds."""
    signals: list[PoolSignal] = []
    event_at: float | None = None
    shown: PoolSignal | None = None
    for now, pool in _ticks(scenario, random):
        if event_at is None and pool.shortages:
            event_at = now
        if any(begin <= now < end for begin, end in scenario.blind):
            continue
        if any(begin <= now < end for begin, end in scenario.asleep):
            signals.append(PoolSignal(at=now))
            continue
        if shown is None or now % scenario.stale_seconds == 0:
            shown = pool.signal(now, digits=scenario.digits)
        signals.append(_renewed(shown, pool, now) if scenario.stale_seconds > 1 else shown)
        if event_at is not None and now > event_at + AFTER_SECONDS:
            break
    return Episode(name=name, facts=scenario.facts, signals=signals, event_at=event_at)


def _renewed(shown: PoolSignal, pool: Pool, now: float) -> PoolSignal:
    """Gauges as they were last renewed, counters as they are."""
    new = pool.signal(now)
    return replace(
        shown,
        at=now,
        shortages=new.shortages,
        prompt_tokens=new.prompt_tokens,
        generation_tokens=new.generation_tokens,
        finished=new.finished,
        finished_prompt_tokens=new.finished_prompt_tokens,
        finished_generation_tokens=new.finished_generation_tokens,
    )


def _ticks(scenario: Scenario, random: Random) -> Iterator[tuple[float, Pool]]:
    pool, users = _fresh(scenario, random)
    batches = sorted(scenario.batches, key=lambda one: one.at)
    due, hazard = random.expovariate(1.0), 0.0
    for second in range(1, scenario.seconds + 1):
        now = float(second)
        if now in scenario.restarts or any(now == end for _, end in scenario.asleep):
            pool, users = _fresh(scenario, random)
        hazard += scenario.rate(now) if scenario.rate else 0.0
        while hazard >= due:
            longer = scenario.longer(now) if scenario.longer else 1.0
            cached = scenario.cached(now) if scenario.cached else None
            pool.submit(scenario.lengths.draw(random, longer=longer, cached=cached))
            due += random.expovariate(1.0)
        while batches and batches[0].at <= now:
            batch = batches.pop(0)
            for _ in range(batch.count):
                pool.submit(batch.lengths.draw(random))
        if users:
            for one in users.due(now):
                pool.submit(one)
        pool.stalled = any(begin <= now < end for begin, end in scenario.stalls)
        if not any(begin <= now < end for begin, end in scenario.asleep):
            pool.tick(now)
        if users:
            for one in pool.ended:
                users.answered(one, now)
        yield now, pool


def _fresh(scenario: Scenario, random: Random) -> tuple[Pool, Users | None]:
    if scenario.users is None:
        return Pool(scenario.spec), None
    count, think, keeps = scenario.users
    return Pool(scenario.spec), Users(count, think=think, lengths=scenario.lengths, keeps=keeps, random=random)
