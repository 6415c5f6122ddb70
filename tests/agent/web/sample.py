"""A node made up for the page: a healthy GPU, one in trouble, a server with a hostile name, one that is down."""

from typing import Any

from msgspec.structs import replace

from agent.memory.risk import OK, Risk
from agent.snapshot import (
    BudgetLine,
    Chains,
    Collector,
    Component,
    Counters,
    Device,
    DeviceForecast,
    ExhaustionSeconds,
    Failure,
    Fragmentation,
    GpuHealth,
    Log,
    MemoryStep,
    Pool,
    PoolForecast,
    Rank,
    Replica,
    Requests,
    Server,
    Snapshot,
)
from collectors.readings import Container, Evidence, MemoryKind, ServerState

Parts = dict[tuple[str, str], tuple[int, int | None, Evidence]]  # component, server: bytes, budget, evidence

MIB = 1 << 20
START = 1_760_000_000.0
HISTORY_SECONDS = 280
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"

H200_BYTES = 143_771 * MIB
RTX_BYTES = 24_564 * MIB
CAPACITY = 262_144
TOKEN_BYTES = 163_840  # 80 layers, 8 KV heads, 128 wide, K and V, one byte each


def node(tick: int) -> Snapshot:
    """The node at a second; each second the pool of ``chat`` holds more."""
    return Snapshot(
        time=START + tick,
        version="0.1.0",
        devices=(_healthy(tick), _troubled()),
        servers=(_chat(tick), _hostile(), _down()),
        collectors=(
            collector("nvml", "", 0.4),
            collector("processes", "GPU-aaaa", 2.4),
            collector("endpoint", "chat", 0.3),
            collector("endpoint", HOSTILE, 0.3),
            collector(
                "endpoint",
                "batch",
                None,
                "http://127.0.0.1:8002/metrics refused the connection; start the server or correct its url.",
                {"refused": 41, "timeout": 2},
            ),
        ),
    )


def without_gpu() -> Snapshot:
    """A host where the driver is missing and no server is known."""
    return Snapshot(
        time=START,
        version="0.1.0",
        collectors=(
            collector("nvml", "", None, "libnvidia-ml.so.1 was not found: there is no NVIDIA driver on this host."),
            collector("processes", "", 2.0),
        ),
    )


def history(tick: int) -> dict[str, Any]:
    """The minutes before a second, with a gap while the server did not answer."""
    times = range(tick - HISTORY_SECONDS, tick)
    points = [[START + t, None if -150 < t < -130 else used_at(t)] for t in times]
    pool = {
        "server": "chat",
        "replica": "0",
        "kind": "full",
        "capacity_tokens": CAPACITY,
        "points": points,
    }
    looks = [(START + t, sizes_of(_healthy(t))) for t in times if t % 5 == 0]
    parts = [part.component for part in _healthy(0).components]
    device = {"uuid": "GPU-aaaa", "gpu": "0", "components": parts, "points": looks}
    return {"schema": "vramscope.history/1", "interval_seconds": 1, "pools": [pool], "devices": [device]}


def sizes_of(device: Device) -> list[int]:
    return [part.bytes for part in device.components]


def used_at(tick: int) -> int:
    """Tokens in the pool of ``chat`` at a second."""
    return 120_000 + 300 * tick + (tick * 7919) % 2_500


def _healthy(tick: int) -> Device:
    used = used_at(tick) * TOKEN_BYTES
    parts: Parts = {
        ("reserved", ""): (617 * MIB, None, "measured"),
        ("weights", "chat"): (70_903 * MIB, 70_412 * MIB, "computed"),
        ("kv_used", "chat"): (used, None, "reported"),
        ("kv_available", "chat"): (CAPACITY * TOKEN_BYTES - used, None, "reported"),
        ("runtime", "chat"): (6_230 * MIB, 5_500 * MIB, "measured"),
        ("other_processes", ""): (412 * MIB, None, "measured"),
    }
    budget = (
        line("chat", "weights", "likely", 70_412 * MIB),
        line("chat", "kv_pool", "likely", 41_300 * MIB),
        line("chat", "runtime", "low", 3_600 * MIB),
        line("chat", "runtime", "likely", 5_500 * MIB),
        line("chat", "runtime", "high", 8_400 * MIB),
    )
    return replace(device(0, "GPU-aaaa", "NVIDIA H200", H200_BYTES, parts, budget, headroom=0.178), risk=OK)


