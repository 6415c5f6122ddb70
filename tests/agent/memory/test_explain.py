"""The account: formulas that come to their values."""

import math
import re

import pytest

from agent.memory.budget import Budget, Device
from tests.agent.memory.models import GIB, budget, config

H100 = Device(name="NVIDIA H100 80GB HBM3", total_bytes=85_520_809_984, cuda_bytes=85_018_542_080)
MIXED = (
    "gpt-oss-20b",
    "gemma-4-26b-a4b",
    "llama-4-scout-17b-16e",
    "qwen3-next-80b-a3b",
    "jamba-v0.1",
    "deepseek-v4-flash",
    "whisper-large-v3",
    "minimax-m3",
)
OTHERS = ("v4-bf16", "v4.1", "shared-indexer", "states-and-latent", "states", "dcp", "turboquant", "nvfp4", "short")
IN_WORDS = {"weights", "activations", "cuda_graphs", "non_torch", "context"}


def _computed(formula: str) -> float:
    """A formula computed again: words out, signs as Python's."""
    text = re.sub(r"\b(?!ceil)[a-z]+\b", "", formula.replace(",", "").replace("×", "*"))
    return float(eval(text, {"__builtins__": {}, "ceil": math.ceil}))


@pytest.mark.parametrize(
    "result",
    [
        budget(config("llama-3.1-8b"), H100),
        budget(config("llama-3.1-8b"), H100, kv_cache_dtype="int4_per_token_head", max_model_len=1000),
        budget(config("deepseek-v3"), H100, tp=8, kv_cache_dtype="fp8"),
        budget(config("qwen3-30b-a3b"), H100, tp=8, pp=2),
        budget(config("llama-3.1-70b"), H100, tp=8, kv_pool_bytes=20 * GIB),
        *(budget(config(name), kv_pool_bytes=20 * GIB) for name in MIXED),
        budget(config("deepseek-v4-pro"), kv_pool_bytes=20 * GIB, kv_cache_dtype="bfloat16"),
        budget(config("deepseek-v4.1-flash"), kv_pool_bytes=20 * GIB, kv_cache_dtype="nvfp4_ds_mla"),
        budget(config("glm-5.2"), kv_pool_bytes=20 * GIB, kv_cache_dtype="fp8"),
        budget(config("kimi-k3"), kv_pool_bytes=20 * GIB, tp=8, pp=2, speculative="mtp:2"),
        budget(config("nemotron-3-nano-30b-a3b"), kv_pool_bytes=20 * GIB, tp=4, prefix_caching="off"),
        budget(config("deepseek-v3"), kv_pool_bytes=20 * GIB, tp=8, dcp=4),
        budget(config("llama-3.1-8b"), kv_pool_bytes=20 * GIB, kv_cache_dtype="turboquant_3bit_nc"),
        budget(config("llama-3.1-8b"), kv_pool_bytes=20 * GIB, kv_cache_dtype="nvfp4"),
        budget(config("gpt-oss-20b"), kv_pool_bytes=20 * GIB, max_model_len=500),
    ],
    ids=["gqa", "int4", "mla", "replicated", "given-pool", *MIXED, *OTHERS],
)
def test_each_formula_comes_to_its_value(result: Budget) -> None:
    """Numbers filled in, the formula is the value; and each names its source."""
    formulas = [term for term in result.terms if term.name not in IN_WORDS]

    assert [term.value for term in formulas] == [pytest.approx(_computed(term.formula)) for term in formulas]
    assert all(term.source for term in result.terms)


def test_terms_are_those_of_the_first_rank() -> None:
    """They agree with the record."""
    result = budget(config("llama-3.1-8b"), H100)

    values = {term.name: term.value for term in result.terms}
    rank = result.ranks[0]
    assert values["weights"] == rank.weights_bytes
    assert values["pool_bytes"] == rank.kv.pool_bytes
    assert values["headroom_bytes"] == rank.headroom_bytes
    assert set(values) >= {"bytes_per_token", "bytes_per_block", "requested", "available", "blocks_per_request"}


def test_an_unknown_model_has_no_terms() -> None:
    """Nothing to explain but what is unknown."""
    assert budget(config("gemma-2-9b") | {"model_type": "new"}, H100).terms == ()


def test_the_account_of_a_hybrid() -> None:
    """Each kind of cache, each size of page, each group, and what they come to."""
    result = budget(config("deepseek-v4-flash"), kv_pool_bytes=20 * GIB, max_model_len=1 << 20)

    formulas = {term.name: f"{term.value:,} = {term.formula}" for term in result.terms}
    assert formulas["record_of_4_bytes"] == "584 = ceil(448 × 65 / 64) + 1 + 64 × 2"
    assert formulas["index_key_bytes"] == "132 = ceil(128 × 132 / 128)"
    assert formulas["record_of_128_page"] == "1,728 = 256 tokens / 128 × 584 + 560 padding"
    assert formulas["bytes_per_block"] == "1,002,240 = 21 layers × 37,440 + 21 layers × 8,640 + 20 layers × 1,728"
    assert formulas["bytes_per_token"] == "3,915 = 1,002,240 / 256 tokens"
    assert formulas["bytes_per_token_logical"] == (
        "3,850.25 = 21 layers × 584 / 4 + 21 layers × 132 / 4 + 20 layers × 584 / 128"
    )
