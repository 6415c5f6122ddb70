"""The families of episodes: what loads a pool, what bends its curve, and what the endpoint makes of it.

Parameters are drawn by the seed; nothing in here was chosen after looking at a forecast's score. The split between
tuning and test is in ``split.json``.
"""

import math
from collections.abc import Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from agent.memory.signals import PoolFacts
from benchmarks.pools.episode import Scenario
from benchmarks.pools.simulator import Spec
from benchmarks.pools.traffic import Batch, Lengths, Rate, rate_for

SECONDS = 2700
Family = Callable[[Random], Scenario]


def _spec(random: Random, **changes: Any) -> Spec:
    capacity = int(math.exp(random.uniform(math.log(100_000), math.log(800_000))))
    return replace(Spec(capacity=capacity), **changes)


def _facts(spec: Spec, *, engine: str = "vllm", known: bool = True, kind: str = "full") -> PoolFacts:
    return PoolFacts(
        engine=engine,
        kind=kind,
        max_sequences=spec.max_sequences if known else None,
        max_model_len=65_536,
    )


def _mixed(random: Random, *, chains: tuple[float, float] = (0.05, 0.4)) -> Lengths:
    return Lengths(
        prompt=int(random.uniform(300, 1500)),
        chains=random.uniform(*chains),
        chain=int(4000 * random.uniform(0.5, 2.0)),
        most=random.choice((16_384, 32_768, 65_536)),
    )


def _flat(rate: float) -> Rate:
    return lambda now: rate


def _loaded(random: Random, low: float, high: float, *, known: bool = True, **changes: Any) -> Scenario:
    """Stationary traffic whose mean occupancy is somewhere between these shares."""
    spec, lengths = _spec(random, **changes), _mixed(random)
    rate = rate_for(spec, lengths, random.uniform(low, high))
    return Scenario(spec=spec, facts=_facts(spec, known=known), lengths=lengths, rate=_flat(rate), seconds=SECONDS)


def steady_low(random: Random) -> Scenario:
    return _loaded(random, 0.35, 0.6)


def steady_high(random: Random) -> Scenario:
    return _loaded(random, 0.65, 0.85)


def steady_edge(random: Random) -> Scenario:
    """Large pools of short requests, which fluctuate little: 0.85 to 0.95 is where they live."""
    spec = _spec(random, capacity=random.randrange(400_000, 900_000), max_sequences=1024, speed=(0.018, 4e-5, 2e-8))
    lengths = Lengths(prompt=random.randrange(300, 900), chat=random.randrange(200, 500), most=4096)
    rate = rate_for(spec, lengths, random.uniform(0.75, 0.9))
    return Scenario(spec=spec, facts=_facts(spec), lengths=lengths, rate=_flat(rate))


def overload_step(random: Random) -> Scenario:
    calm, at, height = _loaded(random, 0.35, 0.6), random.uniform(600, 1500), random.uniform(1.4, 3.0)
    assert calm.rate is not None
    base = calm.rate(0)
    return replace(calm, rate=lambda now: base * (height if now >= at else 1.0))


def ramp(random: Random) -> Scenario:
    calm, at, height, over = (
        _loaded(random, 0.3, 0.5),
        random.uniform(400, 1200),
        random.uniform(1.3, 3.5),
        random.uniform(300, 1200),
    )
    assert calm.rate is not None
    base = calm.rate(0)
    return replace(calm, rate=lambda now: base * (1 + (height - 1) * min(1.0, max(0.0, (now - at) / over))))


def diurnal(random: Random) -> Scenario:
    """A day in three quarters of an hour."""
    calm, period, depth = _loaded(random, 0.45, 0.75), random.uniform(1200, 2700), random.uniform(0.3, 0.7)
    assert calm.rate is not None
    base = calm.rate(0)
    return replace(calm, rate=lambda now: base * (1 + depth * math.sin(2 * math.pi * now / period)))


