"""KV bytes against published figures and against what real servers reported."""

from typing import Any

import pytest

from agent.memory.budget import Device
from agent.memory.kv_cache import FORMATS, kv_format, stage_layers, token_bytes
from agent.memory.layers import Heads, Latent
from tests.agent.memory.models import FOREIGN, GIB, KNOWN, budget, config, row_config


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-2-7b", 524_288),  # K and V x 32 layers x 32 heads x 128 x 2 B
        ("llama-3.1-8b", 131_072),  # 2 x 32 layers x 8 heads x 128 x 2 B
        ("llama-3.1-70b", 327_680),  # 2 x 80 layers x 8 heads x 128 x 2 B
        ("qwen3-8b", 147_456),  # 2 x 36 layers x 8 heads x 128 (given, not 4096 / 32) x 2 B
        ("deepseek-v2-lite", 31_104),  # 27 layers x (512 + 64) x 2 B
        ("deepseek-v3", 70_272),  # 61 layers x (512 + 64) x 2 B
    ],
)
def test_bytes_per_token_of_well_known_models(name: str, expected: int) -> None:
    """The published slope in bf16, and half of it in fp8."""
    assert expected == budget(config(name)).ranks[0].kv.bytes_per_token
    assert expected == 2 * (budget(config(name), kv_cache_dtype="fp8").ranks[0].kv.bytes_per_token or 0)


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row["name"])
def test_every_known_model(row: dict[str, Any]) -> None:
    """All 50-odd configs with MHA, GQA, MQA or MLA come to their row."""
    slopes = {
        dtype: budget(row_config(row), kv_cache_dtype=dtype).ranks[0].kv.bytes_per_token
        for dtype in ("auto", "bfloat16", "fp8")
    }

    expected = row["bytes_per_token_bf16"]
    assert {"auto": expected, "bfloat16": expected, "fp8": row["bytes_per_token_fp8"]} == slopes


@pytest.mark.parametrize("row", FOREIGN, ids=lambda row: row["name"])
def test_every_other_model_is_unknown(row: dict[str, Any]) -> None:
    """Windows, states, indexers, compressed or cross attention give no number, and a reason."""
    result = budget(row_config(row), Device(total_bytes=80 * GIB, cuda_bytes=80 * GIB), max_model_len=4096)

    kv = result.ranks[0].kv
    assert (kv.bytes_per_token, kv.blocks, kv.request_bytes, kv.groups) == (None, None, None, ())
    assert (result.fits, result.ranks[0].total_bytes, result.model.parameters) == (None, None, None)
    assert "is not known here; known: " in result.unknown[0]
    assert all(group.kind.startswith("unknown: ") and group.kv_heads is None for group in result.model.layers)


def test_eight_sequences_of_8k() -> None:
    """32 layers, 32 heads, width 128, fp16: 512 KiB a token, so 8 x 8,192 tokens are 32 GiB; with GQA 8, in fp8 4."""
    tokens = 8 * 8192
    whole, grouped = config("llama-2-7b"), config("llama-3.1-8b")

    assert tokens * (budget(whole).ranks[0].kv.bytes_per_token or 0) == 32 * GIB
    assert tokens * (budget(grouped).ranks[0].kv.bytes_per_token or 0) == 8 * GIB
    assert tokens * (budget(grouped, kv_cache_dtype="fp8").ranks[0].kv.bytes_per_token or 0) == 4 * GIB


@pytest.mark.parametrize(
    ("name", "heads_bytes", "latent_bytes"),
    [
        ("bf16", 8 * 512, 1152),
        ("fp16", 8 * 512, 1152),
        ("float32", 8 * 1024, 2304),
        ("fp8_e4m3", 8 * 256, 576),
        ("int8", 8 * 256, 576),
        ("int8_per_token_head", 8 * 264, 584),  # two fp32 scales a head
        ("fp8_per_token_head", 8 * 264, 584),
        ("int4_per_token_head", 8 * 136, 296),
        ("nvfp4", None, None),
    ],
)
def test_formats(name: str, heads_bytes: int | None, latent_bytes: int | None) -> None:
    """Bytes of one layer and token for 8 heads of 128 + 128, and for a latent of 576; an unknown layout is None."""
    layout = kv_format(name)
    heads, latent = Heads(heads=8, k_dim=128, v_dim=128), Latent(rank=512, rope=64)

    sizes = (None, None) if layout is None else (token_bytes(heads, layout, tp=1), token_bytes(latent, layout, tp=1))

    assert (heads_bytes, latent_bytes) == sizes


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (64, 1)])
def test_heads_are_split_then_replicated(tp: int, heads: int) -> None:
    """Eight KV heads: from 8 ranks on each keeps one."""
    assert heads * 512 == token_bytes(Heads(heads=8, k_dim=128, v_dim=128), FORMATS["bfloat16"], tp=tp)


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_the_latent_is_on_every_rank(tp: int) -> None:
    """MLA saves nothing by tensor parallelism."""
    assert budget(config("deepseek-v3"), tp=tp).ranks[-1].kv.bytes_per_token == 70_272


@pytest.mark.parametrize(
    ("count", "pp", "expected"),
    [
        (32, 1, (32,)),
        (32, 4, (8, 8, 8, 8)),
        (61, 2, (31, 30)),
        (61, 4, (15, 15, 16, 15)),
        (43, 10, (4, 4, 4, 4, 4, 4, 5, 5, 5, 4)),
        (5, 3, (2, 2, 1)),
        (3, 3, (1, 1, 1)),
    ],
)
def test_pipeline_stages(count: int, pp: int, expected: tuple[int, ...]) -> None:
    """The remainder goes to the stages before the last, from the back, as vLLM splits."""
    assert expected == stage_layers(count, pp)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, 65_536),
        ({"kv_cache_quant_algo": "FP8"}, 65_536),
        ({"kv_cache_scheme": None}, 131_072),
        ({}, 131_072),
        ({"kv_cache_scheme": {"num_bits": 4, "type": "int"}}, None),
        ({"kv_cache_quant_algo": "NVFP4"}, None),
    ],
)
def test_auto_honours_what_the_checkpoint_declares(declared: dict[str, Any], expected: int | None) -> None:
    """A declared KV format counts, fp8 weights alone do not, and one that is not known gives no number."""
    content = config("llama-3.1-8b") | {"quantization_config": {"quant_method": "fp8", **declared}}

    result = budget(content)

    assert expected == result.ranks[0].kv.bytes_per_token
    assert (expected is None) == any(text.startswith("KV cache: ") for text in result.unknown)


def test_a_flag_wins_over_what_the_checkpoint_declares() -> None:
    """KV in bf16 on a checkpoint that declares fp8."""
    quantized = {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}

    result = budget(config("llama-3.1-8b") | {"quantization_config": quantized}, kv_cache_dtype="bf16")

    assert result.ranks[0].kv.bytes_per_token == 131_072
