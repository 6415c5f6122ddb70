"""vLLM's planner: real runs, defaults and rules by version."""

from typing import Any

import pytest

from agent.memory.arguments import Arguments, Resolved, from_reported, merge
from agent.memory.budget import Budget, Device, compute
from agent.memory.model_config import parse_model
from agent.memory.planners.vllm.rules import rules_for
from agent.memory.planners.vllm.settings import resolve
from collectors.readings import ModelFiles
from tests.agent.memory.models import GIB, budget, config

H100 = Device(name="NVIDIA H100 80GB HBM3", total_bytes=85_520_809_984, cuda_bytes=85_018_542_080)
TINY_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
}
TINY_MLA: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 64,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
}


@pytest.mark.parametrize(
    ("content", "flags", "blocks", "tokens"),
    [
        (TINY_LLAMA, {"block_size": 32}, 65_536, 2_097_152),  # 2 x 2 layers x 2 heads x 32 x 2 B = 512 B a token
        (TINY_LLAMA, {"block_size": 32, "kv_cache_dtype": "fp8"}, 131_072, 4_194_304),  # 256 B
        (TINY_MLA, {"block_size": 128}, 2_427, 310_656),  # 3 x 576 x 2 B = 3,456 B
    ],
    ids=["llama", "llama-fp8", "mla"],
)
def test_what_real_servers_logged(content: dict[str, Any], flags: dict[str, Any], blocks: int, tokens: int) -> None:
    """vLLM 0.32 on CPU with 1 GiB for KV."""
    kv = budget(content, engine_version="0.32.0", kv_cache_memory_bytes=GIB, **flags).ranks[0].kv

    assert (blocks, tokens) == (kv.blocks, kv.pool_tokens)


def test_a_block_override_wins() -> None:
    """A real server with 100 blocks of 32 tokens: 1,638,400 bytes, 3,200 tokens, 1.5625 requests of 2,048."""
    kv = budget(TINY_LLAMA, block_size=32, kv_cache_memory_bytes=GIB, num_gpu_blocks=100).ranks[0].kv

    assert (kv.blocks, kv.pool_bytes, kv.pool_tokens, kv.max_concurrency) == (100, 1_638_400, 3_200, 1.5625)


def test_the_pool_is_what_weights_and_runtime_leave() -> None:
    """requested = ceil(CUDA total x 0.92); less weights, activations, graphs and libraries; whole blocks."""
    rank = budget(config("llama-3.1-8b"), H100, tensor_bytes=16_060_522_496).ranks[0]

    runtime = rank.runtime
    assert runtime is not None
    assert runtime.outside == ("context",)
    available = 78_217_058_714 - 16_060_522_496 - (runtime.likely - runtime.context.likely)
    assert available // 2_097_152 == rank.kv.blocks
    assert rank.total_bytes == 16_060_522_496 + (rank.kv.pool_bytes or 0) + runtime.likely
    assert rank.headroom_bytes == 85_018_542_080 - (rank.total_bytes or 0) + runtime.activations.likely


@pytest.mark.parametrize(
    ("version", "fraction", "graphs_outside", "pool_by_bytes", "communication_outside"),
    [
        ("0.8.5.post1", 0.9, True, False, False),
        ("0.10.1", 0.9, True, False, False),
        ("0.10.2", 0.9, True, True, False),
        ("0.19.1", 0.9, True, True, False),
        ("v0.20.0", 0.92, True, True, False),
        ("0.20.2rc1", 0.92, False, True, False),
        ("0.21", 0.92, False, True, False),
        ("0.28.0", 0.92, False, True, True),
        ("0.33.0+cpu", 0.92, False, True, True),
    ],
)
def test_rules_by_version(
    version: str, fraction: float, graphs_outside: bool, pool_by_bytes: bool, communication_outside: bool
) -> None:
    """The fraction, what counts against it, and flags, by version."""
    rules, warning = rules_for(version)
    outside = budget(config("llama-3.1-8b"), H100, tp=2, engine_version=version).ranks[0].runtime

    assert warning is None
    assert outside is not None
    assert (fraction, pool_by_bytes) == (rules.fraction, rules.pool_by_bytes)
    assert graphs_outside == ("cuda_graphs" in outside.outside)
    assert communication_outside == ("non_torch" in outside.outside)