def _bursts(
    random: Random, scenario: Scenario, *, share: tuple[float, float], gap: float, lengths: Lengths
) -> Scenario:
    """Batches whose prompts alone take this share of the pool."""
    batches, at = [], random.expovariate(1 / gap)
    while at < SECONDS:
        count = max(2, int(random.uniform(*share) * scenario.spec.capacity / lengths.prompt))
        batches.append(Batch(at=float(int(at)), count=count, lengths=lengths))
        at += random.expovariate(1 / gap)
    return replace(scenario, batches=tuple(batches))


def bursts(random: Random) -> Scenario:
    lengths = Lengths(prompt=random.randrange(400, 2000), chat=400)
    return _bursts(random, _loaded(random, 0.35, 0.6), share=(0.05, 0.3), gap=240, lengths=lengths)


def small_bursts(random: Random) -> Scenario:
    lengths = Lengths(prompt=random.randrange(300, 900), chat=300)
    return _bursts(random, _loaded(random, 0.45, 0.7), share=(0.02, 0.12), gap=90, lengths=lengths)


def one_cohort(random: Random) -> Scenario:
    """Many chains that begin together, over light traffic."""
    calm = _loaded(random, 0.1, 0.3)
    chains = Lengths(
        prompt=800,
        chains=1.0,
        chain=int(random.uniform(4000, 12_000)),
        chain_sigma=random.uniform(0.3, 0.8),
        most=32_768,
    )
    count = max(3, int(random.uniform(0.6, 2.2) * calm.spec.capacity / (chains.chain * 1.3)))
    return replace(calm, batches=(Batch(at=float(random.randrange(300, 900)), count=count, lengths=chains),))


def few_long_chains(random: Random) -> Scenario:
    calm = _loaded(random, 0.2, 0.5, capacity=random.randrange(60_000, 160_000))
    chains = Lengths(prompt=1500, chains=1.0, chain=int(random.uniform(10_000, 25_000)), chain_sigma=0.5, most=65_536)
    starts = sorted(random.uniform(200, 2000) for _ in range(random.randrange(2, 7)))
    return replace(calm, batches=tuple(Batch(at=float(int(at)), count=1, lengths=chains) for at in starts))


def many_long_chains(random: Random) -> Scenario:
    """Reasoning only, arriving all the time."""
    spec = _spec(random)
    lengths = Lengths(prompt=500, chains=1.0, chain=int(random.uniform(3000, 9000)), most=65_536)
    rate = rate_for(spec, lengths, random.uniform(0.55, 1.1))
    return Scenario(spec=spec, facts=_facts(spec), lengths=lengths, rate=_flat(rate))


def in_time(random: Random) -> Scenario:
    """Chains that would fill the pool, and end at 85 to 98 % of it."""
    spec = _spec(random)
    length = random.randrange(4000, 12_000)
    count = max(3, int(random.uniform(0.85, 0.98) * spec.capacity / (length + 600)))
    chains = Lengths(prompt=600, prompt_sigma=0.1, chains=1.0, chain=length, chain_sigma=0.02, most=65_536)
    starts = [random.uniform(100, 400), random.uniform(1300, 1700)]
    return Scenario(
        spec=spec,
        facts=_facts(spec),
        lengths=chains,
        batches=tuple(Batch(at=float(int(at)), count=count, lengths=chains) for at in starts),
    )


def closed_loop(random: Random) -> Scenario:
    calm = _loaded(random, 0.5, 0.95)
    users = max(4, int(random.uniform(0.6, 1.1) * calm.spec.capacity / 2500))
    return replace(calm, rate=None, users=(users, random.uniform(10, 60), False))


def capped(random: Random) -> Scenario:
    """The sequence limit keeps the pool at 60 to 92 % on average, and a queue stands before it."""
    return _capped(random, known=True, load=(1.05, 1.4))


def capped_unknown(random: Random) -> Scenario:
    return _capped(random, known=False, load=(1.05, 1.4))


def cap_not_reached(random: Random) -> Scenario:
    return _capped(random, known=True, load=(0.7, 0.98))


