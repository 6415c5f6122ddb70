"""How much of a pool the running and coming requests will want: the mean, its spread, and when it is most.

S(a) is the share of answers that get longer than a tokens (``lengths``). With R running of mean age a, footprint
``own`` besides, speed v and growth share g:
  admitted(t) = R S(a + v t) / S(a) (own + g (a + v t))
  coming(t)   = rate x integral over 0..t of S(v s) (prompt + g v s) ds, for as many as the sequence limit lets in
Variance: binomial of the running, Poisson of the coming, what the rate itself is unsure about, and 1 % of the pool.
"""

import math

from msgspec import Struct

from agent.memory.running_set import Running

HORIZONS = (30.0, 60.0, 120.0, 180.0, 240.0, 300.0)


class Demand(Struct, frozen=True, kw_only=True):
    """Tokens wanted so many seconds from now."""

    seconds: float
    admitted: float
    mean: float
    sd: float


def demands(running: Running, capacity: int, *, longest: int | None = None) -> tuple[Demand, ...]:
    """What is wanted at each horizon."""
    one, survival = running, running.survival
    own, grow = one.held - one.growth_share * one.age, one.growth_share
    alive = survival(one.age)
    rate = max(one.arrivals, (one.arrivals + one.arrivals_before) / 2)
    found, before, integral, tokens, squares = [], 0.0, 0.0, 0.0, 0.0
    limit = math.inf if longest is None else max(one.held, float(longest))
    for at in HORIZONS:
        step = 2.0 * (at - before) / 4.0
        for part in (0.25, 0.75):
            s = before + part * (at - before)
            lives, size = survival(one.speed * s), min(limit, one.prompt + grow * one.speed * s)
            integral += step * lives
            tokens += step * lives * size
            squares += step * lives * size * size
        before = at
        stays = survival(one.age + one.speed * at) / alive
        length = min(limit, max(0.0, own) + grow * (one.age + one.speed * at))
        admitted = one.count * stays * length
        coming = rate * integral + one.waiting * survival(one.speed * at)
        let_in = _let_in(coming, one.count * stays, one.cap)
        share = let_in / coming if coming > 0 else 0.0
        queued = one.waiting * survival(one.speed * at) * (one.prompt + grow * one.speed * at)
        more = share * (rate * tokens + queued)
        counted = max(1.0, rate * 120.0)
        variance = one.count * stays * (1 - stays) * length * length + share * rate * squares
        variance += more * more / counted + (0.01 * capacity) ** 2
        found.append(Demand(seconds=at, admitted=admitted, mean=admitted + more, sd=math.sqrt(variance)))
    return tuple(found)


def _let_in(coming: float, staying: float, cap: int | None) -> float:
    return coming if cap is None else max(0.0, min(coming, cap - staying))