@pytest.mark.parametrize(
    ("version", "fraction", "said"),
    [
        ("0.34.0", 0.92, "vLLM 0.34.0 is newer than the rules known here; those of 0.33 are used"),
        ("1.0", 0.92, "vLLM 1.0 is newer than the rules known here; those of 0.33 are used"),
        ("0.6.6", 0.9, "vLLM 0.6.6 is older than the rules known here; those of 0.8 are used"),
        ("nightly", 0.92, "vLLM version 'nightly' can't be read; the rules of 0.33 are used"),
    ],
)
def test_an_unknown_version_is_said(version: str, fraction: float, said: str) -> None:
    """The nearest rules are used, with a warning that names them."""
    result = budget(config("llama-3.1-8b"), engine_version=version)

    assert (said, Resolved(value=fraction, source="default")) == (
        result.warnings[0],
        result.arguments["gpu_memory_utilization"],
    )


def test_log_tokens_before_0_20() -> None:
    """Blocks x block size then, concurrency x max_model_len since: they differ when a request fills no whole block."""
    flags: dict[str, Any] = {"kv_pool_bytes": GIB, "max_model_len": 1000}

    old = budget(config("llama-3.1-8b"), engine_version="0.19.1", **flags).ranks[0].kv
    new = budget(config("llama-3.1-8b"), engine_version="0.20.0", **flags).ranks[0].kv

    assert (512 * 16, int(512 / 63 * 1000)) == (old.pool_tokens, new.pool_tokens)


@pytest.mark.parametrize(
    ("name", "total_bytes", "expected"),
    [
        ("NVIDIA B200", 183_359 << 20, (16_384, 1024)),
        ("NVIDIA H100 80GB HBM3", 81_559 << 20, (8192, 1024)),
        ("NVIDIA A100-SXM4-80GB", 81_920 << 20, (2048, 256)),
        ("NVIDIA L4", 23_034 << 20, (2048, 256)),
        (None, None, (2048, 256)),
    ],
)
def test_step_defaults_by_device(name: str | None, total_bytes: int | None, expected: tuple[int, int]) -> None:
    """Large devices batch more; A100s do not, and an unknown device is taken as small."""
    device = Device(name=name, total_bytes=total_bytes)

    settings = resolve(Arguments(), parse_model(config("llama-3.1-8b")), device, draft=None)

    assert expected == (settings.max_num_batched_tokens, settings.max_num_seqs)


@pytest.mark.parametrize(
    ("name", "block_size", "context"),
    [("llama-3.1-8b", 16, 131_072), ("deepseek-v3", 64, 163_840), ("deepseek-coder-33b", 16, 65_536)],
)
def test_defaults_from_the_checkpoint(name: str, block_size: int, context: int) -> None:
    """MLA has blocks of 64; a linear rope factor lengthens the context: 16,384 x 4."""
    arguments = budget(config(name)).arguments

    assert Resolved(value=block_size, source="default") == arguments["block_size"]
    assert Resolved(value=context, source="checkpoint") == arguments["max_model_len"]


def test_every_value_has_its_source() -> None:
    """Given, reported, from the checkpoint, or default."""
    reported, _ = from_reported({"block_size": 32, "tp": 4, "engine_version": "0.32.0"}, engine="vllm")
    arguments = merge(Arguments(tp=2), reported)

    found = compute(ModelFiles(path="m", config=config("llama-3.1-8b")), arguments, Device()).arguments

    sources = {name: found[name].source for name in ("tp", "block_size", "engine_version", "dtype", "pp")}
    assert sources == {
        "tp": "given",
        "block_size": "reported",
        "engine_version": "reported",
        "dtype": "checkpoint",
        "pp": "default",
    }
    assert found["tp"].value == 2


