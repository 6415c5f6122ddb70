"""What an engine is told: flags, ways to spread a model."""

from typing import Any

import pytest

from agent.memory.arguments import Arguments
from agent.memory.serving import flags_text, layouts


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (Arguments(engine="vllm", max_model_len=4096), "--max-model-len 4096"),
        (
            Arguments(
                engine="vllm", tp=8, pp=2, dp=1, dcp=8, ep=True, kv_cache_dtype="fp8", gpu_memory_utilization=0.9
            ),
            "--tensor-parallel-size 8 --pipeline-parallel-size 2 --decode-context-parallel-size 8 "
            "--enable-expert-parallel --gpu-memory-utilization 0.9 --kv-cache-dtype fp8",
        ),
        (
            Arguments(
                engine="sglang", tp=8, dp=8, dp_attention=True, max_model_len=32768, max_num_seqs=64, enforce_eager=True
            ),
            "--tp-size 8 --dp-size 8 --enable-dp-attention --context-length 32768 --max-running-requests 64 "
            "--disable-cuda-graph",
        ),
        (
            Arguments(
                engine="llama_cpp", max_model_len=8192, parallel=4, kv_cache_dtype_k="q8_0", kv_cache_dtype_v="q4_0"
            ),
            "--gpu-layers all --ctx-size 32768 --flash-attn on --parallel 4 --cache-type-k q8_0 --cache-type-v q4_0",
        ),
    ],
)
def test_flags(arguments: Arguments, text: str) -> None:
    """Each engine's own names; llama.cpp's context is that of all slots, and a quantised V needs flash attention."""
    assert flags_text(arguments) == text


@pytest.mark.parametrize(
    ("engine", "gpus", "kv_heads", "expected"),
    [
        ("vllm", 1, 1, [{}]),
        ("vllm", 2, 8, [{"tp": 2}, {"pp": 2}]),
        ("vllm", 6, 8, [{"tp": 6}, {"tp": 3, "pp": 2}, {"tp": 2, "pp": 3}, {"pp": 6}]),
        ("vllm", 2, 1, [{"tp": 2}, {"dp": 2, "ep": True}, {"tp": 2, "dcp": 2}, {"pp": 2}]),
        (
            "vllm",
            4,
            2,
            [
                {"tp": 4},
                {"tp": 2, "dp": 2, "ep": True},
                {"dp": 4, "ep": True},
                {"tp": 4, "dcp": 2},
                {"tp": 2, "pp": 2},
                {"pp": 4},
            ],
        ),
        ("vllm", 16, 8, [{"tp": 8, "pp": 2}, {"tp": 4, "pp": 4}, {"tp": 2, "pp": 8}, {"pp": 16}]),
        ("sglang", 2, 1, [{"tp": 2}, {"tp": 2, "dp": 2, "dp_attention": True}, {"pp": 2}]),
        ("llama_cpp", 4, 8, [{"pp": 4}]),
    ],
)
def test_layouts(engine: str, gpus: int, kv_heads: int, expected: list[dict[str, Any]]) -> None:
    """Tensor parallelism within a node first; what divides a replicated KV next; pipeline stages last."""
    found = layouts(engine, gpus, kv_heads=kv_heads, experts=True)

    assert [layout.arguments for layout in found] == expected
    assert {layout.gpus for layout in found} == {gpus}
