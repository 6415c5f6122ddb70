"""The snapshot: the immutable result of one tick, shared by every reader; as JSON ``vramscope.snapshot/1``."""

from typing import Literal

from msgspec import Struct

from agent.memory.exhaustion import Outcome
from agent.memory.forecast import Cause
from agent.memory.levels import Level
from agent.memory.risk import HEADROOM_RATIO, Risk
from agent.memory.transients import Transient
from collectors.readings import (
    AdaptersReading,
    AllocatorBackend,
    Container,
    Evidence,
    FailureKind,
    HostMemory,
    MemoryKind,
    OffloadReading,
    PoolKind,
    RankLog,
    ServerState,
)

SCHEMA: Literal["vramscope.snapshot/1"] = "vramscope.snapshot/1"
WINDOWS = ("60s", "start")
FULL_RATIO = 0.9
"""Of its pool in use: below it one that ran out lately has room again."""
Bound = Literal["low", "likely", "high"]
BOUNDS: tuple[Bound, ...] = ("low", "likely", "high")


class Component(Struct, frozen=True, kw_only=True):
    """A named share of a device's memory. ``server`` is empty for the device's own shares; ``source`` says in words
    what it is from, ``age_seconds`` how old that is. ``budget_bytes`` is what it is to be beside: None until its server
    serves.
    """

    component: str
    server: str = ""
    bytes: int
    budget_bytes: int | None = None
    evidence: Evidence
    age_seconds: float
    source: str = ""


class BudgetLine(Struct, frozen=True, kw_only=True):
    """A prediction for a server on a device: ``bound`` is likely, or low and high where it is a range."""

    server: str
    component: str
    bound: Bound
    bytes: int


class AllocatorFigures(Struct, frozen=True, kw_only=True):
    """What PyTorch's allocator says of a rank from inside, by the probe's files; bytes, and counts since its start.

    ``active_lowest_bytes``: the least that was active since the rank has its pool. Split segments mean nothing where
    segments expand, and are None there.
    """

    age_seconds: float
    files: tuple[str, ...]
    torch_version: str | None
    backend: AllocatorBackend | None
    expandable_segments: bool | None
    fragmentation_ratio: float | None
    allocated_bytes: int | None
    active_bytes: int | None
    active_lowest_bytes: int | None
    active_peak_bytes: int | None
    reserved_bytes: int | None
    reserved_peak_bytes: int | None
    requested_bytes: int | None
    inactive_split_bytes: int | None
    private_pools_bytes: int | None
    parameters_bytes: int | None
    kv_tensors_bytes: int | None
    largest_free_block_bytes: int | None
    free_in_segments_bytes: int | None
    alloc_retries: int | None
    ooms: int | None
    device_allocs: int | None


class Rank(Struct, frozen=True, kw_only=True):
    """Which rank of a server sits on which device; rank numbers are None where only the device is known."""

    gpu: str
    uuid: str
    tp_rank: int | None
    pp_rank: int | None
    replica: str
    pool_bytes: dict[PoolKind, int] = {}
    allocator: AllocatorFigures | None = None


class Fragmentation(Struct, frozen=True, kw_only=True):
    """Two kinds, never one number. ``kv_block``: the share of handed-out KV slots that hold no token, with its bounds.

    ``allocator``: the share of what a rank's allocator holds of a device that is not active; measured, so the bounds
    are the value.
    """

    kind: Literal["allocator", "kv_block"]
    gpu: str | None = None
    server: str
    replica: str
    low: float
    likely: float | None
    high: float


class GpuHealth(Struct, frozen=True, kw_only=True):
    """The hardware behind a device: that of the whole GPU, ``gpu`` its index, also for a MIG instance.

    ``xids``: errors that the driver reported since the agent's start, by number. A feature the GPU lacks is None.
    """

    gpu: str
    lost: bool
    ecc_uncorrected: int | None = None
    row_remap_pending: bool | None = None
    row_remap_failure: bool | None = None
    xids: dict[int, int] = {}


class ExhaustionSeconds(Struct, frozen=True, kw_only=True):
    """Time left: ``likely``, and ``early`` were growth as fast as it may be. 0 while exhausted; None: not foreseen."""

    likely: float | None
    early: float | None


class Chains(Struct, frozen=True, kw_only=True):
    """Tokens of running sequences; ``few`` of them hold ``few_ratio`` of what all hold, where lengths are told.

    ``long_ratio``: at least so much of what running requests have added to the pool is in ones that are longer than
    ``short_tokens``, within which nine in ten that ended had stayed; where the engine tells both.
    """

    mean_tokens: float
    growth_tokens_per_second: float  # of one of them
    longest_tokens: int | None = None
    few: int | None = None
    few_ratio: float | None = None
    short_tokens: int | None = None
    long_ratio: float | None = None


