"""A vLLM scheduler in small: paged KV pool, continuous batching in order of arrival, preemption by recompute.

The pool has one block that is never handed out (the null block), so usage = used / (blocks - 1). A running request that
finds no free block evicts the request that was admitted last, itself perhaps; that one goes to the head of the queue
with all its blocks freed, and is counted as a preemption only when it is scheduled again. (vLLM 0.32,
v1/core/sched/scheduler.py; a step here is many of its steps, so that hours take seconds.)
"""

import math
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

from collectors.simulated.sizing import blocks_of

LATENCIES: tuple[float, ...] = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
LATENCIES += (120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)
FIRST_TOKEN: tuple[float, ...] = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5)
FIRST_TOKEN += (10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
ITERATION = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)


class Histogram:
    """Counts per bucket, as Prometheus counts them: a value belongs to the first bound that is not below it."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


@dataclass(slots=True, eq=False)
class Request:
    """One request in the engine. ``prefill_left``: tokens still to be computed before the next one is generated."""

    prompt_tokens: int
    output_tokens: int
    arrived_at: float
    generated_tokens: int = 0
    blocks: int = 0
    prefill_left: int = 0
    evictions: int = 0
    is_prompt_counted: bool = False

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.generated_tokens


@dataclass(slots=True)
class Counters:
    """What the engine counts since its start; names as in its exposition."""

    preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    finished: int = 0
    request_prompt_tokens: Histogram = field(default_factory=lambda: Histogram(()))
    request_generation_tokens: Histogram = field(default_factory=lambda: Histogram(()))
    request_preemptions: Histogram = field(default_factory=lambda: Histogram((1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)))
    iteration_tokens: Histogram = field(default_factory=lambda: Histogram(ITERATION))
    time_to_first_token: Histogram = field(default_factory=lambda: Histogram(FIRST_TOKEN))
    queue_time: Histogram = field(default_factory=lambda: Histogram(LATENCIES))
    latency: Histogram = field(default_factory=lambda: Histogram(LATENCIES))


class Engine:
    """One engine from its first request to its death; ``step`` is the only thing that moves it."""

    def __init__(
        self,
        *,
        blocks: int,
        block_size: int,
        max_model_len: int,
        max_num_seqs: int,
        decode_rate: float,
        prefill_rate: float,
    ) -> None:
        self.blocks = blocks
        self.block_size = block_size
        self.max_model_len = max_model_len
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        bounds = _bounds_up_to(max_model_len)
        self.counters = Counters(request_prompt_tokens=Histogram(bounds), request_generation_tokens=Histogram(bounds))
        self._free_blocks = blocks - 1
        self._max_num_seqs = max_num_seqs
        self._decode_rate = decode_rate
        self._prefill_rate = prefill_rate
        self._tokens_due = 0.0
        self._prefill_due = 0.0

    @property
    def used_blocks(self) -> int:
        """Blocks held by running requests."""
        return self.blocks - 1 - self._free_blocks

    @property
    def usage(self) -> float:
        """Used share of the pool, as the engine reports it."""
        return 1 - self._free_blocks / (self.blocks - 1)

    def submit(self, request: Request) -> None:
        """Put a request at the end of the queue."""
        self.waiting.append(request)

    def step(self, now: float, seconds: float) -> None:
        """Let ``seconds`` of work end at time ``now``: decode, then admit unless room was short, then prefill."""
        self._tokens_due += self._decode_rate * seconds
        tokens = int(self._tokens_due)
        self._tokens_due -= tokens
        if not self._decode(tokens):
            self._admit(now)
        self._prefill(now, seconds)
        self._finish(now)

    def _decode(self, tokens: int) -> bool:
        """Give each running request up to ``tokens`` tokens; True if some request had to be evicted for it."""
        before = self.counters.generation_tokens
        evicted = False
        decoding = position = 0
        while position < len(self.running):
            request = self.running[position]
            position += 1
            if request.prefill_left:
                continue
            new = min(tokens, request.output_tokens - request.generated_tokens)
            needed = blocks_of(request.tokens + new, self.block_size) - request.blocks
            if needed > self._free_blocks:
                evicted = True
                if not self._make_room(needed, request):
                    break
            self._free_blocks -= needed
            request.blocks += needed
            request.generated_tokens += new
            self.counters.generation_tokens += new
            decoding += 1
        if decoding and tokens:
            self.counters.iteration_tokens.observe((self.counters.generation_tokens - before) / tokens, tokens)
        return evicted

    def _make_room(self, needed: int, request: Request) -> bool:
        """Evict from the end until ``needed`` blocks are free; False if ``request`` itself had to go."""
        while needed > self._free_blocks:
            victim = self.running.pop()
            self._free_blocks += victim.blocks
            victim.blocks = 0
            victim.prefill_left = 0
            victim.evictions += 1
            self.waiting.appendleft(victim)
            if victim is request:
                return False
        return True

    def _admit(self, now: float) -> None:
        """Start waiting requests in order while the head of the queue fits as a whole."""
        while self.waiting and len(self.running) < self._max_num_seqs:
            request = self.waiting[0]
            needed = blocks_of(request.tokens, self.block_size)
            if needed > self._free_blocks:
                return
            self.waiting.popleft()
            self._free_blocks -= needed
            request.blocks = needed
            request.prefill_left = request.tokens
            self.running.append(request)
            if request.evictions:
                self.counters.preemptions += 1
            else:
                self.counters.prefix_queries += request.prompt_tokens
                self.counters.queue_time.observe(now - request.arrived_at)

    def _prefill(self, now: float, seconds: float) -> None:
        """Share the step's prefill tokens in order of admission; a prompt counts once, when it is complete."""
        self._prefill_due = min(self._prefill_due, 1.0) + self._prefill_rate * seconds
        for request in self.running:
            if not request.prefill_left:
                continue
            done = min(request.prefill_left, int(self._prefill_due))
            request.prefill_left -= done
            self._prefill_due -= done
            if request.prefill_left:
                return
            if not request.is_prompt_counted:
                request.is_prompt_counted = True
                self.counters.prompt_tokens += request.prompt_tokens
                self.counters.time_to_first_token.observe(now - request.arrived_at)
                self.counters.iteration_tokens.observe(request.prompt_tokens)

    def _finish(self, now: float) -> None:
        finished = [request for request in self.running if request.generated_tokens >= request.output_tokens]
        if not finished:
            return
        self.running = [request for request in self.running if request.generated_tokens < request.output_tokens]
        for request in finished:
            self._free_blocks += request.blocks
            self.counters.finished += 1
            self.counters.request_prompt_tokens.observe(request.prompt_tokens)
            self.counters.request_generation_tokens.observe(request.generated_tokens)
            self.counters.request_preemptions.observe(request.evictions)
            self.counters.latency.observe(now - request.arrived_at)


def _bounds_up_to(maximum: int) -> tuple[float, ...]:
    """The bounds 1, 2, 5, 10 ... that vLLM gives its token histograms."""
    powers = range(int(math.log10(maximum)) + 1)
    return tuple(bound for power in powers for step in (1.0, 2.0, 5.0) if (bound := step * 10.0**power) <= maximum)
