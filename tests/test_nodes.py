"""Whole nodes of every kind, from the driver's answers and the servers' pages to the closed sum, each byte by hand."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agent.board import Board
from agent.memory.arguments import from_flags
from agent.snapshot import Device, Snapshot
from agent.watch import ServerFacts, ServerWatch
from collectors.engine_logs.vllm import FORMAT as VLLM_LOG
from collectors.http_text import Endpoint
from collectors.nvml.passes import Passes
from collectors.readings import ModelFiles, NodeReading, ProcessTree, ServerProcess
from collectors.registry import ENGINES
from collectors.run import Outcome, run
from collectors.simulated.driver import SimulatedDriver
from collectors.simulated.state import DeviceState, GpuProcess, HostState, InstanceState, NodeState, write_state
from tests.collectors.engine_logs.lines import read as read_log
from tests.node import TINY_LLAMA, TINY_LLAMA_BYTES

GIB, MIB = 2**30, 2**20
RESERVED = 479 * MIB
RESIDUAL = 20 * MIB
LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
NORM = 2 * 4096
LAYER_MATRICES = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)  # q and o, k and v, the MLP
EMBEDDING = 2 * 128256 * 4096  # the head is as large
WHOLE = 32 * (LAYER_MATRICES + 2 * NORM) + 2 * EMBEDDING + NORM
BLOCK = 16 * 32 * 2 * 8 * 128 * 2  # tokens x layers x (K and V) x heads x width x 2 bytes
TINY_BLOCK = 16 * 2 * 2 * 2 * 32 * 2


class Served(Struct, frozen=True, kw_only=True):
    """One vLLM server: its processes by pid, the first one listens; ``blocks`` and those in use of each replica."""

    name: str = "chat"
    port: int = 8000
    titles: dict[int, str]
    used_blocks: tuple[int, ...]
    blocks: int
    config: dict[str, Any] = msgspec.field(default_factory=lambda: LLAMA_8B)
    tensor_bytes: int = WHOLE
    flags: dict[str, Any] = {}
    devices: tuple[str, ...] = ()
    log: tuple[str, ...] = ()

    def page(self) -> str:
        lines = []
        for replica, used in enumerate(self.used_blocks):
            labels = f'engine="{replica}",model_name="m"'
            lines.append(f"vllm:num_requests_running{{{labels}}} 1.0")
            lines.append(f"vllm:kv_cache_usage_perc{{{labels}}} {used / (self.blocks - 1)!r}")
            facts = f'engine="{replica}",block_size="16",cache_dtype="auto",gpu_memory_utilization="0.9"'
            everywhere = self.blocks * len(self.used_blocks)  # vLLM repeats the sum under each replica
            lines.append(f'vllm:cache_config_info{{{facts},num_gpu_blocks="{everywhere}"}} 1.0')
        return "\n".join(sorted(lines)) + "\n"

    def tree(self) -> ProcessTree:
        processes = (ServerProcess(pid=pid, started_at=1.0, title=title) for pid, title in self.titles.items())
        return ProcessTree(at=1.0, processes=tuple(processes))


def h100(index: int, allocated: int) -> DeviceState:
    return DeviceState(
        index=index,
        uuid=f"GPU-{index}",
        bus_id=f"00000000:{0x1B + index:02X}:00.0",
        name="NVIDIA H100 80GB HBM3",
        total_bytes=81559 * MIB,
        reserved_bytes=RESERVED,
        allocated_bytes=allocated,
    )


def held(index: int, pid: int, size: int | None) -> GpuProcess:
    return GpuProcess(index=index, pid=pid, used_bytes=size)


def observed(folder: Path, state: NodeState, *servers: Served, trees: bool = True) -> Snapshot:
    """What the agent says about a node after it read every source once."""
    write_state(folder / "node.state", state)
    driver = SimulatedDriver(folder / "node.state")
    driver.start()
    passes = Passes(driver, announce=lambda _: None, clock=lambda: 1.0, processes_interval_seconds=5.0)
    watches = [
        ServerWatch(
            ServerFacts(
                name=server.name,
                engine="vllm",
                url=f"http://127.0.0.1:{server.port}",
                given=from_flags(server.flags, engine="vllm"),
                devices=server.devices,
            ),
            rank_of=ENGINES["vllm"].rank_of,
        )
        for server in servers
    ]
    board = Board(watches, memory_interval_seconds=1.0, clock=lambda: 1.0, wall=lambda: 1.7e9)
    board.took_node(msgspec.convert(passes.read(), NodeReading))
    for watch, server in zip(watches, servers, strict=True):
        asyncio.run(_read(board, watch, server, seen=trees))
    return board.tick().snapshot


async def _read(board: Board, watch: ServerWatch, server: Served, *, seen: bool) -> None:
    documents = {
        "/metrics": server.page(),
        "/version": '{"version": "0.32.0"}',
        "/v1/models": json.dumps({"data": [{"id": "m", "max_model_len": 8192}]}),
    }
    transport = httpx.MockTransport(
        lambda request: httpx.Response(200, stream=httpx.ByteStream(documents[request.url.path].encode()))
    )
    engine = ENGINES["vllm"]
    endpoint = Endpoint(watch.facts.url, paths=engine.paths, deadline_seconds=5, transport=transport)
    reader = engine.open(endpoint, clock=lambda: 1.0)
    board.took_server(watch, await run("endpoint", server.name, reader.read, deadline_seconds=5, clock=lambda: 1.0))
    model = ModelFiles(path="/m", config=server.config, tensor_bytes=server.tensor_bytes, tensor_source="index")
    board.took_tree(watch, _done(server.tree() if seen else None))
    board.took_model(watch, _done(model))
    if server.log:
        board.took_log(watch, _done(read_log(VLLM_LOG, *server.log)))


def _done(value: object) -> Outcome:  # type: ignore[type-arg] # of whatever is handed in
    return Outcome(value=value, fault=None, duration_seconds=0.0, at=1.0)


def closed(device: Device) -> dict[str, int]:
    """Bytes by component and server ("weights chat"), after checking that they close."""
    assert sum(part.bytes for part in device.components) == device.total_bytes
    assert all(part.bytes >= 0 for part in device.components)
    return {f"{part.component} {part.server}".strip(): part.bytes for part in device.components}


def nothing_is_cut(devices: Sequence[Device]) -> bool:
    return not any(count for device in devices for count in device.overattributed_bytes.values())


def test_tensor_parallel_over_eight(tmp_path: Path) -> None:
    """TP=8: every rank has an eighth of the matrices, all of the norms and one of the eight KV heads."""
    ranks = range(8)
    state = NodeState(
        devices=tuple(h100(index, 60 * GIB + RESIDUAL) for index in ranks),
        gpu_processes=tuple(held(index, 110 + index, 60 * GIB) for index in ranks),
    )
    titles = {100: "vllm serve m", 101: "VLLM::EngineCore", **{110 + n: f"VLLM::Worker_TP{n}" for n in ranks}}
    found = observed(tmp_path, state, Served(titles=titles, used_blocks=(45_000,), blocks=180_000))

    weights = (32 * LAYER_MATRICES + 2 * EMBEDDING) // 8 + (2 * 32 + 1) * NORM
    for device in found.devices:
        assert closed(device) == {
            "weights chat": weights,
            "kv_used chat": 45_000 * BLOCK // 8,
            "kv_available chat": 135_000 * BLOCK // 8,
            "runtime chat": 60 * GIB - weights - 180_000 * BLOCK // 8,
            "other_processes": 0,
            "reserved": RESERVED,
            "hidden": RESIDUAL,
            "free": 81559 * MIB - RESERVED - RESIDUAL - 60 * GIB,
        }
    (server,) = found.servers
    assert [(rank.gpu, rank.tp_rank, rank.pp_rank) for rank in server.ranks] == [(str(n), n, 0) for n in ranks]
    assert len(server.pools) == 1
    assert nothing_is_cut(found.devices)


def test_tensor_times_pipeline_parallel(tmp_path: Path) -> None:
    """TP=4 x PP=2: a quarter of half the layers; the first stage has the embedding, the last the norm and the head."""
    state = NodeState(
        devices=tuple(h100(index, 50 * GIB + RESIDUAL) for index in range(8)),
        gpu_processes=tuple(held(index, 110 + index, 50 * GIB) for index in range(8)),
    )
    titles = {100: "vllm serve m", 101: "VLLM::EngineCore"}
    titles |= {110 + n: f"VLLM::Worker_PP{n // 4}_TP{n % 4}" for n in range(8)}
    found = observed(tmp_path, state, Served(titles=titles, used_blocks=(1_000,), blocks=150_000))

    half = 16 * (LAYER_MATRICES // 4 + 2 * NORM) + EMBEDDING // 4
    for n, device in enumerate(found.devices):
        weights = half + (NORM if n >= 4 else 0)
        assert closed(device) == {
            "weights chat": weights,
            "kv_used chat": 1_000 * BLOCK // 8,  # a quarter of the heads, half of the layers
            "kv_available chat": 149_000 * BLOCK // 8,
            "runtime chat": 50 * GIB - weights - 150_000 * BLOCK // 8,
            "other_processes": 0,
            "reserved": RESERVED,
            "hidden": RESIDUAL,
            "free": 81559 * MIB - RESERVED - RESIDUAL - 50 * GIB,
        }
    assert [(rank.tp_rank, rank.pp_rank) for rank in found.servers[0].ranks] == [(n % 4, n // 4) for n in range(8)]
    assert nothing_is_cut(found.devices)


def test_data_parallel_has_a_pool_for_each_replica(tmp_path: Path) -> None:
    """DP=8: a whole model on every device, and each device's pool is that of its own replica."""
    used = tuple(1_000 * (n + 1) for n in range(8))
    state = NodeState(
        devices=tuple(h100(index, 60 * GIB + RESIDUAL) for index in range(8)),
        gpu_processes=tuple(held(index, 110 + index, 60 * GIB) for index in range(8)),
    )
    titles = {100: "vllm serve m", 101: "VLLM::DPCoordinator"}
    titles |= {110 + n: f"VLLM::EngineCore_DP{n}" for n in range(8)}
    found = observed(tmp_path, state, Served(titles=titles, used_blocks=used, blocks=20_000))

    for n, device in enumerate(found.devices):
        parts = closed(device)
        assert parts["weights chat"] == WHOLE
        assert parts["kv_used chat"] == used[n] * BLOCK
        assert parts["kv_available chat"] == (20_000 - used[n]) * BLOCK
        assert parts["runtime chat"] == 60 * GIB - WHOLE - 20_000 * BLOCK
        assert (parts["other_processes"], parts["hidden"]) == (0, RESIDUAL)
    (server,) = found.servers
    assert [pool.replica for pool in server.pools] == [str(n) for n in range(8)]
    assert [rank.replica for rank in server.ranks] == [str(n) for n in range(8)]


