"""The life of a simulated server: start, load phase by phase, serve, crash, start again; and of other processes."""

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random

from msgspec.structs import asdict, replace

from collectors.simulated.engine import Engine, Request
from collectors.simulated.memory import DeviceMemory
from collectors.simulated.sizing import MIB, PAGE_BYTES, Phase, allocator_sizes, phase_at, rank_sizes, whole_pages
from collectors.simulated.state import AllocatorState, HostProcess
from collectors.simulated.story import Arrival, Device, Length, Process, Server, ShortRequests

STEP_SECONDS = 0.1
RETRY_SECONDS = 20.0  # a server that did not get its memory is started again after so long


class Clock:
    """Simulated time in whole steps, and which moments of a story that may repeat are now."""

    def __init__(self, period_seconds: float | None) -> None:
        self.steps = 0
        self._period = None if period_seconds is None else _steps(period_seconds)

    @property
    def now(self) -> float:
        return self.steps * STEP_SECONDS

    def is_at(self, seconds: float) -> bool:
        """Whether the story's moment ``seconds`` is in this step."""
        since = self.steps - _steps(seconds)
        return since == 0 or (since > 0 and self._period is not None and since % self._period == 0)


class ServerLife:
    """One server of a scenario over all its starts. ``engine`` is there only while it serves."""

    def __init__(
        self,
        server: Server,
        devices: Sequence[Device],
        *,
        clock: Clock,
        memory: DeviceMemory,
        pids: Iterator[int],
        random: Random,
    ) -> None:
        self.server = server
        self.sizes = rank_sizes(server, devices)
        self._devices = devices
        self.phase: Phase | None = None  # None: not running
        self.engine: Engine | None = None
        self.started_at = 0.0
        self.serving_since = 0.0
        self._clock = clock
        self._memory = memory
        self._pids = pids
        self._random = random
        self._start_at = server.start_seconds
        self._processes: tuple[int, ...] = ()  # API server, engine core, then a worker per rank if there are several
        self._next_request_at = math.inf

    def step(self) -> None:
        """Live through one step that ends now."""
        for crash in self.server.crashes:
            if self.phase is not None and self._clock.is_at(crash.at_seconds):
                self._die(crash.restart_seconds)
                self._become(crash.engine_version or self.server.engine_version)
        if self.phase is None and self._clock.now >= self._start_at:
            self._start()
        if self.engine is not None:
            self._serve(self.engine)
        elif self.phase is not None:
            self._load()

    def host_processes(self, port: int, stamp: Callable[[float], float]) -> Iterator[HostProcess]:
        """The server's processes: the one that listens (once it does) and its descendants."""
        if self.phase is None:
            return
        api, core, *workers = self._processes
        started = stamp(self.started_at)
        command = self._command_line(port)
        if self.engine is not None:
            yield HostProcess(port=port, pid=api, started_at=started, title=command)
        else:
            yield HostProcess(parent=1, pid=api, started_at=started, title=command)
        yield HostProcess(parent=api, pid=core, started_at=started, title="VLLM::EngineCore")
        for rank, pid in enumerate(workers):
            yield HostProcess(parent=core, pid=pid, started_at=started, title=f"VLLM::Worker_TP{rank}")

    def allocators(self) -> Iterator[AllocatorState]:
        """What a probe inside each rank says, where the server has one."""
        if self.phase is None or not self.server.probe:
            return
        _, done = phase_at(self.server.loading, self._clock.now - self.started_at)
        busy = min(1.0, len(self.engine.running) / self.server.arguments.max_num_seqs) if self.engine else 0.0
        sizes = allocator_sizes(self.sizes, self.phase, done, busy)
        if sizes is None:
            return
        for device, pid in self._ranks:
            yield AllocatorState(index=device, pid=pid, **asdict(sizes))

    def _command_line(self, port: int) -> str:
        """As vLLM is started in the node's directory, where its model lies."""
        arguments = self.server.arguments
        names = f"models/{self.server.name} --served-model-name {self.server.model.name}"
        flags = {name.replace("_", "-"): value for name, value in asdict(arguments).items()}
        written = " ".join(f"--{name} {value}" for name, value in flags.items())
        return f"vllm serve {names} --host 127.0.0.1 --port {port} {written}"

    @property
    def _ranks(self) -> list[tuple[int, int]]:
        """(device, pid) of each rank: with one rank the engine core does the work itself."""
        return list(zip(self.server.devices, self._processes[2:] or self._processes[1:], strict=True))

    def _start(self) -> None:
        size = self.server.arguments.tensor_parallel_size
        self._processes = tuple(next(self._pids) for _ in range(2 if size == 1 else 2 + size))
        self.phase = "boot"
        self.started_at = self._clock.now

    def _die(self, restart_seconds: float) -> None:
        for _, pid in self._ranks:
            self._memory.bury(pid, self._clock.now)
        self.phase = None
        self.engine = None
        self._start_at = self._clock.now + restart_seconds

    def _become(self, version: str) -> None:
        """Be started as this version from now on; what it allocates may differ."""
        if version != self.server.engine_version:
            self.server = replace(self.server, engine_version=version)
            self.sizes = rank_sizes(self.server, self._devices)

    def _load(self) -> None:
        phase, done = phase_at(self.server.loading, self._clock.now - self.started_at)
        if self.phase == "context" and phase == "weights" and not self._has_requested_room():
            self._die(RETRY_SECONDS)
            return
        self.phase = phase
        size = self.sizes.held_bytes(phase, done)
        if size and not all(self._memory.claim(device, pid, size) for device, pid in self._ranks):
            self._die(RETRY_SECONDS)
        elif phase == "serving":
            self._open()

    def _has_requested_room(self) -> bool:
        """vLLM refuses to start where less is free than its memory fraction asks for."""
        needed = self.sizes.requested_bytes + self.sizes.context_bytes
        return all(self._memory.room(device, pid) >= needed for device, pid in self._ranks)

    def _open(self) -> None:
        arguments = self.server.arguments
        self.engine = Engine(
            blocks=self.sizes.blocks,
            block_size=arguments.block_size,
            max_model_len=arguments.max_model_len,
            max_num_seqs=arguments.max_num_seqs,
            decode_rate=self.server.decode_tokens_per_second,
            prefill_rate=self.server.prefill_tokens_per_second,
        )
        self.serving_since = self._clock.now
        short = self.server.workload.short_requests
        self._next_request_at = math.inf if short is None else self._clock.now + self._gap(short)

    def _serve(self, engine: Engine) -> None:
        workload = self.server.workload
        for arrival in (*workload.reasoning_chains, *workload.late_guests):
            if self._clock.is_at(arrival.start_seconds):
                self._submit(engine, arrival)
        while workload.short_requests is not None and self._next_request_at <= self._clock.now:
            engine.submit(self._short_request(workload.short_requests))
            self._next_request_at += self._gap(workload.short_requests)
        engine.step(self._clock.now, STEP_SECONDS)

    def _submit(self, engine: Engine, arrival: Arrival) -> None:
        for _ in range(arrival.count):
            prompt, output = arrival.prompt_tokens, arrival.output_tokens
            engine.submit(Request(prompt_tokens=prompt, output_tokens=output, arrived_at=self._clock.now))

    def _short_request(self, short: ShortRequests) -> Request:
        return Request(
            prompt_tokens=self._tokens(short.prompt_tokens),
            output_tokens=self._tokens(short.output_tokens),
            arrived_at=self._next_request_at,
        )

    def _gap(self, short: ShortRequests) -> float:
        return self._random.expovariate(short.requests_per_second)

    def _tokens(self, length: Length) -> int:
        drawn = self._random.lognormvariate(math.log(length.median), length.sigma)
        return max(1, min(length.maximum, int(drawn)))


