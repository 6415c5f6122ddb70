"""The account: formulas that come to their values."""

import math
import re

import pytest

from agent.memory.budget import Budget, Device
from tests.agent.memory.models import GIB, budget, config

H100 = Device(name="NVIDIA H100 80GB HBM3", total_bytes=85_520_809_984, cuda_bytes=85_018_542_080)
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
    ],
    ids=["gqa", "int4", "mla", "replicated", "given-pool"],
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