def test_two_servers_on_one_gpu(tmp_path: Path) -> None:
    """Each has what its own processes hold; a third process is nobody's."""
    state = NodeState(
        devices=(h100(0, 72 * GIB + RESIDUAL),),
        gpu_processes=(held(0, 101, 40 * GIB), held(0, 201, 30 * GIB), held(0, 999, 2 * GIB)),
    )
    chat = Served(titles={100: "vllm serve m", 101: "VLLM::EngineCore"}, used_blocks=(500,), blocks=8_000)
    code = replace(
        chat,
        name="code",
        port=8001,
        titles={200: "vllm serve m", 201: "VLLM::EngineCore"},
        used_blocks=(0,),
        blocks=4_000,
    )
    found = observed(tmp_path, state, chat, code)

    assert closed(found.devices[0]) == {
        "weights chat": WHOLE,
        "kv_used chat": 500 * BLOCK,
        "kv_available chat": 7_500 * BLOCK,
        "runtime chat": 40 * GIB - WHOLE - 8_000 * BLOCK,
        "weights code": WHOLE,
        "kv_used code": 0,
        "kv_available code": 4_000 * BLOCK,
        "runtime code": 30 * GIB - WHOLE - 4_000 * BLOCK,
        "other_processes": 2 * GIB,
        "reserved": RESERVED,
        "hidden": RESIDUAL,
        "free": 81559 * MIB - RESERVED - RESIDUAL - 72 * GIB,
    }


