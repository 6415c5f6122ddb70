"""Runtime memory: ranges, what moves them, and what they rest on."""

from typing import Any

import pytest
from msgspec import structs

from agent.memory.budget import Device
from agent.memory.layers import Layer
from agent.memory.model_config import Decoder, parse_model
from agent.memory.runtime import Calibration, Load, RuntimeBudget, estimate
from tests.agent.memory.models import budget, config

MIB = 1 << 20


def _runtime(name: str, **flags: Any) -> RuntimeBudget:
    runtime = budget(config(name), Device(total_bytes=80 << 30, cuda_bytes=80 << 30), **flags).ranks[0].runtime
    assert runtime is not None
    return runtime


def test_activations_of_llama_3_1_8b() -> None:
    """(3 x 14,336 + 2.5 x 4,096) x 2 = 106,496 B a batched token, and 1, 2 or 4 copies of fp32 logits."""
    activations = _runtime("llama-3.1-8b", max_num_batched_tokens=8192, max_num_seqs=256).activations

    step, logits = 8192 * 106_496, 256 * 128_256 * 4
    assert (activations.low, activations.likely) == (step + logits, step + 2 * logits)
    assert activations.high == 2 * step + 4 * logits + 394 * MIB
    assert "8,192 batched tokens x 106,496 B" in activations.source


def test_activations_of_experts() -> None:
    """Eight chosen experts of 768: 8 x (2,048 + 768) x 2 B a token, and 2.5 x 2,048 x 2 B."""
    activations = _runtime("qwen3-30b-a3b", max_num_batched_tokens=1000, max_num_seqs=1).activations

    assert activations.low == 1000 * (8 * (2048 + 768) * 2 + 5 * 2048) + 151_936 * 4


def test_the_latent_prefill_is_split_over_ranks() -> None:
    """65,536 tokens x (576 + 128 heads / tp x 192) x 2 B: about 3 GiB on one rank, 0.5 GiB on eight."""
    one = _runtime("deepseek-v3", tp=1).activations
    eight = _runtime("deepseek-v3", tp=8).activations

    saved = 65_536 * (128 - 16) * 192 * 2
    assert one.likely - eight.likely >= saved


def test_what_sparse_attention_gathers() -> None:
    """V3.2 at 163,840 tokens: five times as many x 576 x 2 B = 0.88 GiB, whatever the tensor parallelism."""
    content = config("deepseek-v3.2")
    shape = parse_model(content)
    assert shape.decoder is not None

    sizes = []
    for layers in (shape.layers, parse_model(config("deepseek-v3")).layers):
        runtime = _estimate(shape.decoder, layers, tp=8)
        sizes.append(runtime.activations.likely - runtime.activations.low - LOAD.sequences * 129_280 * 4)

    assert sizes == [5 * 163_840 * 576 * 2, 65_536 * (576 + 16 * 192) * 2]
    assert sizes[0] / (1 << 30) == pytest.approx(0.88, abs=0.005)


def test_inputs_of_a_recurrence() -> None:
    """Nemotron-H-56B: 2 x (16,384 channels + 8 groups x 512) + 256 heads, beside an MLP of one width alone."""
    shape = parse_model(config("nemotron-h-56b"))
    assert shape.decoder is not None

    narrow = structs.replace(shape.decoder, intermediate=1)
    runtime = _estimate(narrow, shape.layers, tp=1)

    per_token = 5 * 8192 + (2 * (256 * 64 + 8 * 2 * 256) + 256) * 2
    assert runtime.activations.low == LOAD.batched_tokens * per_token + LOAD.sequences * 131_072 * 4


def test_a_calibrated_part_has_no_range() -> None:
    """What was measured before takes its place, and says where it is from; of a peak the allocator may keep more."""
    shape = parse_model(config("llama-3.1-8b"))
    assert shape.decoder is not None

    runtime = _estimate(
        shape.decoder,
        shape.layers,
        tp=1,
        calibration=Calibration(source="the start-up log of vLLM 0.33", activations=1234, context=0),
    )

    assert (runtime.activations.low, runtime.activations.likely) == (1234, 1234)
    assert runtime.activations.high == _estimate(shape.decoder, shape.layers, tp=1).activations.high
    assert runtime.activations.source == "calibrated from the start-up log of vLLM 0.33"
    assert (runtime.context.low, runtime.context.high) == (0, 0)
    assert runtime.cuda_graphs.high > runtime.cuda_graphs.low


LOAD = Load(batched_tokens=1000, sequences=10, max_model_len=163_840, block_size=64)


def _estimate(
    decoder: Decoder, layers: tuple[Layer, ...], *, tp: int, calibration: Calibration | None = None
) -> RuntimeBudget:
    return estimate(
        decoder,
        layers,
        LOAD,
        tp=tp,
        ranks=tp,
        expert_ranks=tp,
        eager=False,
        outside=(),
        calibration=calibration,
    )


def test_no_graphs_when_eager() -> None:
    """``enforce_eager`` captures none."""
    graphs = _runtime("llama-3.1-8b", enforce_eager=True).cuda_graphs

    assert (graphs.low, graphs.likely, graphs.high) == (0, 0, 0)


def test_several_ranks_need_communication() -> None:
    """NCCL's buffers come with the second rank, and lie outside the engine's share."""
    alone, two = _runtime("llama-3.1-8b"), _runtime("llama-3.1-8b", tp=2)

    assert two.non_torch.low > alone.non_torch.likely
    assert (alone.outside, two.outside) == (("context",), ("context", "non_torch"))


def test_every_range_has_a_source() -> None:
    """And sums to the bounds of the whole."""
    runtime = _runtime("deepseek-v3", tp=8)

    assert all(part.source for part in runtime.parts)
    assert runtime.low == sum(part.low for part in runtime.parts)
    assert runtime.high == sum(part.high for part in runtime.parts)
