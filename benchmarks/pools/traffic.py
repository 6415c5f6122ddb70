"""Who asks for what, and when: arrivals at a rate that may change, batches, users who think, and how long it gets."""

import math
from collections.abc import Callable
from random import Random

from msgspec import Struct

from benchmarks.pools.simulator import Request, Spec

Rate = Callable[[float], float]


class Lengths(Struct, frozen=True, kw_only=True):
    """Log-normal mixture: a share of reasoning chains among short answers. Medians in tokens."""

    prompt: int = 600
    prompt_sigma: float = 0.8
    prompt_most: int = 16_000
    chat: int = 250
    chat_sigma: float = 0.8
    chains: float = 0.0
    chain: int = 4000
    chain_sigma: float = 0.8
    most: int = 16_384
    cached: float = 0.0

    def draw(self, random: Random, *, longer: float = 1.0, cached: float | None = None) -> Request:
        """One request; outputs are ``longer`` times as long, and that share of its prompt is cached."""
        prompt = min(self.prompt_most, int(random.lognormvariate(math.log(self.prompt), self.prompt_sigma)) + 1)
        is_chain = random.random() < self.chains
        median, sigma = (self.chain, self.chain_sigma) if is_chain else (self.chat, self.chat_sigma)
        output = min(self.most, int(longer * random.lognormvariate(math.log(median), sigma)) + 1)
        return Request(prompt, output, cached=int(prompt * (self.cached if cached is None else cached)))


class Batch(Struct, frozen=True, kw_only=True):
    """So many requests at once."""

    at: float
    count: int
    lengths: Lengths


def rate_for(spec: Spec, lengths: Lengths, occupancy: float, *, longer: float = 1.0) -> float:
    """Arrivals per second that fill the pool on average to this share, at the speed of that load.

    tokens x seconds of a request = its output / speed x (prompt + half its output); Little's law gives the rate.
    """
    random = Random(1)
    draws = [lengths.draw(random, longer=longer) for _ in range(1500)]
    t0, t1, t2 = spec.speed
    steps = sum(one.output for one in draws) / len(draws)
    tokens = [max(0, one.prompt - spec.shared_prefix) for one in draws]
    area = sum(one.output * (own + one.output / 2) for one, own in zip(draws, tokens, strict=True)) / len(draws)
    rate = 0.0
    for _ in range(30):
        step = t0 + t1 * rate * steps * t0 + t2 * occupancy * spec.capacity
        running = rate * steps * step
        step = t0 + t1 * running + t2 * occupancy * spec.capacity
        rate = 0.5 * rate + 0.5 * occupancy * spec.capacity / (area * step)
    prompt = sum(one.left for one in draws) / len(draws)
    return min(rate, 0.8 * spec.prefill_rate / prompt)


class Users:
    """A closed loop: each user thinks, asks, waits for the answer, and asks again with all that was said before."""

    def __init__(self, count: int, *, think: float, lengths: Lengths, keeps: bool, random: Random) -> None:
        self._lengths, self._think, self._keeps, self._random = lengths, think, keeps, random
        self._next = [(random.expovariate(1 / think), user) for user in range(count)]
        self._said = [0] * count

    def due(self, now: float) -> list[Request]:
        """What is asked now."""
        found = []
        for at, user in [one for one in self._next if one[0] <= now]:
            self._next.remove((at, user))
            one = self._lengths.draw(self._random)
            said = self._said[user] if self._keeps else 0
            asked = Request(one.prompt + said, one.output, cached=said, user=user)
            found.append(asked)
        return found

    def answered(self, one: Request, now: float) -> None:
        if one.user < 0:
            return
        said = one.prompt + one.output
        self._said[one.user] = said if said < self._lengths.most else 0  # a new conversation
        self._next.append((now + self._random.expovariate(1 / self._think), one.user))