def test_seven_mig_instances(tmp_path: Path) -> None:
    """Seven devices of one GPU, each with a server of its own, also where two compute instances share one."""
    instances = tuple(
        InstanceState(
            index=0,
            instance=gi,
            compute_instance=ci,
            uuid=f"MIG-{gi}" + ("-second" if ci else ""),
            name="NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            total_bytes=9984 * MIB,
            allocated_bytes=gi * GIB + 12 * MIB,
        )
        for gi, ci in ((1, 0), (2, 0), (3, 0), (4, 0), (4, 1), (5, 0), (6, 0), (7, 0))
    )
    state = NodeState(
        devices=(h100(0, 81 * MIB),),
        instances=instances,
        gpu_processes=tuple(
            GpuProcess(index=0, instance=gi, pid=100 * gi + 1, used_bytes=gi * GIB) for gi in range(1, 8)
        ),
    )
    servers = [
        Served(
            name=f"m{gi}",
            port=8000 + gi,
            titles={100 * gi: "vllm serve m", 100 * gi + 1: "VLLM::EngineCore"},
            used_blocks=(10 * gi,),
            blocks=1_000,
            config=TINY_LLAMA,
            tensor_bytes=TINY_LLAMA_BYTES,
        )
        for gi in range(1, 8)
    ]
    found = observed(tmp_path, state, *servers)

    assert [(device.gpu, device.index, device.memory_kind) for device in found.devices] == [
        (f"0:{gi}", 0, "mig") for gi in range(1, 8)
    ]
    for gi, device in enumerate(found.devices, 1):
        assert closed(device) == {
            f"weights m{gi}": TINY_LLAMA_BYTES,
            f"kv_used m{gi}": 10 * gi * TINY_BLOCK,
            f"kv_available m{gi}": (1_000 - 10 * gi) * TINY_BLOCK,
            f"runtime m{gi}": gi * GIB - TINY_LLAMA_BYTES - 1_000 * TINY_BLOCK,
            "other_processes": 0,
            "reserved": 0,
            "hidden": 12 * MIB,
            "free": 9984 * MIB - gi * GIB - 12 * MIB,
        }
    assert [server.ranks[0].gpu for server in found.servers] == [f"0:{gi}" for gi in range(1, 8)]


