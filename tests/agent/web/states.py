"""Nodes made up for the page, one per state that a person meets; each is a snapshot at a second."""

from collections.abc import Callable

from msgspec.structs import replace

from agent.memory.transients import Transient
from agent.snapshot import (
    AllocatorFigures,
    Collector,
    Device,
    Fragmentation,
    GpuHealth,
    Moved,
    Reload,
    Server,
    Snapshot,
    Upgrade,
)
from collectors.readings import AdaptersReading, HostMemory, OffloadReading, ServerState
from tests.agent.web import sample
from tests.agent.web.sample import H200_BYTES, MIB, START, Parts, collector, device, line, pool, server

State = Callable[[int], Snapshot]
NO_PRIVILEGE = (
    "on which socket it listens is hidden from us, so its metrics are not read: run vramscope as root or as the"
    " server's user, or with CAP_SYS_PTRACE"
)
LOST = "the GPU has fallen off the bus (NVML error 15): see the kernel log for Xid 79; reset it or reboot"


def many(tick: int) -> Snapshot:
    """Sixteen GPUs in trouble of all kinds, eight servers: one with eight replicas, one loading, one down."""
    servers = tuple(_one_of_many(number, tick) for number in range(8))
    devices = tuple(_gpu_of_many(index, servers[index // 2]) for index in range(16))
    lost = replace(devices[5], total_bytes=None, free_bytes=None, age_seconds=None, headroom_ratio=None, components=())
    return node(tick, devices=(*devices[:5], lost, *devices[6:]), servers=servers, faults=_faults_of_many())


def crowded(tick: int) -> Snapshot:
    """Eight servers of eight replicas each, with a rank of every server on each of sixteen GPUs."""
    servers = tuple(_replicated(f"server-{number}", tick, gpus=_gpus(16), shift=number) for number in range(8))
    devices = tuple(_shared(index, tuple(one.name for one in servers)) for index in range(16))
    return node(tick, devices=devices, servers=servers)


def mig(tick: int) -> Snapshot:
    """Two GPUs in MIG mode, seven instances each, beside one that is whole; a server on the first instance."""
    whole = 80 * 1024 * MIB
    instances = tuple(
        device(
            index,
            f"MIG-{index}-{instance}",
            "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            9_856 * MIB,
            {
                ("reserved", ""): (20 * MIB, None, "measured"),
                ("other_processes", ""): (700 * MIB * instance, None, "measured"),
            },
            headroom=0.9 - instance / 10,
            gpu=f"{index}:{instance}",
            kind="mig",
            health=GpuHealth(gpu=str(index), lost=False, row_remap_pending=index == 0, xids={79: 0, 31: 2}),
        )
        for index in range(2)
        for instance in range(1, 8)
    )
    big = device(
        2, "GPU-2", "NVIDIA H100 80GB HBM3", whole, {("reserved", ""): (600 * MIB, None, "measured")}, headroom=0.99
    )
    return node(tick, devices=(*instances, big), servers=())


def loading(tick: int) -> Snapshot:
    """A server that does not answer yet: what its processes hold is runtime."""
    parts: Parts = {
        ("reserved", ""): (617 * MIB, None, "measured"),
        ("runtime", "chat"): (31_000 * MIB, None, "measured"),
    }
    one = replace(
        _silent("chat", "loading"),
        restarts=0,
        pids=(4101, 4188),
        devices=("GPU-0",),
        configured=False,
        model_path="/models/m",
    )
    refused = collector(
        "endpoint", "chat", None, "http://127.0.0.1:8000/metrics refused the connection.", {"refused": 9}
    )
    return node(tick, devices=(_gpu(parts, headroom=None),), servers=(one,), faults=(refused,))


def inside(tick: int) -> Snapshot:
    """A server with a probe: its runtime told apart, its allocator in pieces, and no room for the peak it had."""
    parts: Parts = {
        ("reserved", ""): (617 * MIB, None, "measured"),
        ("weights", "chat"): (70_903 * MIB, 70_412 * MIB, "computed"),
        ("kv_used", "chat"): (20_000 * MIB, None, "computed"),
        ("kv_available", "chat"): (40_000 * MIB, None, "computed"),
        ("cuda_graphs", "chat"): (800 * MIB, 700 * MIB, "measured"),
        ("activations", "chat"): (500 * MIB, 2_000 * MIB, "measured"),
        ("allocator_slack", "chat"): (2_400 * MIB, None, "measured"),
        ("context", "chat"): (1_100 * MIB, 900 * MIB, "measured"),
        ("runtime", "chat"): (0, None, "measured"),
    }
    room = Transient(peak_bytes=3_891 * MIB, peak_evidence="measured", room_bytes=3_277 * MIB, room_evidence="measured")
    known = dict.fromkeys(AllocatorFigures.__struct_fields__)
    figures = {"active_bytes": 132_000 * MIB, "reserved_bytes": 135_200 * MIB, "ooms": 2, "alloc_retries": 31}
    told = AllocatorFigures(**known | figures | {"age_seconds": 0.4, "files": ("/proc/7/root/f",)})  # type: ignore[arg-type]
    chat = server(
        "chat",
        "Qwen/Qwen3-32B",
        (pool(100, 200, growth=1.0),),
        running=3,
        waiting=0,
        preemptions=0,
        gpus={"0": "GPU-0"},
    )
    ratio = 1 - 132_000 / 135_200
    kinds = (
        Fragmentation(kind="allocator", gpu="0", server="chat", replica="0", low=ratio, likely=ratio, high=ratio),
        Fragmentation(kind="kv_block", server="chat", replica="0", low=0.0, likely=0.02, high=0.04),
    )
    one = replace(chat, ranks=(replace(chat.ranks[0], allocator=told),), fragmentation=kinds)
    return node(tick, devices=(replace(_gpu(parts, headroom=0.02), transients={"chat": room}),), servers=(one,))


def sleeping(tick: int) -> Snapshot:
    """A server that gave its memory back."""
    parts: Parts = {
        ("reserved", ""): (617 * MIB, None, "measured"),
        ("runtime", "chat"): (1_800 * MIB, None, "measured"),
    }
    asleep = server(
        "chat", "Qwen/Qwen3-32B", (), running=0, waiting=0, preemptions=0, state="sleeping", gpus={"0": "GPU-0"}
    )
    return node(tick, devices=(_gpu(parts, headroom=0.97),), servers=(asleep,))


def beside(tick: int) -> Snapshot:
    """A server with much beside its pool: KV elsewhere, adapters, a cache of images."""
    kv = pool(8_000, 32_000, growth=None)
    one = server(
        "chat", "Qwen/Qwen3-32B", (kv,), running=2, waiting=1, preemptions=0, state="serving", gpus={"0": "GPU-0"}
    )
    one = replace(
        one,
        replicas=tuple(replace(replica, multimodal_queries=40, multimodal_hits=30) for replica in one.replicas),
        offload=(
            OffloadReading(
                replica="0",
                by="HiCache",
                tier="host",
                used_ratio=0.75,
                capacity_tokens=8_000,
                used_tokens=6_000,
            ),
            OffloadReading(by="LMCache", tier="disk", used_bytes=8 * 1024 * MIB),
        ),
        adapters=(AdaptersReading(slots=4, running=("chat", "sql"), waiting=("code",)),),
    )
    parts: Parts = {
        ("reserved", ""): (617 * MIB, None, "measured"),
        ("runtime", "chat"): (31_000 * MIB, None, "measured"),
    }
    return node(tick, devices=(_gpu(parts, headroom=None),), servers=(one,))


def upgraded(tick: int) -> Snapshot:
    """A server on two GPUs whose pool has become smaller with its version; each device by itself."""
    moved = tuple(
        Moved(
            gpu=gpu, uuid=uuid, component=component, before_bytes=before, after_bytes=after, delta_bytes=after - before
        )
        for gpu, uuid in _gpus(2).items()
        for component, before, after in (("kv_pool", 52_000 * MIB, 50_771 * MIB), ("runtime", 3_000 * MIB, 3_001 * MIB))
    )
    found = Upgrade(
        from_version="0.19.1",
        to_version="0.21.0",
        since=START,
        from_settled_at=START - 1000.0,
        to_settled_at=START + 60.0,
        from_capacity_tokens=418_480,
        to_capacity_tokens=408_656,
        components=moved,
        causes=("CUDA graphs moved inside the fraction",),
        summary="since 0.19.1 -> 0.21.0: CUDA graphs moved inside the fraction; KV pool -2.40 GiB over 2 devices",
    )
    kv = pool(8_000, 408_656, growth=None)
    one = server("chat", "Qwen/Qwen3-32B", (kv,), running=2, waiting=1, preemptions=0, gpus=_gpus(2))
    devices = tuple(
        device(
            int(gpu),
            uuid,
            "NVIDIA H200",
            H200_BYTES,
            {("runtime", "chat"): (54_000 * MIB, None, "measured")},
            headroom=None,
        )
        for gpu, uuid in _gpus(2).items()
    )
    return node(tick, devices=devices, servers=(replace(one, upgrade=found),))


def lost(tick: int) -> Snapshot:
    """A GPU that fell off the bus, beside one that works."""
    gone = replace(
        _gpu({}, headroom=None),
        total_bytes=None,
        free_bytes=None,
        age_seconds=None,
        components=(),
        health=GpuHealth(gpu="0", lost=True, xids={79: 1}),
    )
    parts: Parts = {("reserved", ""): (617 * MIB, None, "measured")}
    other = device(1, "GPU-1", "NVIDIA H200", H200_BYTES, parts, headroom=0.99)
    faults = (collector("nvml", "GPU-0", 12.0, LOST, {"gpu_lost": 12}), collector("processes", "GPU-0", 14.0, LOST))
    return node(tick, devices=(gone, other), servers=(), faults=faults)


def unified(tick: int) -> Snapshot:
    """A GB10: GPU and host share their memory, of which the host holds a part."""
    parts: Parts = {
        ("runtime", "chat"): (34_000 * MIB, None, "measured"),
        ("host", ""): (21_000 * MIB, None, "measured"),
    }
    total = 122_502 * MIB
    note = "this GPU shares the host's memory: total and free are from /proc/meminfo, what the host uses is `host`"
    one = device(0, "GPU-0", "NVIDIA GB10", total, parts, headroom=None, kind="unified", notes=(note,))
    host = HostMemory(total_bytes=total, available_bytes=67_502 * MIB)
    servers = (replace(_serving("chat", tick), notes=("its model Qwen/Qwen3-8B is not in the cache /root/.cache",)),)
    return replace(node(tick, devices=(one,), servers=servers), host_memory=host)


def unknown_architecture(tick: int) -> Snapshot:
    """A model whose layout is not known here: pool in tokens, memory in runtime, no budget."""
    parts: Parts = {
        ("reserved", ""): (617 * MIB, None, "measured"),
        ("runtime", "chat"): (99_000 * MIB, None, "measured"),
    }
    note = "model_type 'novel_moe' is not known here; known: layers 61, hidden size 7168, vocabulary 129280"
    one = replace(
        _serving("chat", tick),
        model_path="/models/novel",
        notes=(note, "weights: the layout is not known, and it is spread over several ranks"),
    )
    return node(tick, devices=(_gpu(parts, headroom=None),), servers=(one,))


def nothing(tick: int) -> Snapshot:
    """A host without a driver, where no server is known."""
    return replace(sample.without_gpu(), time=START + tick)


def not_reloaded(tick: int) -> Snapshot:
    """All sources work, and the last settings were refused."""
    return replace(
        node(tick, devices=sample.node(tick).devices[:1], servers=()), reload=Reload(success=False, at=START)
    )


def node(
    tick: int, *, devices: tuple[Device, ...], servers: tuple[Server, ...], faults: tuple[Collector, ...] = ()
) -> Snapshot:
    """A snapshot in which all works but ``faults``."""
    failing = {(fault.name, fault.target) for fault in faults}
    works = (
        collector("nvml", "", 0.4),
        *(collector("nvml", one.uuid, 0.6) for one in devices),
        *(collector("processes", one.uuid, 2.4) for one in devices),
        *(collector("endpoint", one.name, 0.3) for one in servers),
    )
    sources = sorted(
        (*(one for one in works if (one.name, one.target) not in failing), *faults),
        key=lambda one: (one.name, one.target),
    )
    return Snapshot(time=START + tick, version="0.1.0", devices=devices, servers=servers, collectors=tuple(sources))


def _faults_of_many() -> tuple[Collector, ...]:
    refused = "http://127.0.0.1:8007/metrics refused the connection; start the server or correct its url."
    return (
        collector("nvml", "GPU-5", 42.0, LOST, {"gpu_lost": 42, "timeout": 3}),
        collector("processes", "GPU-5", 45.0, LOST, {"gpu_lost": 9}),
        collector("endpoint", "server-7", None, refused, {"refused": 120}),
    )


def _one_of_many(number: int, tick: int) -> Server:
    name = f"server-{number}"
    gpus = {str(2 * number + i): f"GPU-{2 * number + i}" for i in range(2)}
    if number == 1:
        return _replicated(name, tick, gpus=gpus)
    if number == 4:
        return replace(_silent(name, "loading"), devices=tuple(gpus.values()), notes=(NO_PRIVILEGE,))
    if number == 7:
        return replace(_silent(name, "down"), notes=(NO_PRIVILEGE,))
    used = 20_000 * (number + 1) + 300 * tick
    pools = (pool(used, sample.CAPACITY, growth=40.0 * number),)
    return server(name, "Qwen/Qwen3-32B", pools, running=8 * number, waiting=number, preemptions=0, gpus=gpus)


def _replicated(name: str, tick: int, *, gpus: dict[str, str], shift: int = 0) -> Server:
    """A server with eight replicas; the one numbered 5 is the fullest, 2 the emptiest."""
    shares = (0.42, 0.61, 0.07, 0.55, 0.30, 0.91, 0.48, 0.22)
    pools = tuple(
        pool(int(share * 200_000) + 10 * tick + shift, 200_000, replica=str(number), growth=10.0 + number)
        for number, share in enumerate(shares)
    )
    return server(name, "deepseek-ai/DeepSeek-V3", pools, running=96, waiting=3, preemptions=5, gpus=gpus)


def _serving(name: str, tick: int) -> Server:
    pools = (pool(60_000 + 100 * tick, sample.CAPACITY, growth=100.0),)
    return server(name, "example/model", pools, running=4, waiting=0, preemptions=0, gpus={"0": "GPU-0"})


def _silent(name: str, state: ServerState) -> Server:
    return server(name, None, (), running=None, waiting=None, preemptions=None, state=state)


def _gpus(count: int) -> dict[str, str]:
    return {str(index): f"GPU-{index}" for index in range(count)}


def _gpu(parts: Parts, *, headroom: float | None) -> Device:
    return device(0, "GPU-0", "NVIDIA H200", H200_BYTES, parts, headroom=headroom)


def _gpu_of_many(index: int, on_it: Server) -> Device:
    total = H200_BYTES if index < 12 else 81_559 * MIB
    parts: Parts = {("reserved", ""): (617 * MIB, None, "measured")}
    if on_it.state == "loading":
        parts["runtime", on_it.name] = (30_000 * MIB, None, "measured")
    elif on_it.state == "serving":
        parts["weights", on_it.name] = (total // 2, total // 2 - 300 * MIB, "computed")
        parts["kv_used", on_it.name] = (total // 9, None, "computed")
        parts["kv_available", on_it.name] = (total // 6, None, "computed")
        parts["runtime", on_it.name] = (5_000 * MIB + 350 * MIB * index, 5_000 * MIB, "measured")
    budget = tuple(
        line(on_it.name, component, bound, size)
        for component, bound, size in (
            ("weights", "likely", total // 2 - 300 * MIB),
            ("kv_pool", "likely", total // 4),
            ("runtime", "low", 3_000 * MIB),
            ("runtime", "likely", 5_000 * MIB),
            ("runtime", "high", 9_000 * MIB),
        )
    )
    serving = on_it.state == "serving"
    free = 1 - sum(size for size, _, _ in parts.values()) / total
    return device(
        index,
        f"GPU-{index}",
        "NVIDIA H200",
        total,
        parts,
        budget if serving else (),
        headroom=free if serving else None,
    )


def _shared(index: int, names: tuple[str, ...]) -> Device:
    parts: Parts = {("reserved", ""): (617 * MIB, None, "measured")}
    budget = []
    for name in names:
        parts["weights", name] = (8_000 * MIB, 7_900 * MIB, "computed")
        parts["kv_used", name] = (2_000 * MIB, None, "computed")
        parts["kv_available", name] = (3_000 * MIB, None, "computed")
        parts["runtime", name] = (2_000 * MIB, 1_800 * MIB, "measured")
        budget += [line(name, "weights", "likely", 7_900 * MIB), line(name, "kv_pool", "likely", 5_000 * MIB)]
        budget += [line(name, "runtime", "low", 900 * MIB), line(name, "runtime", "likely", 1_800 * MIB)]
        budget += [line(name, "runtime", "high", 3_000 * MIB)]
    return device(index, f"GPU-{index}", "NVIDIA H200", H200_BYTES, parts, tuple(budget), headroom=0.15)