class PoolForecast(Struct, frozen=True, kw_only=True):
    """How a pool goes on. ``outcome``: what happens when it is full; ``cause``: what weighs most.

    ``admitted_ratio``: the most that requests which run already will hold, by how long such requests get.
    ``queue_at_limit``: requests wait for the sequence limit and not for room.
    """

    exhaustion_seconds: ExhaustionSeconds
    cause: Cause
    outcome: Outcome
    level: Level
    exhausted: bool
    probability_2min: float | None
    probability_5min: float | None
    admitted_ratio: float | None
    queue_at_limit: bool
    max_sequences: int | None
    shortages_per_minute: float | None
    chains: Chains | None
    age_seconds: float


class DeviceForecast(Struct, frozen=True, kw_only=True):
    """Memory outside the KV pools that is known to grow. ``cause``: whose, in words.

    ``room_bytes`` is what may be filled before only the ``reserve_bytes`` for temporaries are left; ``by_owner``: bytes
    an hour of a server, or of a component of the device's own.
    """

    exhaustion_seconds: ExhaustionSeconds
    cause: str
    bytes_per_hour: float
    deviation_bytes_per_hour: float
    rise_bytes: int
    room_bytes: int
    reserve_bytes: int
    transient_seen_bytes: int | None
    by_owner: dict[str, float]


class MemoryStep(Struct, frozen=True, kw_only=True):
    """Memory outside the KV pools that came or went at once and stayed so. ``owner``: as in ``by_owner``."""

    age_seconds: float
    owner: str
    bytes: int


class DeviceProcess(Struct, frozen=True, kw_only=True):
    """What the driver says that a process holds; ``name`` is empty where it is not known."""

    pid: int
    name: str
    bytes: int


class Device(Struct, frozen=True, kw_only=True):
    """One device. ``components`` sum to ``total_bytes`` exactly, or are empty when there is no reading.

    ``gpu`` is its unique short name: the index, index:instance for a MIG instance, the UUID for a GPU that is gone and
    whose index another has now.
    """

    uuid: str
    gpu: str
    index: int
    name: str | None
    driver: str | None
    memory_kind: MemoryKind
    total_bytes: int | None = None
    free_bytes: int | None = None
    age_seconds: float | None = None
    headroom_ratio: float | None = None
    components: tuple[Component, ...] = ()
    budget: tuple[BudgetLine, ...] = ()
    overattributed_bytes: dict[str, int] = {}  # by server, "" for the device's own shares
    unexplained_bytes: dict[str, int] = {}
    transients: dict[str, Transient] = {}  # by server
    used_max_bytes: dict[str, int] = {}  # by window: 60s, start
    free_min_bytes: dict[str, int] = {}
    health: GpuHealth | None = None
    notes: tuple[str, ...] = ()  # what to know about these figures, one sentence each
    forecast: DeviceForecast | None = None
    steps: tuple[MemoryStep, ...] = ()
    risk: Risk | None = None
    processes: tuple[DeviceProcess, ...] = ()  # only where the agent was asked for them


class Pool(Struct, frozen=True, kw_only=True):
    """One KV pool of one replica. Bytes are of one rank: the smallest decides."""

    replica: str
    kind: PoolKind
    capacity_tokens: int | None
    used_tokens: int | None
    cached_tokens: int | None
    free_tokens: int | None
    available_tokens: int | None
    used_ratio: float | None
    pool_bytes: int | None
    bytes_per_token: int | float | None
    block_size: int | None
    growth_tokens_per_second: float | None
    reserved_tokens: int | None = None
    forecast: PoolForecast | None = None


class Requests(Struct, frozen=True, kw_only=True):
    running: int | None
    waiting: int | None


class Counters(Struct, frozen=True, kw_only=True):
    """Since the engine's start; None is not exported by the engine. ``refusals``: since they are watched for."""

    preemptions: int | None
    prompt_tokens: int | None
    generation_tokens: int | None
    prefix_hit_tokens: int | None = None
    prefix_query_tokens: int | None = None
    refusals: int | None = None
    first_tokens: int | None = None
    first_token_seconds: float | None = None


class Replica(Struct, frozen=True, kw_only=True):
    """``multimodal_hits`` of ``multimodal_queries`` were found in a cache in host memory."""

    replica: str
    requests: Requests
    counters: Counters
    multimodal_queries: int | None = None
    multimodal_hits: int | None = None


