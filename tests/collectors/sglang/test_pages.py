"""SGLang's pages over the versions: pools, requests and counters, and the forms that mislead."""

import pytest
from msgspec.structs import replace

from collectors.errors import Unreadable
from collectors.readings import PoolReading
from collectors.sglang.page import Page, parse_page
from collectors.sglang.pools import pools_of
from tests.collectors.replay import FIXTURES

USED_ONLY = PoolReading(replica="0", used_ratio=0.25, used_tokens=1000)
PAGED = PoolReading(
    replica="0",
    used_ratio=992 / 4000,
    capacity_tokens=4000,
    used_tokens=992,
    cached_tokens=2000,
    free_tokens=1008,
    blocks=251,  # 250 pages and one that is never handed out
    used_blocks=62,
    block_size_tokens=16,
)


def page_of(name: str) -> Page:
    return parse_page((FIXTURES / "sglang" / name).read_text(encoding="utf-8"), source="test")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("0.4.6/metrics.txt", USED_ONLY),
        ("0.5.1/metrics.txt", USED_ONLY),
        (
            "0.5.9/metrics.txt",
            replace(
                USED_ONLY, capacity_tokens=4000, available_tokens=3000, blocks=251, used_blocks=63, block_size_tokens=16
            ),
        ),
        ("0.5.12.post1/metrics.txt", PAGED),
        ("shapes/all_schedulers_tp4.txt", PAGED),
        ("shapes/strange_paths.txt", PAGED),
        ("shapes/gigabytes.txt", replace(PAGED, pool_bytes=2 << 30)),
    ],
)
def test_the_pool_in_every_version(name: str, expected: PoolReading) -> None:
    """Cached and free tokens are told apart since 0.5.12; ranks of one replica are not added up; a GB is a GiB."""
    assert pools_of(page_of(name), None) == (expected,)


def test_the_capacity_may_come_from_elsewhere() -> None:
    """Where no series has it."""
    (pool,) = pools_of(page_of("0.4.6/metrics.txt"), 4000)

    assert (pool.capacity_tokens, pool.available_tokens, pool.used_ratio) == (4000, 3000, 0.25)


def test_cached_tokens_are_not_used_ones() -> None:
    """After the load 3,188 of 3,200 slots hold prefixes for reuse and none is in use: the pool is not full."""
    (pool,) = pools_of(page_of("recorded-0.5.23/metrics_after.txt"), None)

    assert (pool.used_tokens, pool.cached_tokens, pool.free_tokens) == (0, 3188, 12)
    assert pool.capacity_tokens == 3200
    assert pool.used_ratio == 0.0


@pytest.mark.parametrize(
    ("name", "used", "cached", "free"),
    [("idle_cold", 0, 37, 3163), ("growing", 1019, 37, 2144), ("nearfull", 2899, 63, 238), ("after", 0, 3188, 12)],
)
def test_recorded_pools_are_exact(name: str, used: int, cached: int, free: int) -> None:
    """Every slot is used, cached or free; the ratio is of counts, not the two decimals that SGLang gives."""
    (pool,) = pools_of(page_of(f"recorded-0.5.23/metrics_{name}.txt"), None)

    assert (pool.used_tokens, pool.cached_tokens, pool.free_tokens) == (used, cached, free)
    assert used + cached + free == pool.capacity_tokens
    assert pool.used_ratio == used / 3200
    assert pool.pool_bytes == 3201 * 2 * 2 * 2 * 32 * 2  # slots x layers x (K and V) x heads x width x 2 bytes


def test_windows_and_states_have_pools_of_their_own() -> None:
    """A state counts as one token; the bytes that the engine reports are of all pools and so of none."""
    full, window, state = pools_of(page_of("shapes/hybrid.txt"), None)

    assert full == PAGED
    assert (window.kind, window.capacity_tokens, window.used_tokens, window.cached_tokens) == ("window", 3200, 320, 480)
    assert window.blocks == 201
    assert (state.kind, state.capacity_tokens, state.used_tokens, state.free_tokens) == ("state", 30, 6, 14)
    assert state.blocks == 31


def test_replicas_have_their_own_pools() -> None:
    """With attention on each data-parallel rank, under the rank that reports for it."""
    first, second = pools_of(page_of("shapes/dp2.txt"), None)

    assert (first.replica, first.used_tokens) == ("0", 992)
    assert (second.replica, second.used_tokens, second.free_tokens) == ("1", 1600, 400)


def test_a_stage_does_not_speak_for_others() -> None:
    """With pipeline stages the bytes of one rank's pool are not those of another's."""
    (pool,) = pools_of(page_of("shapes/gigabytes.txt"), None, alike=False)

    assert pool.pool_bytes is None


def test_requests_of_priorities_are_counted_once() -> None:
    """The sample without a priority is the sum of the others."""
    values = page_of("shapes/priorities.txt").values["0"]

    assert (values["running"], values["waiting"]) == (3, 4)


def test_a_page_that_is_cut_off_is_refused() -> None:
    """In the middle of a line."""
    text = (FIXTURES / "sglang" / "0.4.6" / "metrics.txt").read_text(encoding="utf-8")

    with pytest.raises(Unreadable) as caught:
        parse_page(text[:-5], source="test")

    assert caught.value.reason == "truncated"


def test_too_many_replicas_are_refused() -> None:
    """Whoever writes a page can't make us remember without end."""
    lines = (f'sglang:num_used_tokens{{tp_rank="0",dp_rank="{n}"}} 1\n' for n in range(600))

    with pytest.raises(Unreadable) as caught:
        parse_page("".join(lines), source="test")

    assert caught.value.reason == "too_large"
