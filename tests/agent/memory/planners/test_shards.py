"""What one rank keeps of the weights, where replicas share experts or attention is each replica's own."""

from agent.memory.arguments import from_flags
from agent.memory.budget import Budget, Device, compute
from collectors.readings import ModelFiles
from tests.agent.memory.models import config

EXPERTS = 58 * 256 * 3 * 7168 * 2048  # of DeepSeek-V3, a byte each


def budget(engine: str, **flags: object) -> Budget:
    files = ModelFiles(path="/models/v3", config=config("deepseek-v3"))
    return compute(files, from_flags(flags, engine=engine), Device())


def weights(engine: str, **flags: object) -> int:
    return budget(engine, **flags).ranks[0].weights_bytes or 0


def test_vllm_replicas_share_experts() -> None:
    """Eight replicas of one rank hold an eighth of the experts each, and all of the attention."""
    alone, shared = weights("vllm"), weights("vllm", dp=8, ep=True)

    assert 0 <= alone - shared - EXPERTS * 7 // 8 < 0.002 * EXPERTS  # and of their scales
    assert budget("vllm", dp=8, ep=True).arguments["ep"].value is True


def test_sglang_attention_of_each_replica() -> None:
    """Within the same eight ranks, so experts are divided by 8, not by 64; attention by none."""
    split, apart = weights("sglang", tp=8), weights("sglang", tp=8, dp=8, dp_attention=True)

    assert apart > split
    assert EXPERTS // 8 < split < EXPERTS // 8 + 8 * (1 << 30)


def test_sglang_replicas_are_copies() -> None:
    """Without it, more replicas are more servers."""
    assert weights("sglang", tp=8, dp=2) == weights("sglang", tp=8)
