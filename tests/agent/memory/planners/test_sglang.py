"""SGLang's planner: sizes that servers logged, its defaults, and pools of windows and states."""

from typing import Any

import pytest

from agent.memory.budget import Device
from agent.memory.kv_cache import KvBudget
from agent.memory.planners.sglang.defaults import chunk_and_sequences, prefill_graphs, static_fraction
from agent.memory.runtime import CONTEXT
from tests.agent.memory.models import GIB, budget, config

MIB = 1 << 20


def kv(model: str, **arguments: Any) -> KvBudget:
    return budget(config(model), engine="sglang", **arguments).ranks[0].kv


def test_tokens_and_bytes_of_a_log() -> None:
    """Qwen3-235B at TP 4: 367,404 tokens were logged with 8.23 "GB" of K, which are GiB (vllm#21348)."""
    pool = kv("qwen3-235b-a22b", tp=4, max_total_tokens=367_404)

    assert pool.pool_tokens == 367_404
    assert pool.pool_bytes is not None
    assert pool.pool_bytes == 94 * 2 * 128 * 2 * (367_404 + 1)
    assert f"{pool.pool_bytes / 2 / GIB:.2f}" == "8.23"


def test_sparse_attention_has_an_indexer() -> None:
    """DeepSeek-V3.2 in FP8: 975,424 tokens took 43.67 GiB (sglang#11309): 61 x (656 + 132), in pages of 64."""
    pool = kv("deepseek-v3.2", kv_cache_dtype="fp8_e4m3", max_total_tokens=975_424)

    assert pool.bytes_per_token == 61 * (656 + 132)
    assert pool.pool_bytes == 61 * (656 + 132) * (975_424 + 64)
    assert f"{(pool.pool_bytes or 0) / GIB:.2f}" == "43.67"


@pytest.mark.parametrize(
    ("arguments", "tokens", "slots"),
    [
        ({"max_total_tokens": 3210, "block_size": 16}, 3200, 3216),
        ({"max_total_tokens": 3200}, 3200, 3201),
        ({"kv_pool_bytes": 1000 * 131_072 + 5}, 1000, 1001),
        ({"kv_pool_bytes": 1000 * 131_072, "max_total_tokens": 500}, 500, 501),
        ({"kv_pool_bytes": 1000 * 131_072, "max_total_tokens": 5000}, 1000, 1001),
    ],
)
def test_whole_pages_and_one_to_spare(arguments: dict[str, Any], tokens: int, slots: int) -> None:
    """Tokens are whole pages; the pool has one page more."""
    pool = kv("llama-3.1-8b", **arguments)

    assert (tokens, slots * 131_072) == (pool.pool_tokens, pool.pool_bytes)


def test_a_share_of_what_is_free_before_the_weights() -> None:
    """The share covers weights and pool; the context is gone before."""
    result = budget(
        config("llama-3.1-8b"), Device(total_bytes=80 * GIB, cuda_bytes=79 * GIB), engine="sglang",
        mem_fraction_static=0.8, weights_bytes=16 * GIB,
    )  # fmt: skip

    available = int((79 * GIB - CONTEXT.likely) * 0.8) - 16 * GIB
    (rank,) = result.ranks
    assert rank.weights_bytes is not None
    assert available // 131_072 == rank.kv.pool_tokens


@pytest.mark.parametrize(
    ("gib", "tp", "chunk", "sequences"),
    [
        (16, 1, 2048, 8),
        (24, 1, 4096, 48),
        (32, 4, 4096, 160),
        (48, 1, 4096, 32),
        (80, 8, 8192, 512),
        (180, 1, 16_384, 512),
    ],
)
def test_defaults_of_a_device(gib: int, tp: int, chunk: int, sequences: int) -> None:
    """Larger devices take larger steps."""
    assert (chunk, sequences) == chunk_and_sequences(gib * GIB, tp=tp)


@pytest.mark.parametrize(
    ("gib", "changed", "reserve"),
    [
        # 512 + 1.5 x 4096 + 128 + 2 x 48 + 8 x 58 prefill graphs
        (24, {}, 512 + 6144 + 128 + 96 + 8 * 50),
        (24, {"eager": True}, 512 + 6144 + 128),
        (24, {"latent": True}, 512 + 6144 + 128 + 96 + 1536),
        (80, {"chunk": 8192, "sequences": 256}, 512 + 12_288 + 128 + 512 + 8 * 58),
        (80, {"chunk": 2048, "sequences": 8}, 10 * 1024),  # the least above 60 GiB
        (
            80,
            {"chunk": 8192, "sequences": 512, "replicas": 8, "tp": 8},
            512 + 12_288 + 1024 + 512 * 8 * 4.5 + 1024 + 464,
        ),
    ],
)
def test_the_default_share(gib: int, changed: dict[str, Any], reserve: float) -> None:
    """What it leaves for activations and graphs, in MiB."""
    given = {"chunk": 4096, "sequences": 48, "tp": 1, "pp": 1, "replicas": 1, "latent": False, "eager": False}

    share = static_fraction(gib * GIB, **given | changed)

    assert round(1 - reserve / (gib * 1024), 3) == share


