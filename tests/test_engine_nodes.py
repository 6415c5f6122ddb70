"""Whole nodes with servers of other engines than vLLM, from their answers to the closed sum, each byte by hand."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from agent.board import Board
from agent.settings import arguments_of
from agent.snapshot import Snapshot
from agent.watch import ServerFacts, ServerWatch
from collectors.http_text import Endpoint
from collectors.model_files import read_engine
from collectors.nvml.passes import Passes
from collectors.readings import Fault, LogReading, ModelFiles, NodeReading, ProcessTree, ServerProcess
from collectors.registry import ENGINES
from collectors.run import Outcome, run
from collectors.simulated.driver import SimulatedDriver
from collectors.simulated.state import NodeState, write_state
from tests.collectors.replay import FIXTURES
from tests.node import TINY_LLAMA, TINY_LLAMA_BYTES
from tests.test_nodes import (
    EMBEDDING,
    GIB,
    LAYER_MATRICES,
    LLAMA_8B,
    MIB,
    NORM,
    RESERVED,
    RESIDUAL,
    WHOLE,
    closed,
    h100,
    held,
)

SLOT = 2 * 2 * 2 * 32 * 2  # of the tiny Llama: layers x (K and V) x heads x width x 2 bytes
TOKEN = 32 * 2 * 8 * 128 * 2  # of Llama 8B
SGLANG = FIXTURES / "sglang" / "recorded-0.5.23"
RANK = 'model_name="m",engine_type="unified",pp_rank="0"'


class Served(Struct, frozen=True, kw_only=True):
    """One server: its processes by pid, the first one listens, and what it answers by path; without any, who listens
    on its port is hidden."""

    engine: str
    name: str = "chat"
    port: int = 8000
    titles: dict[int, str]
    documents: Mapping[str, str]
    config: dict[str, Any] | None = msgspec.field(default_factory=lambda: LLAMA_8B)
    tensor_bytes: int = WHOLE
    engine_folder: Path | None = None
    flags: dict[str, Any] = {}
    devices: tuple[str, ...] = ()
    command: dict[str, Any] = {}  # of its command line alone
    log: LogReading | None = None

    def tree(self) -> ProcessTree:
        processes = (ServerProcess(pid=pid, started_at=1.0, title=title) for pid, title in self.titles.items())
        return ProcessTree(at=1.0, processes=tuple(processes))


def observed(folder: Path, state: NodeState, *servers: Served) -> Snapshot:
    """What the agent says about a node after it read every source once."""
    write_state(folder / "node.state", state)
    driver = SimulatedDriver(folder / "node.state")
    driver.start()
    passes = Passes(driver, announce=lambda _: None, clock=lambda: 1.0, processes_interval_seconds=5.0)
    watches = [_watch(server) for server in servers]
    board = Board(watches, memory_interval_seconds=1.0, clock=lambda: 1.0, wall=lambda: 1.7e9)
    board.took_node(msgspec.convert(passes.read(), NodeReading))
    for watch, server in zip(watches, servers, strict=True):
        asyncio.run(_read(board, watch, server))
    return board.tick().snapshot


def _watch(server: Served) -> ServerWatch:
    facts = ServerFacts(
        name=server.name,
        engine=server.engine,
        url=f"http://127.0.0.1:{server.port}",
        given=arguments_of(server.flags, engine=server.engine),
        devices=server.devices,
    )
    engine = ENGINES[server.engine]
    return ServerWatch(facts, rank_of=engine.rank_of, is_one_process=engine.is_one_process)


async def _read(board: Board, watch: ServerWatch, server: Served) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        body = server.documents.get(request.url.path)
        return httpx.Response(404 if body is None else 200, stream=httpx.ByteStream((body or "").encode()))

    engine = ENGINES[server.engine]
    endpoint = Endpoint(watch.facts.url, paths=engine.paths, deadline_seconds=5, transport=httpx.MockTransport(answer))
    reader = engine.open(endpoint, clock=lambda: 1.0, flags={**server.flags, **server.command})
    board.took_server(watch, await run("endpoint", server.name, reader.read, deadline_seconds=5, clock=lambda: 1.0))
    hidden = None if server.titles else Fault(reason="no_permission", message="who listens there is hidden")
    board.took_tree(watch, _done(server.tree() if server.titles else None, fault=hidden))
    if server.engine_folder is not None:
        board.took_model(watch, _done(read_engine(server.engine_folder)))
    elif server.config is not None:
        model = ModelFiles(path="/m", config=server.config, tensor_bytes=server.tensor_bytes, tensor_source="index")
        board.took_model(watch, _done(model))
    if server.log is not None:
        board.took_log(watch, _done(server.log))


def _done(value: object, *, fault: Fault | None = None) -> Outcome:  # type: ignore[type-arg] # of whatever is given
    return Outcome(value=value, fault=fault, duration_seconds=0.0, at=1.0)


def recorded_sglang(page: str) -> dict[str, str]:
    return {
        "/metrics": (SGLANG / f"metrics_{page}.txt").read_text(encoding="utf-8"),
        "/server_info": (SGLANG / "server_info.json").read_text(encoding="utf-8"),
    }


def sglang_page(*lines: str) -> dict[str, str]:
    """Lines such as "kv_used_tokens 5", of the first rank."""
    page = "".join(
        f"sglang:{name}{{{RANK},{labels or 'tp_rank=' + chr(34) + '0' + chr(34)}}} {value}\n"
        for name, labels, value in (line.split("|") for line in lines)
    )
    return {"/metrics": page, "/server_info": json.dumps({"version": "0.5.23"})}


def one_gpu(size: int, pid: int = 101) -> NodeState:
    return NodeState(devices=(h100(0, size + RESIDUAL),), gpu_processes=(held(0, pid, size),))


def test_sglang_full_of_cached_prefixes(tmp_path: Path) -> None:
    """3,188 of 3,200 slots keep prefixes for reuse: they are cached, not used; the slot nobody gets counts as free."""
    server = Served(
        engine="sglang",
        titles={100: "python -m sglang.launch_server", 101: "sglang::scheduler"},
        documents=recorded_sglang("after"),
        config=TINY_LLAMA,
        tensor_bytes=TINY_LLAMA_BYTES,
    )
    found = observed(tmp_path, one_gpu(GIB), server)

    assert closed(found.devices[0]) == {
        "weights chat": TINY_LLAMA_BYTES,
        "kv_used chat": 0,
        "kv_cached chat": 3188 * SLOT,
        "kv_free chat": (12 + 1) * SLOT,
        "runtime chat": GIB - TINY_LLAMA_BYTES - 3201 * SLOT,
        "other_processes": 0,
        "reserved": RESERVED,
        "hidden": RESIDUAL,
        "free": 81559 * MIB - RESERVED - RESIDUAL - GIB,
    }
    (pool,) = found.servers[0].pools
    assert (pool.used_tokens, pool.cached_tokens, pool.free_tokens, pool.used_ratio) == (0, 3188, 12, 0.0)
    assert (pool.pool_bytes, pool.bytes_per_token) == (3201 * SLOT, SLOT)
    evidence = {part.component: part.evidence for part in found.devices[0].components if part.server}
    assert evidence["kv_cached"] == "reported"
    assert evidence["weights"] == "computed"


def test_sglang_pages_that_only_its_metrics_tell(tmp_path: Path) -> None:
    """The page has the tokens of a page, its arguments are not served: a block is a page, not a token."""
    server = Served(
        engine="sglang",
        titles={100: "python -m sglang.launch_server", 101: "sglang::scheduler"},
        documents={"/metrics": (FIXTURES / "sglang" / "0.5.9" / "metrics.txt").read_text(encoding="utf-8")},
    )

    found = observed(tmp_path, one_gpu(40 * GIB), server)

    (pool,) = found.servers[0].pools
    assert (pool.block_size, pool.bytes_per_token) == (16, TOKEN)
    assert pool.pool_bytes == (250 + 1) * 16 * TOKEN


def test_sglang_under_load_and_without_its_model(tmp_path: Path) -> None:
    """The engine's own figure of the pool's bytes is enough to tell what fills it."""
    server = Served(
        engine="sglang",
        titles={100: "sglang serve", 101: "sglang::scheduler"},
        documents=recorded_sglang("nearfull"),
        config=None,
    )
    found = observed(tmp_path, one_gpu(GIB), server)

    parts = closed(found.devices[0])
    assert parts["kv_used chat"] == 2899 * SLOT
    assert parts["kv_cached chat"] == 63 * SLOT
    assert parts["kv_free chat"] == (238 + 1) * SLOT
    assert parts["runtime chat"] == GIB - 3201 * SLOT


def test_sglang_whose_metrics_are_off(tmp_path: Path) -> None:
    """Its loads say how many slots are in use; with its model they are bytes, and what is not in use is available."""
    loads = {"loads": [{"dp_rank": 0, "num_running_reqs": 1, "num_used_tokens": 1000, "max_total_num_tokens": 3200}]}
    server = Served(
        engine="sglang",
        titles={100: "sglang serve", 101: "sglang::scheduler"},
        documents={"/v1/loads": json.dumps(loads), "/server_info": recorded_sglang("after")["/server_info"]},
        config=TINY_LLAMA,
        tensor_bytes=TINY_LLAMA_BYTES,
    )
    found = observed(tmp_path, one_gpu(GIB), server)

    parts = closed(found.devices[0])
    assert parts["weights chat"] == TINY_LLAMA_BYTES
    assert parts["kv_used chat"] == 1000 * SLOT
    assert parts["kv_available chat"] == (2200 + 1) * SLOT
    assert parts["runtime chat"] == GIB - TINY_LLAMA_BYTES - 3201 * SLOT


def test_sglang_over_four_ranks_before_it_told_cached_from_free(tmp_path: Path) -> None:
    """TP=4 of 0.5.9: two of eight KV heads on each rank; what is not in use is available."""
    documents = sglang_page(
        "max_total_num_tokens||100000",
        "num_used_tokens||40000",
        'cache_config_info|page_size="16",num_pages="6250",tp_rank="0"|1',
    )
    server = Served(
        engine="sglang",
        titles={100: "sglang serve", **{110 + n: f"sglang::scheduler_TP{n}" for n in range(4)}},
        documents=documents | {"/server_info": '{"version": "0.5.9", "tp_size": 4, "page_size": 16}'},
    )
    state = NodeState(
        devices=tuple(h100(n, 30 * GIB + RESIDUAL) for n in range(4)),
        gpu_processes=tuple(held(n, 110 + n, 30 * GIB) for n in range(4)),
    )
    found = observed(tmp_path, state, server)

    weights = (32 * LAYER_MATRICES + 2 * EMBEDDING) // 4 + (2 * 32 + 1) * NORM
    for device in found.devices:
        parts = closed(device)
        assert parts["weights chat"] == weights
        assert parts["kv_used chat"] == 40_000 * TOKEN // 4
        assert parts["kv_available chat"] == (60_000 + 16) * TOKEN // 4
        assert parts["runtime chat"] == 30 * GIB - weights - 100_016 * TOKEN // 4
    assert [(rank.gpu, rank.tp_rank) for rank in found.servers[0].ranks] == [(str(n), n) for n in range(4)]


def test_sglang_tells_weights_and_graphs_where_no_model_is_known(tmp_path: Path) -> None:
    """In GiB, as it measured them while it started."""
    documents = sglang_page(
        "max_total_num_tokens||1000",
        "num_used_tokens||0",
        "weight_memory_usage_gb||15",
        'graph_memory_usage_gb|phase="decode",tp_rank="0"|0.5',
        'graph_memory_usage_gb|phase="prefill",tp_rank="0"|0.25',
    )
    server = Served(
        engine="sglang", titles={100: "sglang serve", 101: "sglang::scheduler"}, documents=documents, config=None
    )
    found = observed(tmp_path, one_gpu(40 * GIB), server)

    parts = closed(found.devices[0])
    assert parts["weights chat"] == 15 * GIB
    assert parts["cuda_graphs chat"] == 768 * MIB
    assert parts["runtime chat"] == 40 * GIB - 15 * GIB - 768 * MIB
    assert not any(component.startswith("kv") for component in parts)


def test_sglang_windows_and_states_stand_apart(tmp_path: Path) -> None:
    """A model whose windows have a pool of their own: its bytes are `state`, the pool of full attention is KV."""
    config = {
        **LLAMA_8B,
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 128,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "head_dim": 64,
    }
    documents = sglang_page(
        "max_total_num_tokens||10000",
        "kv_used_tokens||1000",
        "kv_evictable_tokens||2000",
        "kv_available_tokens||7000",
        "page_size||1",
        "max_total_num_tokens_swa||8000",
        "swa_used_tokens||100",
        "swa_evictable_tokens||200",
        "swa_available_tokens||7700",
        "kv_cache_memory_usage_gb||0.034",
    )
    server = Served(
        engine="sglang",
        titles={100: "sglang serve", 101: "sglang::scheduler"},
        documents=documents,
        config=config,
        tensor_bytes=GIB,
    )
    found = observed(tmp_path, one_gpu(4 * GIB), server)

    layer = 2 * 8 * 64 * 2
    parts = closed(found.devices[0])
    assert parts["kv_used chat"] == 1000 * layer
    assert parts["kv_cached chat"] == 2000 * layer
    assert parts["kv_free chat"] == 7001 * layer
    assert parts["state chat"] == 8001 * layer
    pools = {pool.kind: pool for pool in found.servers[0].pools}
    assert pools["window"].pool_bytes == 8001 * layer
    assert (pools["window"].used_tokens, pools["window"].cached_tokens) == (100, 200)


def llama_cpp_documents(*, context: int, held: tuple[tuple[bool, int], ...]) -> dict[str, str]:
    """A llama.cpp whose slots are (busy, tokens held)."""
    slots = [
        {"id": n, "n_ctx": context, "is_processing": busy, "id_task": n, "n_prompt_tokens": tokens}
        for n, (busy, tokens) in enumerate(held)
    ]
    return {
        "/props": json.dumps(
            {
                "total_slots": len(held),
                "build_info": "b11549-1",
                "default_generation_settings": {"n_ctx": context},
                "model_alias": "m",
            }
        ),
        "/slots": json.dumps(slots),
        "/metrics": "llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n",
    }


def vllm_documents(*, blocks: int, used: int) -> dict[str, str]:
    labels = 'engine="0",model_name="m"'
    return {
        "/metrics": f"vllm:num_requests_running{{{labels}}} 1\n"
        f"vllm:kv_cache_usage_perc{{{labels}}} {used / (blocks - 1)!r}\n"
        f'vllm:cache_config_info{{engine="0",block_size="16",num_gpu_blocks="{blocks}"}} 1\n',
        "/version": '{"version": "0.32.0"}',
        "/v1/models": '{"data": [{"id": "m", "max_model_len": 8192}]}',
    }


def test_two_engines_on_one_gpu(tmp_path: Path) -> None:
    """vLLM and llama.cpp: each component is that of the right server; a unified cache is not counted once per slot."""
    vllm = Served(
        engine="vllm",
        titles={100: "vllm serve m", 101: "VLLM::EngineCore"},
        documents=vllm_documents(blocks=8_000, used=500),
    )
    llama_cpp = Served(
        engine="llama_cpp",
        name="code",
        port=8080,
        titles={200: "llama-server -m m.gguf"},
        documents=llama_cpp_documents(context=8192, held=((True, 1000), (False, 700), (False, 0), (False, 0))),
        config=TINY_LLAMA,
        tensor_bytes=TINY_LLAMA_BYTES,
        flags={"kv-unified": True},
    )
    state = NodeState(
        devices=(h100(0, 43 * GIB + RESIDUAL),),
        gpu_processes=(held(0, 101, 40 * GIB), held(0, 200, 2 * GIB), held(0, 9, GIB)),
    )
    found = observed(tmp_path, state, vllm, llama_cpp)

    block = 16 * TOKEN
    assert closed(found.devices[0]) == {
        "weights chat": WHOLE,
        "kv_used chat": 500 * block,
        "kv_available chat": 7_500 * block,
        "runtime chat": 40 * GIB - WHOLE - 8_000 * block,
        "weights code": TINY_LLAMA_BYTES,
        "kv_used code": 1000 * SLOT,
        "kv_cached code": 700 * SLOT,
        "kv_free code": (8192 - 1700) * SLOT,
        "runtime code": 2 * GIB - TINY_LLAMA_BYTES - 8192 * SLOT,
        "other_processes": GIB,
        "reserved": RESERVED,
        "hidden": RESIDUAL,
        "free": 81559 * MIB - RESERVED - RESIDUAL - 43 * GIB,
    }
    pools = {server.name: server.pools[0] for server in found.servers}
    assert (pools["code"].capacity_tokens, pools["code"].pool_bytes) == (8192, 8192 * SLOT)


def test_one_process_on_two_gpus_is_not_divided_by_guess(tmp_path: Path) -> None:
    """llama.cpp puts layers on both by what is free: without its log each has what the process holds there."""
    server = Served(
        engine="llama_cpp",
        titles={200: "llama-server -m m.gguf"},
        documents=llama_cpp_documents(context=8192, held=((True, 1000),)),
        flags={"kv-unified": True},
    )
    state = NodeState(
        devices=tuple(h100(n, 10 * GIB + RESIDUAL) for n in range(2)),
        gpu_processes=tuple(held(n, 200, 10 * GIB) for n in range(2)),
    )
    found = observed(tmp_path, state, server)

    for device in found.devices:
        parts = closed(device)
        assert parts["runtime chat"] == 10 * GIB
        assert not {"weights chat", "kv_used chat"} & parts.keys()


def test_an_ollama_that_loads_and_unloads(tmp_path: Path) -> None:
    """The sum closes with no model, one and two; weights are told apart while one alone is loaded."""
    serve = {300: "ollama serve"}
    runners = {301: "ollama runner --model /b/sha256-a", 302: "ollama runner --model /b/sha256-b"}
    model = '{"name":"m%d","size":9,"size_vram":9,"context_length":4096}'
    expected = {
        0: {"runtime": 0},
        1: {"weights": TINY_LLAMA_BYTES, "runtime": 6 * GIB - TINY_LLAMA_BYTES},
        2: {"runtime": 12 * GIB},
    }
    for count, parts in expected.items():
        server = Served(
            engine="ollama",
            titles={**serve, **dict(list(runners.items())[:count])},
            documents={
                "/api/ps": '{"models":[' + ",".join(model % n for n in range(count)) + "]}",
                "/api/version": '{"version":"0.33.0"}',
            },
            config=TINY_LLAMA if count == 1 else None,
            tensor_bytes=TINY_LLAMA_BYTES,
        )
        state = NodeState(
            devices=(h100(0, count * 6 * GIB + RESIDUAL),),
            gpu_processes=tuple(held(0, 301 + n, 6 * GIB) for n in range(count)),
        )
        found = observed(tmp_path, state, server)

        known = {name.split()[0]: size for name, size in closed(found.devices[0]).items() if name.endswith(" chat")}
        assert known == {name: size for name, size in parts.items() if count}
        assert found.servers[0].state == "serving"
