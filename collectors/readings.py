"""Frozen values that collectors hand to the core: what was read and when, nothing else.

Bytes are ``int``, durations and times ``float`` seconds, ratios 0-1. ``at`` is the host's monotonic clock at the moment
of the reading. ``None`` means not known; a value that was not read is never filled in.
"""

from typing import Any, Literal

from msgspec import Struct

Evidence = Literal["measured", "reported", "computed"]
MemoryKind = Literal["device", "unified", "mig"]
PoolKind = Literal["full", "window", "state"]
Tier = Literal["host", "disk", "remote"]
ServerState = Literal["loading", "serving", "sleeping", "down"]


class Fault(Struct, frozen=True, kw_only=True):
    """Why something could not be read: ``reason`` is a short word fit for a label, ``message`` one sentence."""

    reason: str
    message: str


class MemoryReading(Struct, frozen=True, kw_only=True):
    """One answer about a device's memory: the driver's, or the host's own figures where the device shares its memory.

    ``reserved_bytes`` is None where only the old (v1) call answers. ``used_max_bytes`` is the most that was used
    (total - free) since the reading before, where there were looks in between.
    """

    at: float
    total_bytes: int
    free_bytes: int
    reserved_bytes: int | None = None
    used_max_bytes: int | None = None


class ProcessMemory(Struct, frozen=True, kw_only=True):
    """One process on a device, merged over compute, graphics and MPS lists; None: the driver hides its bytes.

    ``name`` is that of its program, empty where it is not known; None: nobody asks for series of processes.
    """

    pid: int
    used_bytes: int | None = None
    name: str | None = None


class ProcessesReading(Struct, frozen=True, kw_only=True):
    """The processes the driver showed at one moment; an empty list is a real answer (another pid namespace)."""

    at: float
    processes: tuple[ProcessMemory, ...]


class DeviceHealth(Struct, frozen=True, kw_only=True):
    """What a GPU says about its memory cells. A GPU without the feature (no ECC, no row remapping) has None."""

    at: float
    ecc_uncorrected: int | None = None  # since the driver was loaded
    row_remap_pending: bool | None = None
    row_remap_failure: bool | None = None


class XidEvent(Struct, frozen=True, kw_only=True):
    """An error that the driver reported: ``uuid`` of the whole GPU, ``xid`` a number of NVIDIA's catalogue."""

    uuid: str
    xid: int


class DeviceReading(Struct, frozen=True, kw_only=True):
    """What one device answered. A part that failed is None and its fault says why.

    An empty list of processes that can't be the whole truth has a fault too.

    A MIG GPU instance is a device of its own: ``index`` and ``parent_uuid`` are those of the GPU it is part of,
    ``instance`` its id there. ``numa_node`` is set where the operating system uses the device's memory as its own;
    ``addressing`` is HMM or ATS where the device shares the host's page tables.
    ``health`` and ``events`` (whether Xid events are listened for) are of the whole GPU.
    ``memory_duration_seconds`` and ``processes_duration_seconds``: how long the driver took to answer or to fail.
    """

    index: int
    instance: int | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    name: str | None = None
    bus_id: str | None = None
    memory_kind: MemoryKind = "device"
    numa_node: int | None = None
    addressing: str | None = None
    memory: MemoryReading | None = None
    memory_fault: Fault | None = None
    processes: ProcessesReading | None = None
    processes_fault: Fault | None = None
    health: DeviceHealth | None = None
    events: bool = False
    memory_duration_seconds: float | None = None
    processes_duration_seconds: float | None = None

    @property
    def gpu(self) -> str:
        """What people call it: its index, and for a MIG instance index:instance."""
        return str(self.index) if self.instance is None else f"{self.index}:{self.instance}"

    @property
    def gpu_uuid(self) -> str | None:
        """The UUID of the whole GPU."""
        return self.parent_uuid or self.uuid


class HostMemory(Struct, frozen=True, kw_only=True):
    """The host's memory. ``pressure_seconds``: time that tasks waited for memory since boot, by kind (some, full)."""

    total_bytes: int
    available_bytes: int
    pressure_seconds: dict[str, float] = {}


