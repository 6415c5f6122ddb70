"""Headroom, the unexplained residual and fragmentation bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.memory.breakdown import Part
from agent.memory.budget import Range, RuntimeBudget
from agent.memory.comparison import Bounds, headroom_ratio, kv_block_fragmentation, unexplained_bytes

MIB = 2**20


def runtime(*, likely: int = 100 * MIB, high: int = 200 * MIB) -> RuntimeBudget:
    part = Range(low=0, likely=likely, high=high, source="test")
    return RuntimeBudget(activations=part, cuda_graphs=part, non_torch=part, context=part)


def parts(**named: int) -> list[Part]:
    own = {"free", "reserved", "hidden", "other_processes"}
    return [
        Part(component=name, server="" if name in own else "chat", bytes=count, evidence="measured")
        for name, count in named.items()
    ]


def test_headroom_counts_runtime_above_context_graphs_and_libraries() -> None:
    """free 500 + (runtime 800 - 3 x 100 fixed) = 1000 of 4000 MiB."""
    found = headroom_ratio(
        parts(free=500 * MIB, runtime=800 * MIB, weights=2600 * MIB, kv_used=100 * MIB), 4000 * MIB, {"chat": runtime()}
    )

    assert found == 0.25


def test_headroom_prefers_activations_and_slack_told_apart() -> None:
    """Where the engine tells them apart, runtime is no room: free 500 + 300 + 200 of 4000 MiB."""
    live = parts(free=500 * MIB, runtime=800 * MIB, activations=300 * MIB, allocator_slack=200 * MIB)

    assert headroom_ratio(live, 4000 * MIB, {"chat": runtime()}) == 0.25


def test_what_is_unexplained_is_no_room() -> None:
    """Runtime 900 of at most 800 MiB: a leak of 100 lowers free and must lower headroom: 500 + (800 - 300) of 4000."""
    live = parts(free=500 * MIB, runtime=900 * MIB, weights=2000 * MIB, kv_used=600 * MIB)

    assert headroom_ratio(live, 4000 * MIB, {"chat": runtime()}) == 0.25


@pytest.mark.parametrize("missing", ["weights", "kv_used"])
def test_headroom_is_unknown_while_weights_or_pool_are_in_the_runtime(missing: str) -> None:
    """A server that loads, hangs or has only a config: what it holds is not room."""
    known = {"free": 500 * MIB, "runtime": 3000 * MIB, "weights": 400 * MIB, "kv_used": 100 * MIB}
    del known[missing]

    assert headroom_ratio(parts(**known), 4000 * MIB, {"chat": runtime()}) is None


def test_headroom_is_unknown_beside_a_server_without_budget() -> None:
    """Its runtime may be weights or room: no number is better than a wrong one."""
    assert headroom_ratio(parts(free=500 * MIB, runtime=800 * MIB), 4000 * MIB, {"chat": None}) is None


def test_headroom_without_servers_is_free() -> None:
    """Only other processes: what is free is what is left."""
    assert headroom_ratio(parts(free=MIB, other_processes=3 * MIB), 4 * MIB, {}) == 0.25


@pytest.mark.parametrize(("live", "expected"), [(800 * MIB, 0), (801 * MIB, MIB), (0, 0)])
def test_unexplained_is_what_exceeds_the_high_bound(live: int, expected: int) -> None:
    """Four parts of 200 MiB high: 800 MiB is explained."""
    assert unexplained_bytes(live, runtime()) == expected


def test_fragmentation_of_ten_sequences() -> None:
    """10 sequences, 100 blocks of 16: at most 10 x 15 of 1600 slots are unfilled, half of that is likely."""
    found = kv_block_fragmentation(used_blocks=100, block_size_tokens=16, running_requests=10)

    assert found == Bounds(low=0.0, likely=150 / 1600 / 2, high=150 / 1600)


@pytest.mark.parametrize(("blocks", "running"), [(0, 3), (5, 0)])
def test_fragmentation_without_blocks_or_sequences_is_unknown(blocks: int, running: int) -> None:
    """Nothing handed out, or held by nobody we can see."""
    assert kv_block_fragmentation(used_blocks=blocks, block_size_tokens=16, running_requests=running) is None


@given(st.integers(1, 10**6), st.integers(1, 256), st.integers(1, 10**4))
def test_fragmentation_stays_below_its_ceiling(blocks: int, block_size: int, running: int) -> None:
    """0 <= low <= likely <= high <= (block size - 1) / block size."""
    found = kv_block_fragmentation(used_blocks=blocks, block_size_tokens=block_size, running_requests=running)

    assert found is not None
    assert 0 <= found.low <= found.likely <= found.high <= (block_size - 1) / block_size
