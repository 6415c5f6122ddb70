"""A paged KV pool in small, a tick a second: admission, chunked prefill, decoding, and what happens when it is full.

All decoding requests advance alike, so their tokens are kept as one sum and a clock of decoded tokens, and the next to
end is the first of a heap: a tick costs what arrives and ends, however many run. Speed of a sequence:
1 / (t0 + t1 R + t2 tokens held). Preempted last in, first out, to be computed again from the head of the queue
(vLLM); refused all together (llama.cpp); or never admitted before their longest fits (engines that reserve). Where
nothing that runs can fill the pool, the first request that has to wait for room is the shortage.
"""

import math
from collections import deque
from heapq import heappop, heappush
from typing import Literal

from msgspec import Struct

from agent.memory.signals import PoolSignal

BLOCK = 16
FullRule = Literal["preempt", "refuse", "reserve"]


class Spec(Struct, frozen=True, kw_only=True):
    """An engine and its pool. ``window``: tokens after which a share ``window_share`` of a sequence's KV stops growing.

    ``state_tokens``: what a sequence takes whatever its length, in place of its tokens. ``shared_prefix`` tokens of
    each prompt are held once. ``recounts_late``: seconds until a preemption is counted (vLLM counts it when the request
    is scheduled again). ``counts_at_end``: generated tokens are counted when a request ends.
    """

    capacity: int
    max_sequences: int = 256
    rule: FullRule = "preempt"
    watermark: float = 0.0
    reserve_ratio: float = 0.0
    longest: int = 32_768
    speed: tuple[float, float, float] = (0.018, 1.2e-4, 2.5e-8)
    prefill_rate: float = 20_000.0
    window: int | None = None
    window_share: float = 0.0
    state_tokens: int | None = None
    shared_prefix: int = 0
    counts_at_end: bool = False


class Request:
    """One request; ``started`` is the decode clock when its first token came, ``left`` prompt tokens to compute."""

    __slots__ = ("cached", "decoding", "ends", "generated", "left", "output", "prompt", "started", "state", "user")

    def __init__(self, prompt: int, output: int, *, cached: int = 0, user: int = -1) -> None:
        self.prompt, self.output, self.cached, self.user = prompt, max(1, output), min(cached, prompt - 1), user
        self.left = prompt - self.cached
        self.generated = 0
        self.started = self.ends = 0.0
        self.decoding = False
        self.state = "waiting"

    def __lt__(self, other: "Request") -> bool:
        return self.ends < other.ends


