"""The budget beside what real engines said when they started, recorded: every integer part is the same."""

import re

import pytest

from agent.memory.units import MIB
from docs.accuracy import EXACT, Start, figures, starts
from tests.engines import llama_cpp_server, sglang_server
from tests.engines.budget_cases import CASES
from tests.engines.record_budgets import folder_of

STARTS = list(starts())


def _id(start: Start) -> str:
    return f"{start.engine}-{start.version}-{start.name}"


def _text(start: Start, suffix: str) -> str:
    return (folder_of(start.engine, start.version) / f"{start.name}.{suffix}").read_text(encoding="utf-8")


def test_recordings_are_complete() -> None:
    """Every case of every engine is recorded as it is now."""
    recorded = {(start.engine, start.version, start.name): (start.arguments, start.config) for start in STARTS}

    assert recorded == {(case.engine, case.version, case.name): (case.arguments, case.config()) for case in CASES}


@pytest.mark.parametrize("start", STARTS, ids=_id)
def test_what_was_said_is_in_the_log(start: Start) -> None:
    """The figures of a recording are those of the lines beside it."""
    if start.engine == "llama_cpp":
        assert llama_cpp_server.said(_text(start, "log")) == start.said
    elif start.engine == "sglang":
        assert sglang_server.said(_text(start, "metrics")) == start.said
    else:
        tokens = re.search(r"KV cache size: ([\d,]+) tokens, .* per request: ([\d.]+)x", _text(start, "log"))
        assert tokens is not None
        assert (int(tokens[1].replace(",", "")), tokens[2]) == (start.said["tokens"], start.said["concurrency"])


@pytest.mark.parametrize("start", STARTS, ids=_id)
def test_the_budget_says_the_same(start: Start) -> None:
    """Blocks, tokens, concurrency and bytes of pools, with as many digits as the engine prints."""
    found = list(figures(start))

    assert {figure.name for figure in found} == set(start.said) & set(EXACT) != set()
    assert {figure.name: figure.budget for figure in found} == {figure.name: figure.said for figure in found}


@pytest.mark.parametrize("start", [start for start in STARTS if "compute_mib" in start.said], ids=_id)
def test_compute_buffers_are_in_their_range(start: Start) -> None:
    """llama.cpp's compute buffer lies between low and high."""
    runtime = start.rank().runtime

    assert runtime is not None
    assert runtime.activations.low <= float(start.said["compute_mib"]) * MIB <= runtime.activations.high