def _capped(random: Random, *, known: bool, load: tuple[float, float]) -> Scenario:
    spec, lengths = _spec(random), _mixed(random)
    occupancy = random.uniform(0.6, 0.92)
    rate = rate_for(spec, lengths, occupancy)
    draws = [lengths.draw(random) for _ in range(800)]
    t0, t1, t2 = spec.speed
    steps = sum(one.output for one in draws) / len(draws)
    step = t0 + t2 * occupancy * spec.capacity
    running = rate * steps * step / max(0.1, 1 - t1 * rate * steps)
    spec = replace(spec, max_sequences=max(4, round(running)))
    rate *= random.uniform(*load)
    return Scenario(spec=spec, facts=_facts(spec, known=known), lengths=lengths, rate=_flat(rate))


def offline_batch(random: Random) -> Scenario:
    """Some hundreds of prompts at once under a sequence limit, as evaluations are run."""
    limit = random.choice((16, 32, 64, 128))
    spec = _spec(random, max_sequences=limit)
    per_sequence = spec.capacity * random.uniform(0.5, 1.15) / limit
    chain = max(64, int((per_sequence - 300) * 0.9))
    lengths = Lengths(prompt=300, chains=1.0, chain=chain, chain_sigma=0.5, most=min(65_536, 3 * chain))
    batch = Batch(at=float(random.randrange(60, 300)), count=limit * random.randrange(3, 10), lengths=lengths)
    return Scenario(spec=spec, facts=_facts(spec), batches=(batch,))


def shared_prefix(random: Random) -> Scenario:
    shared = random.randrange(500, 4000)
    spec = _spec(random, shared_prefix=shared)
    lengths = replace(_mixed(random), prompt=shared + 500, prompt_sigma=0.2, cached=0.8)
    return Scenario(
        spec=spec, facts=_facts(spec), lengths=lengths, rate=_flat(rate_for(spec, lengths, random.uniform(0.6, 1.05)))
    )


def agents(random: Random) -> Scenario:
    """Agents that ask again with all that was said before."""
    spec = _spec(random)
    lengths = Lengths(prompt=400, chat=400, chains=0.1, chain=2000, most=random.choice((16_384, 32_768)))
    users = max(4, int(random.uniform(0.5, 1.6) * spec.capacity / 9000))
    return Scenario(spec=spec, facts=_facts(spec), lengths=lengths, users=(users, random.uniform(2, 20), True))


def prefix_collapse(random: Random) -> Scenario:
    """Prompts stop hitting the cache: prefill is slower, requests stay longer, and more of them overlap."""
    spec = _spec(random, prefill_rate=random.uniform(3000, 6000))
    lengths = Lengths(prompt=random.randrange(2000, 5000), prompt_sigma=0.4, chat=300, chains=0.1, cached=0.9)
    rate, at = rate_for(spec, lengths, random.uniform(0.4, 0.75)), random.uniform(600, 1800)
    return Scenario(
        spec=spec,
        facts=_facts(spec),
        lengths=lengths,
        rate=_flat(rate),
        cached=lambda now: 0.9 if now < at else 0.05,
    )


def drift(random: Random) -> Scenario:
    """Answers get 1.5 to 5 times as long."""
    calm, at, by = _loaded(random, 0.25, 0.5), random.uniform(300, 1200), random.uniform(1.5, 5.0)
    over = random.uniform(100, 900)
    return replace(calm, longer=lambda now: 1 + (by - 1) * min(1.0, max(0.0, (now - at) / over)))


def cold_start(random: Random) -> Scenario:
    """Full traffic from the first second."""
    return replace(_loaded(random, 0.5, 1.1), seconds=1500)


def storm(random: Random) -> Scenario:
    return _loaded(random, 1.05, 1.4)


def hybrid_window(random: Random) -> Scenario:
    """Five of six layers see a window only: growth of a chain nearly stops after it."""
    window, share = random.choice((1024, 2048, 4096)), random.choice((0.5, 0.75, 0.83))
    calm = _loaded(random, 0.2, 0.4, window=window, window_share=share)
    chains = Lengths(prompt=600, chains=1.0, chain=random.randrange(6000, 14_000), chain_sigma=0.4, most=32_768)
    count = max(3, int(random.uniform(0.5, 1.4) * calm.spec.capacity / 5000))
    return replace(calm, batches=(Batch(at=float(random.randrange(200, 900)), count=count, lengths=chains),))