class NodeReading(Struct, frozen=True, kw_only=True):
    """One pass over all devices of the host. ``host_memory`` is read where a device shares it.

    ``xids`` are the errors that the driver reported since the pass before. ``duration_seconds``: of the pass.
    """

    at: float
    driver_version: str | None
    devices: tuple[DeviceReading, ...]
    host_memory: HostMemory | None = None
    xids: tuple[XidEvent, ...] = ()
    duration_seconds: float | None = None


class ServerProcess(Struct, frozen=True, kw_only=True):
    """One process of a server. ``title`` is its command line as shown now; (pid, started_at) survives pid reuse."""

    pid: int
    started_at: float
    title: str


class ProcessTree(Struct, frozen=True, kw_only=True):
    """The process that listens on a server's port, first, and all its descendants."""

    at: float
    processes: tuple[ServerProcess, ...]


class RankTitle(Struct, frozen=True, kw_only=True):
    """A rank as a process title names it; a part that the title leaves out is 0, as the engines mean it."""

    tp_rank: int
    pp_rank: int
    replica: str


class FoundServer(Struct, frozen=True, kw_only=True):
    """An inference server found among the processes of this host.

    ``url`` is where it answers, None until one of its own processes listens. ``arguments`` are flags of its command
    line under the engine's own names; ``model`` is a path we can read. ``network_pid``: a process of its network
    namespace, where that is not ours. ``notes`` say what is not known and which privilege would make it known.
    """

    engine: str
    tree: ProcessTree
    started_at: float
    listening: bool = False
    host: str | None = None
    port: int | None = None
    url: str | None = None
    arguments: dict[str, int | float | str | bool] = {}
    version: str | None = None
    model: str | None = None
    served_name: str | None = None
    network_pid: int | None = None
    notes: tuple[str, ...] = ()


class PoolReading(Struct, frozen=True, kw_only=True):
    """One KV pool as the engine reports it, in tokens and blocks of one rank.

    ``used`` is held by live requests. An engine that tells reusable from empty room gives ``cached`` and ``free``; one
    that does not gives ``available`` (their sum). ``blocks`` includes blocks the engine keeps for itself. The tokens of
    a ``state`` pool are states. ``pool_bytes`` is what the engine says of one rank's whole pool. ``reserved_tokens``:
    set aside for the longest that live requests may become, by an engine that does not tell how much is written.
    """

    replica: str
    kind: PoolKind = "full"
    used_ratio: float | None = None
    capacity_tokens: int | None = None
    used_tokens: int | None = None
    cached_tokens: int | None = None
    free_tokens: int | None = None
    available_tokens: int | None = None
    blocks: int | None = None
    used_blocks: int | None = None
    block_size_tokens: int | None = None
    capacity_is_estimate: bool = False
    pool_bytes: int | None = None
    reserved_tokens: int | None = None


class ReplicaReading(Struct, frozen=True, kw_only=True):
    """Requests and counters of one data-parallel replica. Counters are since the engine's start.

    ``preemptions``: requests that lost their KV and are computed again (SGLang: retracted). ``waiting`` includes what
    an engine calls queued or deferred. ``first_token_seconds`` sums the times to the first token of ``first_tokens``
    requests. ``refusals``: requests that failed for want of KV, as far as they were seen. ``finished_*``: tokens of the
    ``finished`` requests, where ``prompt_tokens`` and ``generation_tokens`` count those that run as well.
    ``sequence_tokens``: what each running request holds. ``multimodal_hits`` of
    ``multimodal_queries`` images, sounds or films were found in a cache that the engine keeps in host memory.
    """

    replica: str
    running_requests: int | None = None
    waiting_requests: int | None = None
    preemptions: int | None = None
    refusals: int | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    finished: int | None = None
    finished_prompt_tokens: int | None = None
    finished_generation_tokens: int | None = None
    sequence_tokens: tuple[int, ...] | None = None
    prefix_hit_tokens: int | None = None
    prefix_query_tokens: int | None = None
    first_tokens: int | None = None
    first_token_seconds: float | None = None
    multimodal_queries: int | None = None
    multimodal_hits: int | None = None