def test_the_share_that_a_server_chose() -> None:
    """SGLang 0.5.23 on 24,105 MiB without graphs took 0.719."""
    arguments = {"enforce_eager": True, "max_num_seqs": 8}

    result = budget(config("llama-3.1-8b"), Device(total_bytes=24_105 * MIB), engine="sglang", **arguments)

    assert result.arguments["mem_fraction_static"].value == 0.719


def test_prefill_graphs() -> None:
    """8 sizes to 32, 14 to 256, 8 to 512, 8 to 1,024, 12 to 4,096 in steps of 256, then steps of 512."""
    assert [prefill_graphs(chunk) for chunk in (32, 256, 512, 1024, 4096, 8192)] == [8, 22, 30, 38, 50, 58]


def test_windows_have_their_own_pool() -> None:
    """gpt-oss-20b: 12 full and 12 window layers x 2,048 bytes; the window pool has 0.8 of the tokens."""
    pool = kv("gpt-oss-20b", kv_pool_bytes=10 * GIB)

    tokens = int(10 * GIB // (12 * 2048 + 0.8 * 12 * 2048))
    assert tokens == pool.pool_tokens
    assert (tokens + 1 + int(tokens * 0.8) + 1) * 12 * 2048 == pool.pool_bytes
    assert [group.kind for group in pool.groups] == ["full", "window"]


def test_windows_of_other_architectures_are_kept_whole() -> None:
    """Gemma 3 is not on SGLang's list: all 62 layers keep all tokens."""
    result = budget(config("gemma-3-27b"), engine="sglang", kv_pool_bytes=10 * GIB)

    assert result.ranks[0].kv.bytes_per_token == 62 * 2 * 16 * 128 * 2
    assert any("keeps all tokens of every layer" in warning for warning in result.warnings)


def test_states_take_their_part_first() -> None:
    """Qwen3-Next: 0.9 / 1.9 of the room in whole states and one to spare; the rest is for 12 full layers."""
    state = 36 * (8192 * 3 * 2 + 32 * 128 * 128 * 4)  # 2 x 16 x 128 + 32 x 128 channels in bf16; fp32

    pool = kv("qwen3-next-80b-a3b", kv_pool_bytes=20 * GIB)

    slots = int((20 * GIB * 0.9 / 1.9 - state) // state)
    assert (slots + 1) * state == pool.state_bytes
    tokens = (20 * GIB - (slots + 1) * state) // 24_576
    assert (tokens, (tokens + 1) * 24_576) == (pool.pool_tokens, pool.pool_bytes)
    assert 3 * state == pool.fixed_bytes_per_request


def test_attention_on_each_replica() -> None:
    """DP attention at TP 8, DP 4 shares 8 KV heads over 2 ranks."""
    assert kv("llama-3.1-8b", tp=8, dp=4, dp_attention=True).bytes_per_token == 131_072 // 2


@pytest.mark.parametrize(
    ("model", "arguments", "sentence"),
    [
        ("deepseek-v4-flash", {}, "KV cache: how SGLang 0.5.23 sizes pools for compressor states, records"),
        ("llama-3.1-8b", {"dcp": 2}, "KV cache: how SGLang splits pools over context-parallel ranks"),
        ("llama-3.1-8b", {"speculative": "mtp:1"}, "KV cache: the pool of a model that speculates is not known"),
    ],
)
def test_what_is_not_known_is_absent(model: str, arguments: dict[str, Any], sentence: str) -> None:
    """No pool, and why."""
    result = budget(config(model), engine="sglang", kv_pool_bytes=GIB, **arguments)

    assert result.ranks[0].kv.pool_bytes is None
    assert any(unknown.startswith(sentence) for unknown in result.unknown)


def test_the_account_adds_up() -> None:
    """The formula of the pool is its value."""
    result = budget(config("llama-3.1-8b"), Device(cuda_bytes=80 * GIB), engine="sglang", max_total_tokens=3200)

    pool = next(term for term in result.terms if term.name == "pool_bytes")
    assert (pool.formula, pool.value) == ("(3,200 + 1 tokens) × 131,072", 3201 * 131_072)