class Pool:
    """One pool from empty; ``tick`` moves it on by a second."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.ended: list[Request] = []  # in the last tick
        self.shortages = self.counted_shortages = 0
        self.prompt_tokens = self.prompt_hits = self.generation_tokens = 0
        self.finished = self.finished_prompt = self.finished_generation = 0
        self.stalled = False  # loading an adapter: nothing is decoded
        self._clock = 0.0
        self._decoding = 0
        self._base = 0.0  # sum over decoding requests of tokens held before the clock began
        self._prefilled = 0  # tokens of requests that are not decoding yet
        self._prefilling: deque[Request] = deque()
        self._heap: list[Request] = []
        self._windows: list[tuple[float, Request]] = []
        self._capped = 0.0  # by how much windows hold less than their sequences' tokens
        self._full_windows = 0
        self._reserved = 0
        self._again: list[tuple[float, int]] = []

    @property
    def used(self) -> float:
        """Tokens of the pool that are taken, block rounding included."""
        spec, held = self.spec, len(self.running)
        if not held:
            return 0.0
        if spec.state_tokens is not None:
            return float(spec.state_tokens * held)
        if spec.rule == "reserve":
            return float(self._reserved)
        tokens = self._base + self._decoding * self._clock + self._prefilled + held * (BLOCK / 2)
        if spec.window is not None:
            tokens -= spec.window_share * (self._capped + self._full_windows * self._clock)
        return tokens + spec.shared_prefix

    @property
    def held_generation(self) -> float:
        """Tokens that running requests have generated."""
        return sum(self._generated(one) for one in self.running)

    def _generated(self, one: Request) -> float:
        return one.generated + (self._clock - one.started if one.decoding else 0.0)

    def submit(self, request: Request) -> None:
        self.waiting.append(request)

    def tick(self, now: float) -> None:
        """One second ends at ``now``."""
        self.ended = []
        if not self.stalled:
            self._decode()
        self._finish()
        if self.used > self.spec.capacity:
            self._full(now)
        else:
            self._admit(now)
        self._prefill()
        while self._again and self._again[0][0] <= now:
            self.counted_shortages += self._again.pop(0)[1]

    def _decode(self) -> None:
        if self._decoding:
            t0, t1, t2 = self.spec.speed
            step = 1.0 / (t0 + t1 * len(self.running) + t2 * self.used)
            self._clock += step
            self.generation_tokens += round(step * self._decoding)
        while self._windows and self._windows[0][0] <= self._clock:
            at, one = heappop(self._windows)
            if one.state == "running":
                one.state = "full window"
                self._full_windows += 1
                self._capped -= at

    def _finish(self) -> None:
        while self._heap and self._heap[0].ends <= self._clock:
            one = heappop(self._heap)
            if one.state in ("running", "full window") and one.decoding:
                self._leave(one)
                self.finished += 1
                self.finished_prompt += one.prompt
                self.finished_generation += one.output
                self.ended.append(one)
                one.state = "ended"

    def _leave(self, one: Request) -> None:
        self.running.remove(one)
        self._reserved -= one.prompt + self.spec.longest if self.spec.rule == "reserve" else 0
        private = max(0, one.prompt - self.spec.shared_prefix)
        if one.decoding:
            self._decoding -= 1
            self._base -= private + one.generated - one.started
            if one.state == "full window":
                self._full_windows -= 1
                self._capped += self._window_at(one)
        else:
            self._prefilled -= max(0, one.prompt + one.generated - one.left - self.spec.shared_prefix)
            if one in self._prefilling:
                self._prefilling.remove(one)

    def _window_at(self, one: Request) -> float:
        """The decode clock at which its window is full; before it started where its prompt fills it."""
        assert self.spec.window is not None
        return one.started + self.spec.window - one.prompt - one.generated

    def _full(self, now: float) -> None:
        if self.spec.rule == "refuse":
            self.shortages += len(self.running)
            self.counted_shortages = self.shortages
            for one in list(self.running):
                self._leave(one)
                one.state = "refused"
                self.ended.append(one)
            return
        evicted = 0
        while self.used > self.spec.capacity and len(self.running) > 1:
            one = self.running[-1]
            generated = self._generated(one)
            self._leave(one)
            one.state, one.decoding = "waiting", False
            one.generated = int(generated)
            one.left = one.prompt + one.generated
            self.waiting.appendleft(one)
            evicted += 1
        self.shortages += evicted
        self._again.append((now + 1 + 3 * evicted, evicted))

    def _admit(self, now: float) -> None:
        spec = self.spec
        room = spec.capacity * (1 - spec.watermark if self.running else 1) - self.used
        if spec.rule != "reserve" and spec.state_tokens is None:
            room -= sum(one.left for one in self._prefilling)
        room -= spec.reserve_ratio * min(spec.longest, 4096) * len(self.running)
        while self.waiting and len(self.running) < spec.max_sequences:
            one = self.waiting[0]
            if spec.state_tokens is not None:
                needed = spec.state_tokens
            elif spec.rule == "reserve":
                needed = one.prompt + spec.longest
            else:
                needed = max(0, one.prompt + one.generated - spec.shared_prefix) + BLOCK
            if needed > room and (self.running or needed > spec.capacity):
                if (spec.rule == "reserve" or spec.state_tokens is not None) and not self.shortages:
                    self.shortages = self.counted_shortages = 1
                return
            room -= needed
            self.waiting.popleft()
            self.running.append(one)
            one.state = "running"
            self._reserved += needed if spec.rule == "reserve" else 0
            if not one.generated:
                self.prompt_hits += one.cached
            self._prefilling.append(one)
            self._prefilled += max(0, one.prompt + one.generated - one.left - spec.shared_prefix)

    def _prefill(self) -> None:
        budget = self.spec.prefill_rate
        while self._prefilling and budget > 0:
            one = self._prefilling[0]
            done = min(one.left, int(budget) + 1)
            before = max(0, one.prompt + one.generated - one.left - self.spec.shared_prefix)
            one.left -= done
            budget -= done
            after = max(0, one.prompt + one.generated - one.left - self.spec.shared_prefix)
            self._prefilled += after - before
            if one.left:
                return
            self._prefilling.popleft()
            self._prefilled -= after
            self._start(one)

    def _start(self, one: Request) -> None:
        if not one.generated:
            self.prompt_tokens += one.prompt
        one.decoding = True
        one.started = self._clock
        one.ends = self._clock + one.output - one.generated
        self._decoding += 1
        self._base += max(0, one.prompt - self.spec.shared_prefix) + one.generated - one.started
        heappush(self._heap, one)
        if self.spec.window is not None:
            heappush(self._windows, (self._window_at(one), one))

    def signal(self, at: float, *, digits: int | None = None) -> PoolSignal:
        """As an engine exports it now."""
        ratio = min(1.0, max(0.0, self.used / self.spec.capacity))
        at_end = self.spec.counts_at_end
        return PoolSignal(
            at=at,
            used_ratio=ratio if digits is None else math.floor(ratio * 10**digits) / 10**digits,
            capacity_tokens=self.spec.capacity,
            running=len(self.running),
            waiting=len(self.waiting),
            shortages=self.counted_shortages,
            prompt_tokens=self.finished_prompt if at_end else self.prompt_tokens,
            prompt_hits=self.prompt_hits,
            generation_tokens=self.finished_generation if at_end else self.generation_tokens,
            finished=self.finished,
            finished_prompt_tokens=None if at_end else self.finished_prompt,
            finished_generation_tokens=None if at_end else self.finished_generation,
        )