class OffloadReading(Struct, frozen=True, kw_only=True):
    """KV that a replica keeps beside its devices: no part of a pool, and of no device's components.

    ``by``: what keeps it, in the engine's own word. ``replica`` is None where one stands for the whole server. The
    tokens of a ``state`` are states. Used is what is held or pinned; what may be overwritten counts where the engine
    counts it.
    """

    by: str
    tier: Tier
    replica: str | None = None
    kind: PoolKind = "full"
    used_ratio: float | None = None
    capacity_bytes: int | None = None
    used_bytes: int | None = None
    capacity_tokens: int | None = None
    used_tokens: int | None = None
    capacity_blocks: int | None = None
    used_blocks: int | None = None


class AdaptersReading(Struct, frozen=True, kw_only=True):
    """LoRA adapters of a replica, None: of the whole server. ``slots``: how many one step may use, ``used_slots`` does.

    ``running`` and ``waiting`` name those of requests, where the engine does; the first sixteen of each.
    """

    replica: str | None = None
    slots: int | None = None
    used_slots: int | None = None
    running: tuple[str, ...] | None = None
    waiting: tuple[str, ...] | None = None


class RankReport(Struct, frozen=True, kw_only=True):
    """Bytes of memory that an engine itself reports for a rank; ranks are alike where numbers are None."""

    replica: str = "0"
    tp_rank: int | None = None
    pp_rank: int | None = None
    weights_bytes: int | None = None
    cuda_graphs_bytes: int | None = None


class ServerReading(Struct, frozen=True, kw_only=True):
    """What a server's endpoints said at one moment. ``arguments`` uses the names of ``agent.memory.arguments``.

    ``layers_on_devices``: where the engine keeps others in host memory; the head counts as a layer.
    ``may_be_released``: it can give memory back on request, does not compute now, and does not tell what it has given.
    ``loaded_beside``: what it loaded on top of its model and says no bytes of, such as a draft model.
    ``figures_at``: from when its figures are, where the engine renews them more seldom than they are read; None: now,
    or not known, which a note says.
    """

    at: float
    figures_at: float | None = None
    engine: str
    state: ServerState
    version: str | None = None
    model: str | None = None
    started_at: float | None = None  # wall clock
    pools: tuple[PoolReading, ...] = ()
    replicas: tuple[ReplicaReading, ...] = ()
    ranks: tuple[RankReport, ...] = ()
    offload: tuple[OffloadReading, ...] = ()
    adapters: tuple[AdaptersReading, ...] = ()
    layers_on_devices: int | None = None
    loaded_beside: tuple[str, ...] = ()
    may_be_released: bool = False
    arguments: dict[str, int | float | str | bool] = {}
    notes: tuple[str, ...] = ()  # what could not be read, one sentence each


class ModelFiles(Struct, frozen=True, kw_only=True):
    """A model on disk: its config and what the checkpoint's own index or headers say about bytes.

    ``tensor_bytes`` sums all tensors of the checkpoint. With headers (safetensors, GGUF) the sum is also known per
    decoder layer (``layer_bytes[i]``, extra layers such as multi-token prediction included) and outside them by module
    name. A GGUF file has no config: its metadata stands under a config's names. ``config_path`` is the file it is in.
    ``built``: what was fixed when an engine was built from it, by names of ``agent.memory.arguments``; ``rank_bytes``
    are those of its file for each rank.
    """

    path: str
    config: dict[str, Any]
    config_path: str | None = None
    tensor_bytes: int | None = None
    tensor_source: Literal["headers", "index"] | None = None
    layer_bytes: tuple[int, ...] | None = None
    other_bytes: dict[str, int] = {}
    bytes_by_dtype: dict[str, int] = {}
    built: dict[str, int | str] = {}
    rank_bytes: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


FailureKind = Literal[
    "cuda_oom", "no_cache_blocks", "capture_failed", "context_refused", "start_refused", "kv_pool_full"
]


