"""A node made up for the page: a healthy GPU, one in trouble, a server with a hostile name, one that is down."""

from typing import Any

from msgspec.structs import replace

from agent.snapshot import (
    BudgetLine,
    Collector,
    Component,
    Counters,
    Device,
    GpuHealth,
    Pool,
    Requests,
    Server,
    Snapshot,
)
from collectors.readings import Evidence

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
            _collector("nvml", "", 0.4),
            _collector("processes", "GPU-aaaa", 2.4),
            _collector("endpoint", "chat", 0.3),
            _collector("endpoint", HOSTILE, 0.3),
            _collector(
                "endpoint",
                "batch",
                None,
                "http://127.0.0.1:8002/metrics refused the connection; start the server or correct its url.",
            ),
        ),
    )


def without_gpu() -> Snapshot:
    """A host where the driver is missing and no server is known."""
    return Snapshot(
        time=START,
        version="0.1.0",
        collectors=(
            _collector("nvml", "", None, "libnvidia-ml.so.1 was not found: there is no NVIDIA driver on this host."),
        ),
    )


def history(tick: int) -> dict[str, Any]:
    """The minutes before a second, with a gap while the server did not answer."""
    times = range(tick - HISTORY_SECONDS, tick)
    points = [[START + t, None if -150 < t < -130 else _used(t)] for t in times]
    pool = {
        "server": "chat",
        "replica": "0",
        "kind": "full",
        "capacity_tokens": CAPACITY,
        "points": points,
    }
    return {"schema": "vramscope.history/1", "interval_seconds": 1, "pools": [pool]}


def _used(tick: int) -> int:
    return 120_000 + 300 * tick + (tick * 7919) % 2_500


def _healthy(tick: int) -> Device:
    used = _used(tick) * TOKEN_BYTES
    parts: Parts = {
        ("reserved", ""): (617 * MIB, None, "measured"),
        ("weights", "chat"): (70_903 * MIB, 70_412 * MIB, "computed"),
        ("kv_used", "chat"): (used, None, "reported"),
        ("kv_available", "chat"): (CAPACITY * TOKEN_BYTES - used, None, "reported"),
        ("runtime", "chat"): (6_230 * MIB, 5_500 * MIB, "measured"),
        ("other_processes", ""): (412 * MIB, None, "measured"),
    }
    budget = (
        _line("chat", "weights", "likely", 70_412 * MIB),
        _line("chat", "kv_pool", "likely", 41_300 * MIB),
        _line("chat", "runtime", "low", 3_600 * MIB),
        _line("chat", "runtime", "likely", 5_500 * MIB),
        _line("chat", "runtime", "high", 8_400 * MIB),
    )
    return _device(0, "GPU-aaaa", "NVIDIA H200", H200_BYTES, parts, budget, headroom=0.178)


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
        _line(HOSTILE, "weights", "likely", 8_192 * MIB),
        _line(HOSTILE, "kv_pool", "likely", 5_000 * MIB),
        _line(HOSTILE, "runtime", "low", 1_400 * MIB),
        _line(HOSTILE, "runtime", "likely", 2_000 * MIB),
        _line(HOSTILE, "runtime", "high", 3_100 * MIB),
    )
    device = _device(
        1,
        "GPU-bbbb",
        "NVIDIA GeForce RTX 4090",
        RTX_BYTES,
        parts,
        budget,
        headroom=0.06,
        unexplained={HOSTILE: 1_400 * MIB},
        over={"embed": 300 * MIB},
    )
    health = GpuHealth(gpu="1", lost=False, ecc_uncorrected=2, row_remap_failure=True, xids={48: 2, 79: 0})
    return replace(device, health=health, notes=("The operating system uses this <b>memory</b> too.",))


def _device(
    index: int,
    uuid: str,
    name: str,
    total: int,
    parts: Parts,
    budget: tuple[BudgetLine, ...],
    *,
    headroom: float,
    unexplained: dict[str, int] | None = None,
    over: dict[str, int] | None = None,
) -> Device:
    free = total - sum(size for size, _, _ in parts.values())
    components = [
        Component(component=component, server=server, bytes=size, budget_bytes=planned, evidence=how, age_seconds=0.6)
        for (component, server), (size, planned, how) in parts.items()
    ]
    components.append(Component(component="free", bytes=free, evidence="measured", age_seconds=0.6))
    return Device(
        uuid=uuid,
        gpu=str(index),
        index=index,
        name=name,
        driver="580.95.05",
        memory_kind="device",
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
    )


def _chat(tick: int) -> Server:
    used = _used(tick)
    pool = Pool(
        replica="0",
        kind="full",
        capacity_tokens=CAPACITY,
        used_tokens=used,
        cached_tokens=None,
        free_tokens=None,
        available_tokens=CAPACITY - used,
        used_ratio=used / CAPACITY,
        pool_bytes=CAPACITY * TOKEN_BYTES,
        bytes_per_token=TOKEN_BYTES,
        block_size=16,
        growth_tokens_per_second=298.4,
    )
    return _server("chat", "meta-llama/Llama-3.1-70B-Instruct", (pool,), running=37, waiting=4, preemptions=12)


def _hostile() -> Server:
    pool = Pool(
        replica="0",
        kind="full",
        capacity_tokens=36_864,
        used_tokens=24_576,
        cached_tokens=8_192,
        free_tokens=4_096,
        available_tokens=None,
        used_ratio=24_576 / 36_864,
        pool_bytes=4_608 * MIB,
        bytes_per_token=131_072,
        block_size=1,
        growth_tokens_per_second=None,
    )
    return _server(HOSTILE, HOSTILE, (pool,), running=3, waiting=0, preemptions=None, engine="sglang", port=8001)


def _down() -> Server:
    return Server(
        name="batch",
        engine="vllm",
        version=None,
        url="http://127.0.0.1:8002",
        model=None,
        state="down",
        age_seconds=None,
        started_at=None,
        restarts=1,
        requests=Requests(running=None, waiting=None),
        counters=Counters(preemptions=None, prompt_tokens=None, generation_tokens=None),
    )


def _server(
    name: str,
    model: str,
    pools: tuple[Pool, ...],
    *,
    running: int,
    waiting: int,
    preemptions: int | None,
    engine: str = "vllm",
    port: int = 8000,
) -> Server:
    return Server(
        name=name,
        engine=engine,
        version="0.11.0",
        url=f"http://127.0.0.1:{port}",
        model=model,
        state="serving",
        age_seconds=0.3,
        started_at=START - 86_400,
        restarts=0,
        pools=pools,
        requests=Requests(running=running, waiting=waiting),
        counters=Counters(preemptions=preemptions, prompt_tokens=1_200_000, generation_tokens=800_000),
    )


def _line(server: str, component: str, bound: Any, size: int) -> BudgetLine:
    return BudgetLine(server=server, component=component, bound=bound, bytes=size)


def _collector(name: str, target: str, age: float | None, error: str | None = None) -> Collector:
    return Collector(
        name=name,
        target=target,
        success=error is None,
        age_seconds=age,
        error=error,
        duration_seconds=0.002,
        last_success_at=None if age is None else START,
    )