def test_gb10(tmp_path: Path) -> None:
    """The host's memory is the GPU's: what GPU processes hold is theirs, what the host keeps is its own."""
    total, available = 127_600_748 * 1024, 50 * GIB
    state = NodeState(
        devices=(replace(h100(0, 0), name="NVIDIA GB10", total_bytes=0, reserved_bytes=0),),
        host=HostState(total_bytes=total, available_bytes=available, some_seconds=1.5),
        faults=(("memory", 0, 3), ("memory_v2", 0, 3), ("bar1", 0, 3)),
        gpu_processes=(held(0, 101, 40 * GIB), held(0, 999, GIB)),
    )
    server = Served(titles={100: "vllm serve m", 101: "VLLM::EngineCore"}, used_blocks=(500,), blocks=8_000)
    found = observed(tmp_path, state, server)

    (device,) = found.devices
    assert device.memory_kind == "unified"
    assert closed(device) == {
        "weights chat": WHOLE,
        "kv_used chat": 500 * BLOCK,
        "kv_available chat": 7_500 * BLOCK,
        "runtime chat": 40 * GIB - WHOLE - 8_000 * BLOCK,
        "other_processes": GIB,
        "host": total - available - 41 * GIB,
        "free": available,
    }
    assert found.host_memory is not None
    assert found.host_memory.pressure_seconds["some"] == 1.5


