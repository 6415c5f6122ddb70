"""llama.cpp's planner: what real servers allocated, published sizes, defaults and rules by build."""

from typing import Any

import pytest

from agent.memory.budget import Device
from agent.memory.kv_cache import KvBudget
from tests.agent.memory.models import budget, config

MIB = 1 << 20
TINY: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 259,
    "max_position_embeddings": 8192,
}


def kv(model: dict[str, Any], **arguments: Any) -> KvBudget:
    return budget(model, engine="llama_cpp", **arguments).ranks[0].kv


@pytest.mark.parametrize(
    ("arguments", "cells", "cell_bytes"),
    [
        # 4 layers x 2 heads x 32 = 256 elements of K, as many of V
        ({"ctx_size": 4096, "parallel": 4}, 4 * 1024, 512 * 2),
        ({"ctx_size": 4096, "parallel": 4, "kv_unified": True}, 4096, 512 * 2),
        ({"ctx_size": 4096}, 4096, 512 * 2),
        ({"ctx_size": 4096, "parallel": 4, "kv_cache_dtype": "q8_0"}, 4096, 512 * 34 // 32),
        ({"ctx_size": 4096, "parallel": 4, "kv_cache_dtype": "q4_0"}, 4096, 512 * 18 // 32),
        ({"ctx_size": 4096, "kv_cache_dtype_k": "q8_0", "kv_cache_dtype_v": "q4_0"}, 4096, 256 * (34 + 18) // 32),
        ({"ctx_size": 4096, "kv_cache_dtype": "float32"}, 4096, 512 * 4),
        ({"ctx_size": 4000, "parallel": 3}, 3 * 1536, 512 * 2),  # 4000 / 3 = 1333, padded
        ({"ctx_size": 1000, "parallel": 6}, 6 * 256, 512 * 2),
        ({"max_model_len": 1024, "parallel": 4}, 4 * 1024, 512 * 2),  # of one request
        ({"max_model_len": 1024}, 1024, 512 * 2),  # in a cache for all
        ({"parallel": 2}, 2 * 8192, 512 * 2),
        ({"parallel": 2, "engine_version": "b9713"}, 8192, 512 * 2),
        ({}, 8192, 512 * 2),
    ],
)
def test_cells_and_their_bytes(arguments: dict[str, Any], cells: int, cell_bytes: int) -> None:
    """Slots share the context or have padded parts of it; K and V in their own types."""
    pool = kv(TINY, **arguments)

    assert (cells, cell_bytes, cells * cell_bytes) == (pool.pool_tokens, pool.bytes_per_token, pool.pool_bytes)


@pytest.mark.parametrize(
    ("arguments", "cells"),
    [
        ({"ctx_size": 32_768, "parallel": 1}, 1024 + 512),
        ({"ctx_size": 32_768}, 4 * 1024 + 512),  # 4 slots in one cache
        ({"ctx_size": 32_768, "parallel": 1, "ubatch": 200}, 1280),  # 1224, padded
        ({"ctx_size": 1024, "parallel": 1}, 1024),
        ({"ctx_size": 32_768, "parallel": 1, "swa_full": True}, 32_768),
    ],
)
def test_windows_have_a_smaller_cache(arguments: dict[str, Any], cells: int) -> None:
    """Gemma-3-27B: 52 of 62 layers keep 1,024 tokens and a batch; 16 heads x 128 x K and V x 2 bytes."""
    layer_bytes = 2 * 16 * 128 * 2

    pool = kv(config("gemma-3-27b"), **arguments)

    assert [(10, arguments["ctx_size"]), (52, cells)] == [(g.layers, g.blocks_per_request) for g in pool.groups]
    assert (10 * arguments["ctx_size"] + 52 * cells) * layer_bytes == pool.pool_bytes


def test_windows_of_some_models_are_not_applied() -> None:
    """Mistral-7B v0.1 keeps all tokens of its 32 layers: 131,072 bytes each."""
    assert kv(config("mistral-7b-v0.1"), ctx_size=16_384).pool_bytes == 32 * 8 * 256 * 2 * 16_384


def test_latent_attention_has_no_v() -> None:
    """DeepSeek-R1 in q8_0 at 32,768: 1,166.62 MiB as published (ik_llama.cpp#259); before build 7964 V was stored."""
    assert (
        f"{(kv(config('deepseek-r1'), ctx_size=32_768, kv_cache_dtype='q8_0').pool_bytes or 0) / MIB:.2f}" == "1166.62"
    )
    old = kv(config("deepseek-r1"), ctx_size=32_768, engine_version="b7827")
    assert old.pool_bytes == 61 * (576 + 512) * 2 * 32_768


def test_index_keys_are_of_the_type_of_k() -> None:
    """DeepSeek-V3.2: 61 x (512 + 64 + 128) elements; GLM-5.2 has an indexer on 21 of 78 layers."""
    assert kv(config("deepseek-v3.2"), ctx_size=4096, kv_cache_dtype="q8_0").bytes_per_token == 61 * 704 * 34 // 32
    assert kv(config("glm-5.2"), ctx_size=4096).bytes_per_token == (78 * 576 + 21 * 128) * 2


def test_states_are_fp32_for_each_slot() -> None:
    """Jamba-v0.1: 28 Mamba layers x (3 columns + 16 states) x 8,192 channels x 4 bytes, whatever the cache type."""
    pool = kv(config("jamba-v0.1"), ctx_size=4096, parallel=3, kv_cache_dtype="q8_0")

    assert pool.state_bytes == 3 * 28 * (3 + 16) * 8192 * 4
    assert pool.pool_tokens is not None
    assert 4 * 8 * 256 * 34 // 32 * pool.pool_tokens == pool.pool_bytes


@pytest.mark.parametrize(
    ("model", "arguments", "sentence"),
    [
        ("llama-3.1-8b", {"kv_cache_dtype_k": "fp8"}, "llama.cpp has no cache type 'fp8'"),
        (
            "deepseek-v3",
            {"kv_cache_dtype_k": "q8_0"},
            "llama.cpp refuses cache types q8_0 and f16 for latent attention",
        ),
    ],
)
def test_cache_types_that_it_refuses(model: str, arguments: dict[str, Any], sentence: str) -> None:
    """It would not start."""
    result = budget(config(model), engine="llama_cpp", **arguments)

    assert result.fits is False
    assert any(warning.startswith(sentence) for warning in result.warnings)


@pytest.mark.parametrize(
    ("model", "arguments", "sentence"),
    [
        (
            "deepseek-v4-flash",
            {},
            "KV cache: how llama.cpp keeps compressor states, records of compressed attention, index",
        ),
        ("llama-3.1-8b", {"tp": 2}, "KV cache: how llama.cpp splits it by rows or tensors (tp)"),
    ],
)
def test_what_is_not_known_is_absent(model: str, arguments: dict[str, Any], sentence: str) -> None:
    """No pool, and why."""
    result = budget(config(model), engine="llama_cpp", ctx_size=4096, **arguments)

    assert result.ranks[0].kv.pool_bytes is None
    assert any(unknown.startswith(sentence) for unknown in result.unknown)


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("b12000", "llama.cpp b12000 is newer than the rules known here; those of b11549 are used"),
        ("b6000", "llama.cpp b6000 is older than the rules known here; those of b7079 are used"),
        ("0.1.0-dev", "llama.cpp version '0.1.0-dev' has no build number such as b11549; the rules of b11549 are used"),
    ],
)
def test_builds_that_are_not_known(version: str, sentence: str) -> None:
    """A sentence, and the nearest rules."""
    assert sentence in budget(TINY, engine="llama_cpp", engine_version=version).warnings


def test_layers_go_to_devices() -> None:
    """Two devices hold half of the cache each."""
    ranks = budget(TINY, engine="llama_cpp", ctx_size=4096, pp=2).ranks

    assert [rank.kv.pool_bytes for rank in ranks] == [2 * MIB, 2 * MIB]


def test_the_account_adds_up() -> None:
    """The formula of the pool is its value."""
    terms = {term.name: term for term in budget(config("gemma-3-27b"), engine="llama_cpp", ctx_size=8192).terms}

    pool = terms["pool_bytes"]
    assert pool.formula == "1 streams × (8,192 cells × 81,920 + 4,608 cells × 425,984)"
    assert pool.value == 8192 * 81_920 + 4608 * 425_984


@pytest.mark.parametrize(
    ("gib", "arguments", "length", "slots"),
    [
        (16, {}, 4096, 1),
        (32, {}, 32_768, 1),
        (80, {}, 131_072, 1),  # the model's own is less than 262,144
        (16, {"parallel": 4}, 4096, 4),
        (80, {"max_model_len": 8192, "parallel": 2}, 8192, 2),
    ],
)
def test_ollama_multiplies_the_context(gib: int, arguments: dict[str, Any], length: int, slots: int) -> None:
    """Its default follows the device, and each request has a cache of its own."""
    device = Device(total_bytes=gib << 30)

    pool = budget(config("llama-3.1-8b"), device, engine="ollama", **arguments).ranks[0].kv

    assert (length * slots, 131_072 * length * slots) == (pool.pool_tokens, pool.pool_bytes)
