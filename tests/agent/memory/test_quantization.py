"""What ``quantization_config`` says, and what it doesn't."""

from typing import Any

import pytest

from agent.memory.quantization import WeightFormat, parse_quantization
from agent.memory.units import shown


def _compressed(**weights: object) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


@pytest.mark.parametrize(
    ("content", "bits_per_weight"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 16_384),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 16 / 128 + 4 / 128),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128}, 4 + 16 / 128 + 4 / 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + 20 / 128 + 32 / 4096),
        (_compressed(num_bits=4, type="int", strategy="group", group_size=128), 4 + 16 / 128),
        (_compressed(num_bits=8, type="int", strategy="channel"), 8 + 32 / 4096),
        (_compressed(num_bits=8, type="float", strategy="channel"), 8 + 32 / 4096),
        (_compressed(num_bits=8, type="float", strategy="tensor"), 8 + 32 / 4096**2),
        (_compressed(num_bits=8, type="float", strategy="block", block_structure=[128, 128]), 8 + 32 / 16_384),
        (_compressed(num_bits=4, type="float", strategy="tensor_group", group_size=16), 4.5 + 32 / 4096**2),
        (_compressed(num_bits=4, type="float", strategy="group", group_size=32), 4.25),
        ({"quant_method": "fp8"}, 8 + 32 / 4096**2),
        ({"quant_method": "fp8", "weight_block_size": [128, 128], "expert_dtype": "fp4"}, 8 + 8 / 16_384),
        ({"quant_method": "fbgemm_fp8"}, 8 + 32 / 4096),
        ({"quant_algo": "FP8"}, 8 + 32 / 4096**2),
        ({"quant_algo": "NVFP4", "group_size": 16}, 4.5 + 32 / 4096**2),
        ({"quant_method": "mxfp4"}, 4.25),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, 4 + 20 / 128 + 32 / 4096),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8 + 32 / 4096),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, 4.5),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            4 + 8 / 64 + 32 / (64 * 256),
        ),
        ({"quant_method": "gguf", "bits_per_weight": 4.83}, 4.83),
    ],
)
def test_bits_per_weight(content: dict[str, Any], bits_per_weight: float) -> None:
    """Of a matrix of 4,096 x 4,096, scales included."""
    quantization = parse_quantization(content)

    assert quantization is not None
    assert quantization.format is not None
    assert quantization.format.matrix_bytes(4096, 4096) * 8 / 4096**2 == pytest.approx(bits_per_weight)


@pytest.mark.parametrize("content", [None, {}])
def test_no_quantization(content: object) -> None:
    """Absent or empty."""
    assert parse_quantization(content) is None


@pytest.mark.parametrize("content", [[], "fp8", 3])
def test_a_quantization_that_is_no_object(content: object) -> None:
    """It says that weights are quantised, and not how: their bytes are not known."""
    quantization = parse_quantization(content)

    assert quantization is not None
    assert quantization.format is None
    assert f"quantization_config is no object but {shown(content)}" in quantization.why


@pytest.mark.parametrize(
    "content",
    [
        {"quant_method": "exl2", "bits": 4},
        {"quant_algo": "MIXED_PRECISION"},
        {"quant_algo": ["FP8"]},
        {"quant_method": "bitsandbytes"},
        {"quant_method": "gguf", "bits_per_weight": -1},
        {"quant_method": "fp8", "weight_block_size": [0, 128]},
        {"quant_method": "fp8", "weight_block_size": "128"},
        {"quant_method": "awq", "bits": 5},
        {"quant_method": "gptq", "bits": 4, "group_size": 0},
        {"quant_method": "compressed-tensors", "config_groups": {}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": None}}},
        {"quant_method": "compressed-tensors", "config_groups": [1]},
        _compressed(num_bits=3, type="int", strategy="group", group_size=128),
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                name: {"weights": {"num_bits": bits, "type": "int", "strategy": "channel"}}
                for name, bits in (("a", 8), ("b", 4))
            },
        },
        {"quant_method": 7},
    ],
)
def test_formats_that_are_not_known(content: dict[str, Any]) -> None:
    """No bits, and a reason."""
    quantization = parse_quantization(content)

    assert quantization is not None
    assert quantization.format is None
    assert quantization.why.startswith("the bytes of weights quantised by")