class Failure(Struct, frozen=True, kw_only=True):
    """Memory that ran out, as the log said it; ``figures`` are the line's own, in bytes where their names say so."""

    kind: FailureKind
    age_seconds: float
    figures: dict[str, int] = {}


class Log(Struct, frozen=True, kw_only=True):
    """What a server's log says: sizes of the newest start by rank, failures by kind since it is followed."""

    version: str | None
    ready: bool
    age_seconds: float
    ranks: tuple[RankLog, ...] = ()
    failures: dict[FailureKind, int] = {}
    last_failure: Failure | None = None


class Moved(Struct, frozen=True, kw_only=True):
    """A component of a server on a device in the run before and in this one."""

    gpu: str
    uuid: str
    component: str
    before_bytes: int
    after_bytes: int
    delta_bytes: int


class Upgrade(Struct, frozen=True, kw_only=True):
    """The present run of a server beside the one before, each as it lay still; times are wall clock.

    ``since`` is the start of the later run, ``causes`` what is known to differ, ``summary`` all of it in one line.
    ``kv_pool`` is the whole pool.
    """

    from_version: str | None
    to_version: str | None
    since: float | None
    from_settled_at: float
    to_settled_at: float
    from_capacity_tokens: int | None
    to_capacity_tokens: int | None
    components: tuple[Moved, ...]
    causes: tuple[str, ...]
    summary: str


class Server(Struct, frozen=True, kw_only=True):
    """One inference server. ``requests`` and ``counters`` sum its replicas."""

    name: str
    engine: str | None
    version: str | None
    url: str
    model: str | None
    state: ServerState
    age_seconds: float | None
    started_at: float | None
    restarts: int
    configured: bool = True  # named in the settings, or found only
    model_path: str | None = None
    arguments: dict[str, int | float | str | bool | tuple[int, ...]] = {}  # given, on its command line, or reported
    pids: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    ranks: tuple[Rank, ...] = ()
    pools: tuple[Pool, ...] = ()
    replicas: tuple[Replica, ...] = ()
    requests: Requests
    counters: Counters
    fragmentation: tuple[Fragmentation, ...] = ()
    offload: tuple[OffloadReading, ...] = ()  # KV beside the devices, in none of their components
    adapters: tuple[AdaptersReading, ...] = ()
    log: Log | None = None
    host_oom_kills: int | None = None  # in its control groups, since it is watched
    container: Container | None = None
    budget_fits: bool | None = None
    max_request_tokens: int | None = None
    max_request_bytes: int | None = None
    notes: tuple[str, ...] = ()
    upgrade: Upgrade | None = None
    risk: Risk | None = None


class Collector(Struct, frozen=True, kw_only=True):
    """The health of one source. ``failures`` counts by reason since the agent's start."""

    name: str
    target: str
    success: bool
    age_seconds: float | None
    error: str | None
    duration_seconds: float | None
    last_success_at: float | None  # wall clock
    failures: dict[str, int] = {}


class Reload(Struct, frozen=True, kw_only=True):
    """The last reload of the settings; ``at`` is the wall clock of the last that succeeded."""

    success: bool
    at: float | None


class Recorder(Struct, frozen=True, kw_only=True):
    """The flight recorder: readings that did not get onto the disk, and recordings kept, since the agent's start."""

    dropped: int
    bundles: int


class Recording(Struct, frozen=True, kw_only=True):
    """The recording that this is of: its file, when it begins (wall clock), and how many seconds of it go by in one."""

    file: str
    started_at: float
    speed: float | None = None


class Thresholds(Struct, frozen=True, kw_only=True):
    """What figures are judged by, as the settings say."""

    headroom_ratio: float = HEADROOM_RATIO


class Snapshot(Struct, frozen=True, kw_only=True):
    """One tick. ``time`` is wall clock, seconds since the epoch."""

    schema: str = SCHEMA
    time: float
    version: str
    devices: tuple[Device, ...] = ()
    host_memory: HostMemory | None = None  # where a device shares it
    servers: tuple[Server, ...] = ()
    collectors: tuple[Collector, ...] = ()
    reload: Reload | None = None
    web_config_current: bool = True  # in force as its files are now
    simulated: bool = False  # its driver and processes are a demo's
    pace: float = 1.0  # seconds of the node's life in one of the clock; growth and forecasts are in the former
    thresholds: Thresholds = Thresholds()
    recorder: Recorder | None = None
    recording: Recording | None = None  # of which this is; None where it is of this host, now