def _said(result: Budget, text: str) -> bool:
    return any(text in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"tp": 16}, "KV heads are replicated: 8 heads for 16 tensor-parallel ranks"),
        ({"tp": 3}, "vLLM refuses tp 3: the model's 32 attention heads are not divisible by it"),
        ({"max_model_len": 200_000}, "vLLM refuses max_model_len 200000 above the model's 131072 by default"),
        ({"max_num_seqs": 512, "max_num_batched_tokens": 256}, "vLLM refuses max_num_seqs 512"),
        (
            {"kv_cache_memory_bytes": GIB, "gpu_memory_utilization": 0.5},
            "gpu_memory_utilization is ignored: kv_cache_memory_bytes sizes the pool",
        ),
        (
            {"kv_cache_memory_bytes": GIB, "engine_version": "0.9.0"},
            "vLLM 0.9.0 has no kv_cache_memory_bytes; it is ignored",
        ),
    ],
)
def test_contradictions_are_said(flags: dict[str, Any], said: str) -> None:
    """What the engine would refuse, replicate or ignore."""
    assert _said(budget(config("llama-3.1-8b"), **flags), said)


def test_a_context_beyond_the_model_is_refused_unless_it_runs() -> None:
    """vLLM doesn't start with it by default; one that reports it has been told to."""
    files = ModelFiles(path="/models/llama", config=config("llama-3.1-8b"))
    given = Arguments(max_model_len=200_000)
    reported, _ = from_reported({"max_model_len": 200_000}, engine="vllm")

    assert any("max_model_len 200000" in text for text in compute(files, given, Device()).refused)
    assert compute(files, merge(Arguments(), reported), Device()).refused == ()


def test_replication_of_kv_heads_and_latents_is_said() -> None:
    """Four KV heads on 8 ranks; one latent on 8 ranks; 10 heads that 4 ranks can't share."""
    assert _said(budget(config("qwen3-30b-a3b"), tp=8), "KV heads are replicated: 4 heads for 8")
    assert _said(budget(config("deepseek-v3"), tp=8), "the latent KV is replicated on all 8")
    assert _said(
        budget(config("phi-4-14b"), tp=4), "vLLM refuses tp 4: the model's 10 KV heads are not divisible by it"
    )


def test_the_stage_with_the_fewest_blocks_decides() -> None:
    """61 layers on 2 stages of one size: the stage with 31 layers has fewer blocks, and both get as many."""
    result = budget(config("deepseek-v3"), pp=2, kv_pool_bytes=20 * GIB)

    first, second = (rank.kv for rank in result.ranks)
    assert (first.groups[0].layers, second.groups[0].layers) == (31, 30)
    assert 20 * GIB // (31 * 73_728) == first.blocks == second.blocks
    assert (first.blocks or 0) * 30 * 73_728 == second.pool_bytes


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"pp": 33}, "argument 'pp': expected at most the model's 32 layers, got 33"),
        (
            {"pp": 2, "pp_layers": (16, 15)},
            "argument 'pp_layers': expected 2 stage(s) with 32 layers in all, got 2 with 31",
        ),
        (
            {"pp_layers": "16,16"},
            "argument 'pp_layers': expected 1 stage(s) with 32 layers in all, got 2 with 32",
        ),
    ],
)
def test_stages_that_do_not_match(flags: dict[str, Any], said: str) -> None:
    """One sentence."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        budget(config("llama-3.1-8b"), **flags)

    assert said == str(caught.value)


def test_given_stages() -> None:
    """``pp_layers`` splits as given."""
    ranks = budget(config("llama-3.1-8b"), pp=2, pp_layers="20,12").ranks

    assert [rank.kv.groups[0].layers for rank in ranks] == [20, 12]