def window_pool(random: Random) -> Scenario:
    """A pool of windows alone: what a sequence holds stops growing."""
    window = random.choice((1024, 4096))
    spec = _spec(random, window=window, window_share=1.0, max_sequences=1024)
    lengths = _mixed(random, chains=(0.3, 0.9))
    running = random.uniform(0.5, 1.05) * spec.capacity / window
    rate = running / (lengths.chain * spec.speed[0] * 1.6)
    return Scenario(spec=spec, facts=_facts(spec, kind="window"), lengths=lengths, rate=_flat(rate))


def state_pool(random: Random) -> Scenario:
    """A state for each sequence, whatever its length."""
    slots = random.randrange(40, 200)
    spec = _spec(random, capacity=slots, state_tokens=1)
    lengths = _mixed(random)
    draws = [lengths.draw(random) for _ in range(800)]
    residence = sum(one.output for one in draws) / len(draws) * (spec.speed[0] + spec.speed[1] * slots)
    rate = random.uniform(0.5, 0.95) * slots / residence
    return Scenario(spec=spec, facts=_facts(spec, kind="state"), lengths=lengths, rate=_flat(rate))


def watermark(random: Random) -> Scenario:
    return _loaded(random, 0.75, 1.2, watermark=random.choice((0.02, 0.05, 0.1)))


def long_prompts(random: Random) -> Scenario:
    """Documents of 8k to 60k tokens with short answers: few requests, coarse steps."""
    spec = _spec(random, prefill_rate=random.uniform(4000, 12_000))
    lengths = Lengths(prompt=random.randrange(8000, 20_000), prompt_sigma=0.5, prompt_most=60_000, chat=400)
    rate = rate_for(spec, lengths, random.uniform(0.3, 0.7))
    return Scenario(spec=spec, facts=_facts(spec), lengths=lengths, rate=_flat(rate))


def blind(random: Random) -> Scenario:
    """The endpoint does not answer for 20 to 120 s, again and again."""
    base = random.choice((ramp, many_long_chains, overload_step))(random)
    gaps, at = [], random.uniform(100, 500)
    while at < SECONDS:
        length = random.uniform(20, 120)
        gaps.append((at, at + length))
        at += length + random.expovariate(1 / 300)
    return replace(base, blind=tuple(gaps))


def clock_step(random: Random) -> Scenario:
    """The host stood still: minutes pass between two readings."""
    base = random.choice((steady_high, many_long_chains, drift))(random)
    at = random.uniform(400, 1600)
    return replace(base, blind=((at, at + random.uniform(130, 400)),))


def restart_loop(random: Random) -> Scenario:
    base = _loaded(random, 0.5, 1.1)
    every = random.uniform(200, 700)
    return replace(base, restarts=tuple(float(int(every * turn)) for turn in range(1, int(SECONDS / every) + 1)))


def sleep_wake(random: Random) -> Scenario:
    base, begin = _loaded(random, 0.4, 0.95), float(random.randrange(500, 1200))
    return replace(base, asleep=((begin, begin + float(random.randrange(60, 400))),))


def adapter_stalls(random: Random) -> Scenario:
    """Loading an adapter holds up decoding for seconds; requests pile up meanwhile."""
    base = _loaded(random, 0.5, 0.8)
    stalls, at = [], random.uniform(60, 200)
    while at < SECONDS:
        stalls.append((at, at + random.uniform(3, 20)))
        at += random.expovariate(1 / 200)
    return replace(base, stalls=tuple(stalls))


def smaller_rank(random: Random) -> Scenario:
    """A replica with less room than its siblings gets the same share of the traffic."""
    return _loaded(random, 0.7, 1.1, capacity=random.randrange(50_000, 120_000))


def sibling_dies(random: Random) -> Scenario:
    """The router sends the load of a dead replica here."""
    base, at = _loaded(random, 0.3, 0.65), random.uniform(500, 2000)
    assert base.rate is not None
    rate, more = base.rate(0), random.choice((2.0, 1.5, 1.33))
    back = at + random.uniform(120, 900)
    return replace(base, rate=lambda now: rate * (more if at <= now < back else 1.0))


