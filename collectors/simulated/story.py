"""What a simulated node has and what happens on it: the records that ``scenario`` reads from YAML and checks.

Times are simulated seconds since the start, sizes MiB (as ``nvidia-smi`` prints them) or bytes where the name says so.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

Count = Annotated[int, Meta(gt=0, le=2**53)]
Size = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Duration = Annotated[float, Meta(gt=0, le=1e9)]
Rate = Annotated[float, Meta(gt=0, le=1e6)]
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*\Z", max_length=100)]
FolderName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z", max_length=100)]
Version = Annotated[str, Meta(pattern=r"^\d{1,4}\.\d{1,4}\.\d{1,4}[A-Za-z0-9.+-]*\Z", max_length=100)]
Line = Annotated[str, Meta(pattern=r"^[^\r\n]+\Z", max_length=200)]


class _Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of a scenario file: a key that isn't known is an error."""


class Device(_Record, frozen=True, kw_only=True):
    """One GPU: total and reserved memory as its driver states them."""

    uuid: Word
    name: Line
    total_mib: Count
    reserved_mib: Size


class Model(_Record, frozen=True, kw_only=True):
    """What is served: ``config`` becomes config.json, ``total_size`` the checkpoint's bytes in its index.

    ``kv_bytes_per_token`` is what one rank stores for a token; it is stated, so that a prediction made from ``config``
    is checked against it instead of against itself.
    """

    name: Line
    total_size: Count
    kv_bytes_per_token: Count
    config: dict[str, Any]


class Arguments(_Record, frozen=True, kw_only=True):
    """The engine's arguments that matter for memory, under the engine's own names."""

    gpu_memory_utilization: Annotated[float, Meta(gt=0, le=1)] = 0.92
    tensor_parallel_size: Count = 1
    block_size: Count = 16
    max_model_len: Count
    max_num_seqs: Count = 1024


class Overheads(_Record, frozen=True, kw_only=True):
    """What a rank holds beside weights and KV. Context and communication lie outside the engine's memory fraction."""

    context_mib: Count = 518
    communication_mib: Size = 0
    activations_mib: Size = 1024
    graphs_mib: Size = 420


class Loading(_Record, frozen=True, kw_only=True):
    """How long each phase of a start takes, in the order in which they happen."""

    boot_seconds: Duration = 6.0
    context_seconds: Duration = 3.0
    weights_seconds: Duration = 40.0
    profiling_seconds: Duration = 8.0
    pool_seconds: Duration = 3.0
    graphs_seconds: Duration = 18.0


class Length(_Record, frozen=True, kw_only=True):
    """A log-normal number of tokens, cut at ``maximum``."""

    median: Count
    sigma: Annotated[float, Meta(ge=0, le=5)] = 0.0
    maximum: Count


class ShortRequests(_Record, frozen=True, kw_only=True):
    """Poisson arrivals for as long as the server serves."""

    requests_per_second: Rate
    prompt_tokens: Length
    output_tokens: Length


class Arrival(_Record, frozen=True, kw_only=True):
    """Requests of given length that arrive together."""

    start_seconds: Seconds
    count: Count = 1
    prompt_tokens: Count
    output_tokens: Count


class Workload(_Record, frozen=True, kw_only=True):
    """What clients ask for. A long reasoning chain and a late guest differ only in length and in the part they play."""

    short_requests: ShortRequests | None = None
    reasoning_chains: tuple[Arrival, ...] = ()
    late_guests: tuple[Arrival, ...] = ()


class Crash(_Record, frozen=True, kw_only=True):
    """The server dies and is started again ``restart_seconds`` later, as another version where one is given."""

    at_seconds: Duration
    restart_seconds: Duration = 15.0
    engine_version: Version | None = None


class Server(_Record, frozen=True, kw_only=True):
    """One vLLM server; rank i of its tensor-parallel group runs on ``devices[i]``.

    Every running request gets ``decode_tokens_per_second``; prompts share ``prefill_tokens_per_second``. With a
    ``probe`` its ranks tell what their allocators hold.
    """

    name: FolderName
    engine_version: Version = "0.32.0"
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    devices: tuple[Size, ...] = (0,)
    start_seconds: Seconds = 0.0
    model: Model
    arguments: Arguments
    overheads: Overheads = Overheads()
    loading: Loading = Loading()
    decode_tokens_per_second: Rate = 60.0
    prefill_tokens_per_second: Rate = 20000.0
    workload: Workload = Workload()
    crashes: tuple[Crash, ...] = ()
    probe: bool = False


class Process(_Record, frozen=True, kw_only=True):
    """A process that is no server: takes ``mib`` over ``ramp_seconds`` and gives all back at ``end_seconds``."""

    device: Size = 0
    start_seconds: Seconds
    end_seconds: Duration
    ramp_seconds: Duration = 1.0
    mib: Count


class Scenario(_Record, frozen=True, kw_only=True):
    """A node and its story. With ``period_seconds`` all that happens (starts of servers aside) happens again."""

    driver: Word = "590.48.01"
    period_seconds: Duration | None = None
    devices: tuple[Device, ...]
    servers: tuple[Server, ...] = ()
    processes: tuple[Process, ...] = ()
