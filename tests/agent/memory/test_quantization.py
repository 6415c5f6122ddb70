"""What ``quantization_config`` says, and what it doesn't."""

from typing import Any

import pytest

from agent.memory.quantization import WeightFormat, parse_quantization


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
        (_compressed(num_bits=8, type="float", strategy="tensor"), 8 + 32 / 4096),
        ({"quant_algo": "FP8"}, 8 + 32 / 4096),
    ],
)
def test_bits_per_weight(content: dict[str, Any], bits_per_weight: float) -> None:
    """Of a matrix of 4,096 x 4,096, scales included."""
    quantization = parse_quantization(content)

    assert quantization is not None
    assert quantization.format is not None
    assert quantization.format.matrix_bytes(4096, 4096) * 8 / 4096**2 == pytest.approx(bits_per_weight)


@pytest.mark.parametrize("content", [None, {}, [], "fp8", 3])
def test_no_quantization(content: object) -> None:
    """Absent, empty, or not an object."""
    assert parse_quantization(content) is None


@pytest.mark.parametrize(
    "content",
    [
        {"quant_method": "mxfp4"},
        {"quant_method": "fp8", "weight_block_size": [0, 128]},
        {"quant_method": "fp8", "weight_block_size": "128"},
        {"quant_method": "awq", "bits": 5},
        {"quant_method": "gptq", "bits": 4, "group_size": 0},
        {"quant_method": "compressed-tensors", "config_groups": {}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": None}}},
        {"quant_method": "compressed-tensors", "config_groups": [1]},
        _compressed(num_bits=3, type="int", strategy="group", group_size=128),
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