def _troubled() -> Device:
    parts: Parts = {
        ("reserved", ""): (390 * MIB, None, "measured"),
        ("weights", HOSTILE): (8_192 * MIB, 8_192 * MIB, "computed"),
        ("kv_used", HOSTILE): (3_072 * MIB, None, "reported"),
        ("kv_cached", HOSTILE): (1_024 * MIB, None, "reported"),
        ("kv_free", HOSTILE): (512 * MIB, None, "reported"),
        ("runtime", HOSTILE): (4_500 * MIB, 2_000 * MIB, "measured"),
        ("runtime", "embed"): (1_900 * MIB, None, "measured"),
        ("other_processes", ""): (2_600 * MIB, None, "measured"),
        ("hidden", ""): (900 * MIB, None, "measured"),
    }
    budget = (
        line(HOSTILE, "weights", "likely", 8_192 * MIB),
        line(HOSTILE, "kv_pool", "likely", 5_000 * MIB),
        line(HOSTILE, "runtime", "low", 1_400 * MIB),
        line(HOSTILE, "runtime", "likely", 2_000 * MIB),
        line(HOSTILE, "runtime", "high", 3_100 * MIB),
    )
    creeping = DeviceForecast(
        exhaustion_seconds=ExhaustionSeconds(likely=5 * 3600.0, early=4 * 3600.0),
        cause=f"{HOSTILE} outside its KV pool: 200.00 MiB more an hour",
        bytes_per_hour=200.0 * MIB,
        deviation_bytes_per_hour=20.0 * MIB,
        rise_bytes=800 * MIB,
        room_bytes=1_000 * MIB,
        reserve_bytes=512 * MIB,
        transient_seen_bytes=512 * MIB,
        by_owner={HOSTILE: 200.0 * MIB},
    )
    troubled = device(
        1,
        "GPU-bbbb",
        "NVIDIA GeForce RTX 4090",
        RTX_BYTES,
        parts,
        budget,
        headroom=0.06,
        unexplained={HOSTILE: 1_400 * MIB},
        over={"embed": 300 * MIB},
        notes=("The operating system uses this <b>memory</b> too.",),
        health=GpuHealth(gpu="1", lost=False, ecc_uncorrected=2, row_remap_failure=True, xids={48: 2, 79: 0, 31: 4}),
    )
    return replace(
        troubled,
        forecast=creeping,
        steps=(MemoryStep(age_seconds=900.0, owner=HOSTILE, bytes=-300 * MIB),),
        risk=Risk(level="critical", reason="hardware", numbers={"row_remap_failure": 1}),
    )


def device(
    index: int,
    uuid: str,
    name: str,
    total: int,
    parts: Parts,
    budget: tuple[BudgetLine, ...] = (),
    *,
    headroom: float | None,
    gpu: str | None = None,
    kind: MemoryKind = "device",
    unexplained: dict[str, int] | None = None,
    over: dict[str, int] | None = None,
    notes: tuple[str, ...] = (),
    health: GpuHealth | None = None,
) -> Device:
    """A device whose parts, and what is free beside them, sum to its total."""
    free = total - sum(size for size, _, _ in parts.values())
    components = [
        Component(component=component, server=server, bytes=size, budget_bytes=planned, evidence=how, age_seconds=0.6)
        for (component, server), (size, planned, how) in parts.items()
    ]
    components.append(Component(component="free", bytes=free, evidence="measured", age_seconds=0.6))
    return Device(
        uuid=uuid,
        gpu=gpu or str(index),
        index=index,
        name=name,
        driver="580.95.05",
        memory_kind=kind,
        total_bytes=total,
        free_bytes=free,
        age_seconds=0.6,
        headroom_ratio=headroom,
        components=tuple(components),
        budget=budget,
        unexplained_bytes=unexplained or {},
        overattributed_bytes=over or {},
        free_min_bytes={"60s": free - 200 * MIB, "start": free - 900 * MIB},
        used_max_bytes={"60s": total - free + 200 * MIB, "start": total - free + 900 * MIB},
        notes=notes,
        health=health,
    )


