"""The budget against the real vLLM's own planner: blocks, tokens and concurrency as its log has them, nothing fixed."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from agent.memory.arguments import Arguments
from agent.memory.budget import Device, KvBudget, compute
from collectors.model_files import read_model
from tests.engines.beside import NAME, Node, after
from tests.engines.install_vllm import VERSION
from tests.engines.tiny_models import TinyModel, make_llama, make_mla
from tests.engines.vllm_server import CACHE_BYTES, FP8_REFUSED, MAX_MODEL_LEN, ServerFailed, VllmServer
from tests.program import running

pytestmark = pytest.mark.engines


class Case(Struct, frozen=True, kw_only=True):
    """A model, how it is served, and its KV bytes per token derived by hand."""

    make: Callable[[Path], TinyModel]
    flags: tuple[str, ...] = ()
    kv_cache_dtype: str | None = None
    dtype: str | None = None
    bytes_per_token: int


CASES = {
    "llama": Case(make=make_llama, flags=("--block-size", "32"), bytes_per_token=2 * 2 * 2 * 32 * 2),
    "llama-float32": Case(
        make=make_llama,
        flags=("--block-size", "32", "--dtype", "float32"),
        dtype="float32",
        bytes_per_token=2 * 2 * 2 * 32 * 4,
    ),
    "llama-fp8": Case(
        make=make_llama,
        flags=("--block-size", "32", "--kv-cache-dtype", "fp8"),
        kv_cache_dtype="fp8",
        bytes_per_token=2 * 2 * 2 * 32,
    ),
    "mla": Case(make=make_mla, bytes_per_token=3 * (512 + 64) * 2),  # its CPU kernel sets the block size
}


@pytest.mark.parametrize("name", CASES)
def test_budget_is_what_the_engine_planned(name: str, vllm_command: Path, tmp_path: Path) -> None:
    """With 1 GiB for the cache, the budget has the blocks, tokens and concurrency of the engine's log and labels."""
    case = CASES[name]
    model = case.make(tmp_path / f"tiny-{name}")
    server = VllmServer(
        command=vllm_command, model=model.path, name=model.path.name, log=tmp_path / "vllm.log", arguments=case.flags
    )
    try:
        with server:
            labels = server.scrape().labels("vllm:cache_config_info")
            block_size, blocks = int(labels["block_size"]), int(labels["num_gpu_blocks"])
            _agent_says_so(server, model, tmp_path, case, blocks * block_size)
    except ServerFailed as exc:
        if FP8_REFUSED not in str(exc):
            raise
        block_size, blocks = 32, server.planned().tokens // 32  # planned before this CPU refused to run it
    planned = server.planned()

    budget = _budget(case, model, block_size)

    assert budget.bytes_per_token == case.bytes_per_token
    assert budget.blocks == CACHE_BYTES // (case.bytes_per_token * block_size) == blocks
    assert budget.pool_tokens == planned.tokens == blocks * block_size
    assert budget.max_concurrency is not None
    assert f"{budget.max_concurrency:.2f}" == f"{planned.concurrency:.2f}"


def _budget(case: Case, model: TinyModel, block_size: int) -> KvBudget:
    arguments = Arguments(
        engine="vllm",
        engine_version=VERSION,
        dtype=case.dtype,
        kv_cache_dtype=case.kv_cache_dtype,
        block_size=block_size,
        max_model_len=MAX_MODEL_LEN,
        kv_pool_bytes=CACHE_BYTES,
        enforce_eager=True,
    )
    (rank,) = compute(read_model(model.path), arguments, Device()).ranks
    assert rank.weights_bytes == model.tensor_bytes * (2 if case.dtype == "float32" else 1)
    return rank.kv


def _agent_says_so(server: VllmServer, model: TinyModel, folder: Path, case: Case, tokens: int) -> None:
    """The agent beside it finds out all this by itself, from the server's labels and the model's files."""
    node = Node(folder, server, model.path, arguments={"dtype": case.dtype} if case.dtype else {})
    node.occupy(server, weights_bytes=model.tensor_bytes * 2, pool_bytes=CACHE_BYTES)
    with running("run", "--config", str(node.config), "--listen", "127.0.0.1:0", environment=node.environment) as agent:
        agent.until(lambda: "vramscope_kv_pool_bytes" in agent.metrics())
        said = after(agent, time.time())

    assert said.metric("kv_capacity_tokens", server=NAME) == tokens
    assert said.metric("kv_bytes_per_token", server=NAME) == case.bytes_per_token
    assert said.metric("kv_pool_bytes", server=NAME, gpu="0") == tokens * case.bytes_per_token
    assert sum(said.components().values()) == said.device["total_bytes"]
