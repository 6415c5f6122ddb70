"""Runtime memory: ranges, what moves them, and what they rest on."""

from typing import Any

from agent.memory.budget import Device, RuntimeBudget
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
