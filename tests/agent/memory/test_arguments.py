"""Arguments: an engine's own flag names, what it reports about itself, and who wins."""

from typing import Any

import pytest

from agent.memory.arguments import KV_CACHE_DTYPES, Arguments, from_flags, from_reported, merge
from agent.memory.kv_formats import FORMATS
from agent.memory.planners.llama_cpp.settings import CACHE_TYPES
from agent.memory.planners.sglang.settings import KV_CACHE_DTYPES as SGLANG_DTYPES


@pytest.mark.parametrize(
    ("flag", "value", "field", "expected"),
    [
        ("tensor-parallel-size", 8, "tp", 8),
        ("--tensor-parallel-size", "8", "tp", 8),
        ("tensor_parallel_size", 8, "tp", 8),
        ("tp", 8, "tp", 8),
        ("pipeline-parallel-size", 2, "pp", 2),
        ("data-parallel-size", 2, "dp", 2),
        ("max_model_len", "32k", "max_model_len", 32_000),
        ("max-model-len", "32K", "max_model_len", 32_768),
        ("max-model-len", "1.5k", "max_model_len", 1500),
        ("gpu-memory-utilization", "0.85", "gpu_memory_utilization", 0.85),
        ("gpu-memory-utilization", 1, "gpu_memory_utilization", 1.0),
        ("kv-cache-dtype", "fp8_e4m3", "kv_cache_dtype", "fp8_e4m3"),
        ("num-gpu-blocks-override", 100, "num_gpu_blocks", 100),
        ("num_gpu_blocks", 100, "num_gpu_blocks", 100),
        ("kv-cache-memory-bytes", 1 << 30, "kv_cache_memory_bytes", 1 << 30),
        ("kv-cache-memory", "1G", "kv_cache_memory_bytes", 1 << 30),
        ("enforce-eager", True, "enforce_eager", True),
        ("enforce-eager", "false", "enforce_eager", False),
        ("pp-layers", "20, 21,20", "pp_layers", (20, 21, 20)),
        ("engine-version", "0.33.0", "engine_version", "0.33.0"),
    ],
)
def test_flags(flag: str, value: object, field: str, expected: object) -> None:
    """Engine names and budget's names, dashes or underscores, numbers as a command line writes them."""
    assert getattr(from_flags({flag: value}, engine="vllm"), field) == expected


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"tensor-parallel-sise": 8}, "unknown argument 'tensor-parallel-sise'; did you mean 'tensor-parallel-size'?"),
        ({"tp": 0}, "argument 'tp': expected an integer from 1 to 1024, got 0"),
        ({"tp": True}, "argument 'tp': expected an integer from 1 to 1024, got True"),
        ({"tp": 2.0}, "argument 'tp': expected an integer from 1 to 1024, got 2.0"),
        ({"max-model-len": "long"}, "argument 'max-model-len': expected an integer from 1 to 2147483648, got 'long'"),
        ({"max-model-len": "1.5"}, "argument 'max-model-len': expected an integer from 1 to 2147483648, got '1.5'"),
        (
            {"gpu-memory-utilization": 92},
            "argument 'gpu-memory-utilization': expected a number above 0 and up to 1, got 92",
        ),
        (
            {"gpu-memory-utilization": "nan"},
            "argument 'gpu-memory-utilization': expected a number above 0 and up to 1, got 'nan'",
        ),
        ({"quantization": 16}, "argument 'quantization': expected text, got 16"),
        ({"quantization": "x" * 101}, "argument 'quantization': expected at most 100 letters, got 101"),
        ({"draft-model": "x" * 1001}, "argument 'draft-model': expected at most 1000 letters, got 1001"),
        (
            {"dtype": "int3"},
            "argument 'dtype': expected one of auto, bfloat16, float16, float32, half, float, got 'int3'",
        ),
        ({"enforce-eager": "maybe"}, "argument 'enforce-eager': expected true or false, got 'maybe'"),
        ({"pp-layers": "4,,4"}, "argument 'pp-layers': expected an integer from 1 to 10000, got ''"),
        ({"tp": 2, "tensor-parallel-size": 2}, "arguments 'tp' and 'tensor-parallel-size' are the same; keep one"),
    ],
)
def test_one_sentence_for_each_mistake(flags: dict[str, Any], said: str) -> None:
    """Key, expected, got, and a close match."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        from_flags(flags, engine="vllm")

    assert str(caught.value) == said


def test_a_name_close_to_nothing_lists_all() -> None:
    """What could be meant."""
    with pytest.raises(ValueError, match=r"^unknown argument 'port'; .*block-size, .*tensor-parallel-size, tp"):
        from_flags({"port": 8000}, engine="vllm")


def test_an_engine_without_a_planner() -> None:
    """Which ones have one."""
    with pytest.raises(
        ValueError, match=r"^engine 'lmdeploy' has no planner; expected one of vllm, sglang, llama_cpp, ollama$"
    ):
        from_flags({}, engine="lmdeploy")


def test_flags_of_an_engine_without_a_planner() -> None:
    """What counts for any engine, by its own names or those of the budget; its other flags are for its reader alone."""
    own = {"num-shard": "tp", "max-batch-total-tokens": None}

    assert from_flags({"num_shard": 4, "max-batch-total-tokens": 9, "dp": 2}, engine="tgi", own=own) == Arguments(
        engine="tgi", tp=4, dp=2
    )
    with pytest.raises(ValueError, match=r"^unknown argument 'num-shards'; did you mean 'num-shard'\?$"):
        from_flags({"num-shards": 4}, engine="tgi", own=own)
    with pytest.raises(ValueError, match=r"^unknown argument 'gpu-memory-utilization'; expected one of dp, "):
        from_flags({"gpu-memory-utilization": 0.9}, engine="tgi", own=own)


def test_what_an_engine_reports_is_taken_leniently() -> None:
    """Formats that are not known here are kept, so that nothing is assumed; what can't be read becomes a note."""
    reported, notes = from_reported(
        {"kv_cache_dtype": "fp8_ds_mla", "block_size": "None", "tp": 2, "engine_version": None, "swap_space": 4},
        engine="vllm",
    )

    assert reported == Arguments(kv_cache_dtype="fp8_ds_mla", tp=2, reported=frozenset({"kv_cache_dtype", "tp"}))
    assert notes == ("reported by the engine: argument 'block_size': expected an integer from 1 to 65536, got 'None'",)


def test_given_wins_over_reported() -> None:
    """Field by field; which is which is kept."""
    reported, _ = from_reported({"tp": 2, "block_size": 32, "engine_version": "0.32.0"}, engine="vllm")

    merged = merge(from_flags({"tp": 8}, engine="vllm"), reported)

    assert merged == Arguments(
        tp=8, block_size=32, engine_version="0.32.0", reported=frozenset({"block_size", "engine_version"})
    )


def test_kv_formats_are_those_that_planners_take() -> None:
    """What is refused as a flag and what a planner refuses are the same."""
    assert set(KV_CACHE_DTYPES["sglang"]) == {"auto", *SGLANG_DTYPES}
    assert set(KV_CACHE_DTYPES["llama_cpp"]) == {"auto", *CACHE_TYPES}
    assert {*KV_CACHE_DTYPES["vllm"], *CACHE_TYPES} == {"auto", "bf16", *FORMATS}