class ProcessLife:
    """A process that is no server, over all its starts. One that asks for more than there is takes what there is."""

    def __init__(self, process: Process, *, clock: Clock, memory: DeviceMemory, pids: Iterator[int]) -> None:
        self._process = process
        self._clock = clock
        self._memory = memory
        self._pids = pids
        self._pid: int | None = None
        self._started_at = 0.0

    def step(self) -> None:
        """Live through one step that ends now."""
        if self._clock.is_at(self._process.start_seconds):
            self._pid = next(self._pids)
            self._started_at = self._clock.now
        if self._pid is None:
            return
        if self._clock.is_at(self._process.end_seconds):
            self._memory.bury(self._pid, self._clock.now)
            self._pid = None
            return
        self._grow(self._pid)

    def _grow(self, pid: int) -> None:
        device = self._process.device
        done = min(1.0, (self._clock.now - self._started_at) / self._process.ramp_seconds)
        wanted = whole_pages(self._process.mib * MIB * done)
        held = self._memory.held(device, pid)
        if wanted > held:
            room = self._memory.room(device, pid) // PAGE_BYTES * PAGE_BYTES
            self._memory.claim(device, pid, max(held, min(wanted, room)))


def _steps(seconds: float) -> int:
    return max(1, round(seconds / STEP_SECONDS))