def sglang_stale(random: Random) -> Scenario:
    """Gauges that are renewed every 5 to 30 s, with two decimals; tokens are counted when requests end."""
    base = _loaded(random, 0.6, 1.1, counts_at_end=True, reserve_ratio=0.1)
    return replace(
        base,
        facts=_facts(base.spec, engine="sglang"),
        stale_seconds=random.choice((5, 10, 30)),
        digits=2,
    )


def sglang_live(random: Random) -> Scenario:
    base = _loaded(random, 0.6, 1.15, reserve_ratio=0.1)
    return replace(base, facts=_facts(base.spec, engine="sglang"), digits=2)


def coarse_gauges(random: Random) -> Scenario:
    base = random.choice((many_long_chains, ramp))(random)
    return replace(base, facts=_facts(base.spec, engine="lmdeploy"), stale_seconds=10, digits=2)


def reserving(random: Random) -> Scenario:
    """An engine that sets aside the longest answer when it admits: it queues, and what it uses is what it reserved."""
    longest = random.choice((512, 1024, 2048))
    spec = _spec(random, rule="reserve", longest=longest)
    lengths = Lengths(prompt=800, chat=longest // 3, chat_sigma=0.6, most=longest)
    mean = rate_for(spec, lengths, random.uniform(0.25, 0.6))
    at, height = random.uniform(500, 1500), random.choice((1.0, 1.0, 1.5, 2.5))
    over = random.uniform(100, 600)
    return Scenario(
        spec=spec,
        facts=_facts(spec, engine="tgi"),
        lengths=lengths,
        rate=lambda now: mean * (1 + (height - 1) * min(1.0, max(0.0, (now - at) / over))),
    )


def llama_slots(random: Random) -> Scenario:
    """Four to eight slots over one cache: all running requests are refused when it is full."""
    slots = random.choice((4, 6, 8))
    spec = _spec(random, capacity=random.choice((16_384, 32_768, 65_536)), max_sequences=slots, rule="refuse")
    spec = replace(spec, speed=(0.02, 0.002, 1e-7), prefill_rate=1500.0)
    lengths = Lengths(
        prompt=400, chat=400, chains=0.3, chain=spec.capacity // (slots + 2), chain_sigma=0.6, most=65_536
    )
    rate = rate_for(replace(spec, speed=(0.03, 0.0, 0.0)), lengths, random.uniform(0.25, 0.7))
    return Scenario(spec=spec, facts=_facts(spec, engine="llama_cpp"), lengths=lengths, rate=_flat(rate))


def small_answers(random: Random) -> Scenario:
    """Clients ask for few tokens: nothing grows long, the pool moves with arrivals alone."""
    spec = _spec(random)
    lengths = Lengths(prompt=random.randrange(600, 3000), chat=120, chat_sigma=0.5, most=256)
    rate = rate_for(spec, lengths, random.uniform(0.3, 0.6))
    at, height, over = random.uniform(500, 1800), random.choice((1.0, 1.3, 1.7)), random.uniform(60, 600)
    return Scenario(
        spec=spec,
        facts=_facts(spec),
        lengths=lengths,
        rate=lambda now: rate * (1 + (height - 1) * min(1.0, max(0.0, (now - at) / over))),
    )


FAMILIES: dict[str, Family] = {
    family.__name__: family
    for family in (
        steady_low,
        steady_high,
        steady_edge,
        overload_step,
        ramp,
        diurnal,
        bursts,
        small_bursts,
        one_cohort,
        few_long_chains,
        many_long_chains,
        in_time,
        closed_loop,
        capped,
        capped_unknown,
        cap_not_reached,
        offline_batch,
        shared_prefix,
        agents,
        prefix_collapse,
        drift,
        cold_start,
        storm,
        hybrid_window,
        window_pool,
        state_pool,
        watermark,
        long_prompts,
        blind,
        clock_step,
        restart_loop,
        sleep_wake,
        adapter_stalls,
        smaller_rank,
        sibling_dies,
        sglang_stale,
        sglang_live,
        coarse_gauges,
        reserving,
        llama_slots,
        small_answers,
    )
}