def test_one_group_a_row() -> None:
    """``group_size`` -1 is one scale for all inputs of an output."""
    quantization = parse_quantization({"quant_method": "gptq", "bits": 4, "group_size": -1})

    assert quantization is not None
    assert isinstance(quantization.format, WeightFormat)
    assert quantization.format.matrix_bytes(8, 64) == 8 * 64 // 2 + 8 * 20 // 8 + 64 * 4


def test_only_experts_are_in_mxfp4() -> None:
    """gpt-oss: attention stays in 16 bit, whether its config lists it or not."""
    quantization = parse_quantization({"quant_method": "mxfp4"})

    assert quantization is not None
    assert quantization.of("layers.0.self_attn.q_proj") is None
    assert quantization.of("layers.0.mlp.experts.up_proj") == quantization.format


def test_experts_in_another_format() -> None:
    """DeepSeek V4 says so beside its ``quantization_config``, V4.1 in it."""
    blocks = {"quant_method": "fp8", "weight_block_size": [128, 128]}

    for quantization in (
        parse_quantization(blocks, expert_dtype="fp4"),
        parse_quantization(blocks | {"expert_dtype": "fp4"}),
    ):
        assert quantization is not None
        layouts = [quantization.of(f"layers.0.mlp.{part}.up_proj") for part in ("experts", "shared_experts")]
        assert [layout.name if layout else None for layout in layouts] == ["mxfp4", "fp8 in blocks of 128 x 128"]


@pytest.mark.parametrize(
    ("listed", "module", "plain"),
    [
        (["self_attn"], "layers.3.self_attn.q_proj", True),
        (["mlp.gate"], "layers.3.mlp.gate_proj", False),  # whole parts of a name
        (["model.layers.3.mlp"], "layers.3.mlp.up_proj", True),
        (["model.layers.3.mlp"], "layers.13.mlp.up_proj", False),
        (["language_model.model.layers.3.mlp.down_proj"], "layers.3.mlp.down_proj", True),
        (["model.layers.*.self_attn"], "layers.7.self_attn.o_proj", True),
        (["model.layers.7*"], "layers.7.self_attn.o_proj", True),
        (["model.layers.7*"], "layers.8.self_attn.o_proj", False),
        (["re:.*self_attn.*"], "layers.7.self_attn.o_proj", True),
        (["re:.*mlp\\.(gate|up)_proj.*"], "layers.7.mlp.up_proj", True),
        (["re:.*mlp\\.(gate|up)_proj.*"], "layers.7.mlp.down_proj", False),
        (["re:.*shared_experts.*$"], "layers.7.mlp.shared_experts.up_proj", True),
        (["block_sparse_moe.experts"], "layers.7.mlp.experts.up_proj", True),
        (["", 5, "lm_head", "."], "layers.7.mlp.up_proj", False),
    ],
)
def test_modules_left_in_16_bit(listed: list[object], module: str, plain: bool) -> None:
    """By part of a name, wildcard, or simple regular expression."""
    quantization = parse_quantization({"quant_method": "fp8", "ignore": listed})

    assert quantization is not None
    assert quantization.plain.odd == ()
    assert (quantization.of(module) is None) == plain


@pytest.mark.parametrize("pattern", ["re:(a+)+$", "re:layers\\.[0-9]+\\.mlp", "re:" + "(a|b)" * 40])
def test_patterns_that_are_not_understood(pattern: str) -> None:
    """They are never run as regular expressions, which a config could make endless."""
    quantization = parse_quantization({"quant_method": "fp8", "ignore": [pattern]})

    assert quantization is not None
    assert quantization.plain.odd == (pattern,)