def _chat(tick: int) -> Server:
    chat = server(
        "chat",
        "meta-llama/Llama-3.1-70B-Instruct",
        (replace(pool(used_at(tick), CAPACITY, growth=298.4), forecast=filling()),),
        running=37,
        waiting=4,
        preemptions=12,
        gpus={"0": "GPU-aaaa"},
    )
    return replace(
        chat,
        model_path="/models/llama-3.1-70b",
        arguments={"tp": 1, "dtype": "bfloat16", "gpu_memory_utilization": 0.92, "pp_layers": (40, 40)},
        pids=(4101, 4188),
        container=Container(runtime="containerd", id="4b1d" * 16, name="vllm", pod="llama-0", namespace="prod"),
        log=Log(
            version=None,
            ready=True,
            age_seconds=0.5,
            failures={"cuda_oom": 2, "kv_pool_full": 0},
            last_failure=Failure(kind="cuda_oom", age_seconds=90.0),
        ),
        max_request_tokens=131_072,
        max_request_bytes=131_072 * TOKEN_BYTES,
        fragmentation=(Fragmentation(kind="kv_block", server="chat", replica="0", low=0.0, likely=0.002, high=0.004),),
        risk=Risk(level="at_risk", reason="pool_exhaustion", numbers={"used_ratio": 0.5}),
        notes=("70 KV blocks do not divide evenly over the replicas: each is given the same share",),
    )


def filling() -> PoolForecast:
    """Full in seven minutes, in four at the soonest."""
    return PoolForecast(
        exhaustion_seconds=ExhaustionSeconds(likely=420.0, early=240.0),
        cause="growth",
        outcome="preempt",
        level="at_risk",
        exhausted=False,
        probability_2min=0.04,
        probability_5min=0.52,
        admitted_ratio=1.1,
        queue_at_limit=False,
        max_sequences=256,
        shortages_per_minute=0.0,
        chains=Chains(
            mean_tokens=3_400.0,
            growth_tokens_per_second=30.0,
            longest_tokens=90_000,
            few=2,
            few_ratio=0.61,
            short_tokens=1_024,
            long_ratio=0.7,
        ),
        age_seconds=0.0,
    )


def _hostile() -> Server:
    tight = replace(
        pool(24_576, 36_864, growth=None), cached_tokens=8_192, free_tokens=4_096, available_tokens=None, block_size=1
    )
    named = server(HOSTILE, HOSTILE, (tight,), running=3, waiting=0, preemptions=None, port=8001)
    return replace(
        named, engine="sglang", model_path=HOSTILE, arguments={"dtype": HOSTILE}, notes=(HOSTILE,), configured=False
    )


def _down() -> Server:
    return server("batch", None, (), running=None, waiting=None, preemptions=None, port=8002, state="down")


def pool(used: int, capacity: int, *, replica: str = "0", growth: float | None) -> Pool:
    """A pool of an engine that does not tell cached from free."""
    return Pool(
        replica=replica,
        kind="full",
        capacity_tokens=capacity,
        used_tokens=used,
        cached_tokens=None,
        free_tokens=None,
        available_tokens=capacity - used,
        used_ratio=used / capacity,
        pool_bytes=capacity * TOKEN_BYTES,
        bytes_per_token=TOKEN_BYTES,
        block_size=16,
        growth_tokens_per_second=growth,
    )


def server(
    name: str,
    model: str | None,
    pools: tuple[Pool, ...],
    *,
    running: int | None,
    waiting: int | None,
    preemptions: int | None,
    port: int = 8000,
    state: ServerState = "serving",
    gpus: dict[str, str] | None = None,
) -> Server:
    """A server with a replica per pool, its ranks in order on ``gpus``: labels and UUIDs."""
    answers = state in ("serving", "sleeping")
    requests = Requests(running=running, waiting=waiting)
    counters = Counters(preemptions=preemptions, prompt_tokens=1_200_000, generation_tokens=800_000)
    places = enumerate((gpus or {}).items())
    return Server(
        name=name,
        engine="vllm",
        version="0.11.0" if answers else None,
        url=f"http://127.0.0.1:{port}",
        model=model,
        state=state,
        age_seconds=0.3 if answers else None,
        started_at=START - 86_400 if answers else None,
        restarts=0 if answers else 1,
        devices=tuple((gpus or {}).values()),
        ranks=tuple(Rank(gpu=gpu, uuid=uuid, tp_rank=tp, pp_rank=0, replica="0") for tp, (gpu, uuid) in places),
        pools=pools,
        replicas=tuple(Replica(replica=one.replica, requests=requests, counters=counters) for one in pools),
        requests=requests,
        counters=counters,
    )


def line(server: str, component: str, bound: Any, size: int) -> BudgetLine:
    return BudgetLine(server=server, component=component, bound=bound, bytes=size)


def collector(
    name: str, target: str, age: float | None, error: str | None = None, failures: dict[str, int] | None = None
) -> Collector:
    """A source that failed when it has an ``error``; ``age`` is that of its last answer."""
    return Collector(
        name=name,
        target=target,
        success=error is None,
        age_seconds=age,
        error=error,
        duration_seconds=0.002,
        last_success_at=None if age is None else START,
        failures=failures or {},
    )