class RankLog(Struct, frozen=True, kw_only=True):
    """What a log says of one rank, or where it tells devices and no ranks, of the process's n-th device.

    ``activations_bytes`` are held all the time; ``activation_peak_bytes`` is the most that a trial run needed.
    """

    rank: RankTitle | None = None
    device: int | None = None
    weights_bytes: int | None = None
    kv_pool_bytes: int | None = None
    state_bytes: int | None = None
    cuda_graphs_bytes: int | None = None
    activations_bytes: int | None = None
    activation_peak_bytes: int | None = None
    non_torch_bytes: int | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None


class LogFailure(Struct, frozen=True, kw_only=True):
    """Memory that ran out; ``figures`` are those of the line, in bytes where they say so. ``at``: when it was read."""

    kind: FailureKind
    at: float
    figures: dict[str, int] = {}


class LogReading(Struct, frozen=True, kw_only=True):
    """What a server's log says by now: of the newest start, and what failed while the log was followed.

    ``ready``: the start is over. ``several_models``: the sizes are of the model that was loaded last.
    ``from_free_memory``: weights and graphs are what the device had less free then, its neighbours' doings included.
    ``port``: of the process that has loaded it, where models come and go. ``first_speaks``: of a node's ranks the first
    may say for all what they hold alike. ``hint``: what to do where it says nothing.
    """

    at: float
    engine: str
    version: str | None = None
    ready: bool = False
    several_models: bool = False
    port: int | None = None
    first_speaks: bool = False
    from_free_memory: bool = False
    hint: str | None = None
    ranks: tuple[RankLog, ...] = ()
    failures: dict[FailureKind, int] = {}
    last_failure: LogFailure | None = None


class Container(Struct, frozen=True, kw_only=True):
    """Where a process lives: its container by runtime and id, its pod, or its systemd unit, as far as known."""

    runtime: str | None = None
    id: str | None = None
    name: str | None = None
    pod: str | None = None
    pod_uid: str | None = None
    namespace: str | None = None
    unit: str | None = None


class HostKills(Struct, frozen=True, kw_only=True):
    """How many processes of a control group the host killed for want of memory; ``group`` tells it from a later one."""

    group: int
    count: int


class Home(Struct, frozen=True, kw_only=True):
    """A server's first process from outside: what it is in, and where its output goes: files, or ``journald:UNIT``."""

    container: Container | None = None
    logs: tuple[str, ...] = ()
    kills: HostKills | None = None


AllocatorBackend = Literal["native", "cudaMallocAsync", "other"]


class ProbeReading(Struct, frozen=True, kw_only=True):
    """Statistics of PyTorch's allocator for one process on one device, written by a probe inside that process.

    ``pid`` is None where only the file is known, not whose it is. ``at`` is when it was written; after
    ``lasts_seconds`` it is old. ``number`` is the device's in that process, ``uuid_digits`` the 32 of its UUID. Bytes
    are of the whole process on the device; ``active`` counts what is freed but still awaited by a stream, ``reserved``
    all that is held from the driver, ``private_pools`` what of it CUDA graphs and others keep apart. ``parameters`` and
    ``kv_tensors`` are what the server itself tells. ``alloc_retries``, ``ooms`` and ``device_allocs`` count since the
    process began.
    """

    pid: int | None
    at: float
    lasts_seconds: float
    file: str
    number: int
    uuid_digits: str | None = None
    torch_version: str | None = None
    expandable_segments: bool | None = None
    backend: AllocatorBackend | None = None
    allocated_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    active_bytes: int | None = None
    active_peak_bytes: int | None = None
    reserved_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    requested_bytes: int | None = None
    inactive_split_bytes: int | None = None
    private_pools_bytes: int | None = None
    parameters_bytes: int | None = None
    kv_tensors_bytes: int | None = None
    largest_free_block_bytes: int | None = None
    free_in_segments_bytes: int | None = None
    alloc_retries: int | None = None
    ooms: int | None = None
    device_allocs: int | None = None