def test_gh200(tmp_path: Path) -> None:
    """10 GiB of the OS's pages in GPU memory are hidden, and there is no headroom to be alarmed about."""
    device = replace(
        h100(0, 50 * GIB + RESIDUAL),
        name="NVIDIA GH200 480GB",
        total_bytes=97871 * MIB,
        reserved_bytes=1103 * MIB,
    )
    state = NodeState(
        devices=(device,),
        numa={0: 1},
        host=HostState(total_bytes=480 * GIB, available_bytes=400 * GIB),
        faults=(("bar1", 0, 3),),
        gpu_processes=(held(0, 101, 40 * GIB),),
    )
    server = Served(titles={100: "vllm serve m", 101: "VLLM::EngineCore"}, used_blocks=(500,), blocks=8_000)
    found = observed(tmp_path, state, server)

    (grace,) = found.devices
    assert closed(grace) == {
        "weights chat": WHOLE,
        "kv_used chat": 500 * BLOCK,
        "kv_available chat": 7_500 * BLOCK,
        "runtime chat": 40 * GIB - WHOLE - 8_000 * BLOCK,
        "other_processes": 0,
        "reserved": 1103 * MIB,
        "hidden": 10 * GIB + RESIDUAL,
        "free": (97871 - 1103) * MIB - 50 * GIB - RESIDUAL,
    }
    assert (grace.memory_kind, grace.headroom_ratio) == ("device", None)
    assert "NUMA node 1" in grace.notes[0]
    assert found.host_memory is None


def test_pids_invisible(tmp_path: Path) -> None:
    """A container without the host's pids: the server's computed parts where settings place it, the rest hidden."""
    state = NodeState(devices=(h100(0, 60 * GIB), h100(1, 0)))
    server = Served(
        titles={100: "vllm serve m", 101: "VLLM::EngineCore"}, used_blocks=(500,), blocks=8_000, devices=("GPU-0",)
    )
    found = observed(tmp_path, state, server)

    assert closed(found.devices[0]) == {
        "weights chat": WHOLE,
        "kv_used chat": 500 * BLOCK,
        "kv_available chat": 7_500 * BLOCK,
        "reserved": RESERVED,
        "hidden": 60 * GIB - WHOLE - 8_000 * BLOCK,
        "free": 81559 * MIB - RESERVED - 60 * GIB,
    }
    assert closed(found.devices[1]) == {
        "other_processes": 0,
        "reserved": RESERVED,
        "hidden": 0,
        "free": 81559 * MIB - RESERVED,
    }
    failing = {(one.name, one.target): one.error for one in found.collectors if not one.success}
    assert failing.keys() == {("processes", "GPU-0")}
    assert "--pid=host" in (failing["processes", "GPU-0"] or "")


def test_wsl(tmp_path: Path) -> None:
    """Processes without bytes and no v2 figures: the computed parts are all that can be told apart."""
    state = NodeState(
        devices=(h100(0, 60 * GIB),),
        gpu_processes=(held(0, 101, None), held(0, 999, None)),
        faults=(("memory_v2", None, 999),),
    )
    server = Served(titles={100: "vllm serve m", 101: "VLLM::EngineCore"}, used_blocks=(500,), blocks=8_000)
    found = observed(tmp_path, state, server)

    assert closed(found.devices[0]) == {
        "weights chat": WHOLE,
        "kv_used chat": 500 * BLOCK,
        "kv_available chat": 7_500 * BLOCK,
        "other_processes": 0,
        "hidden": 60 * GIB + RESERVED - WHOLE - 8_000 * BLOCK,
        "free": 81559 * MIB - RESERVED - 60 * GIB,
    }
