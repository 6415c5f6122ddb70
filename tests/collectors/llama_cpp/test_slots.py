"""What slots hold of the cache, and the sight of one that ran full."""

import pytest
from msgspec.structs import replace

from collectors.errors import Unreadable
from collectors.llama_cpp.answers import Slot, parse_counters, parse_slots
from collectors.llama_cpp.slots import is_unified, pool_of, refused
from collectors.readings import PoolReading
from tests.collectors.replay import FIXTURES

RECORDED = FIXTURES / "llama_cpp" / "recorded-7e4c0a9"
BUSY = Slot(n_ctx=1024, is_processing=True, id_task=7, n_prompt_tokens=300)
IDLE = Slot(n_ctx=1024, is_processing=False, id_task=3, n_prompt_tokens=200)
COLD = Slot(n_ctx=1024)


def slots_of(name: str) -> tuple[Slot, ...]:
    return parse_slots((RECORDED / f"slots_{name}.json").read_text(encoding="utf-8"), source="test")


@pytest.mark.parametrize(
    ("name", "used", "cached"),
    [("idle_cold", 0, 0), ("busy_t1", 3 * 364 + 367, 0), ("busy_t3", 3 * 611 + 614, 0), ("after", 0, 2 * 1693)],
)
def test_a_unified_cache_is_not_overstated_by_its_slots(name: str, used: int, cached: int) -> None:
    """Four slots that may fill 4,096 cells each share 4,096 of them; tokens of idle slots are cached, not used."""
    pool = pool_of(slots_of(name), unified=True)

    assert pool == PoolReading(
        replica="0",
        used_ratio=used / 4096,
        capacity_tokens=4096,
        used_tokens=used,
        cached_tokens=cached,
        free_tokens=4096 - used - cached,
        blocks=4096,
        used_blocks=used,
        block_size_tokens=1,
    )


def test_caches_of_slots_of_their_own_add_up() -> None:
    """Each has its cells."""
    pool = pool_of((BUSY, IDLE, COLD), unified=False)

    assert pool is not None
    assert (pool.capacity_tokens, pool.used_tokens, pool.cached_tokens, pool.free_tokens) == (3072, 300, 200, 2572)


def test_an_unknown_division_leaves_the_capacity_out() -> None:
    """What is in use is known all the same; neither a ratio nor free room is guessed."""
    pool = pool_of((BUSY, IDLE), unified=None)

    assert pool is not None
    assert (pool.used_tokens, pool.cached_tokens) == (300, 200)
    assert (pool.capacity_tokens, pool.free_tokens, pool.used_ratio, pool.blocks) == (None, None, None, None)


def test_one_slot_leaves_no_doubt() -> None:
    """Nor do slots that hold more than one of them could."""
    single = pool_of((BUSY,), unified=None)
    many = pool_of((replace(BUSY, n_prompt_tokens=900), replace(BUSY, n_prompt_tokens=800)), unified=None)

    assert single is not None
    assert single.capacity_tokens == 1024
    assert many is not None
    assert many.capacity_tokens == 2048


def test_a_cache_that_runs_full_keeps_its_size() -> None:
    """Each slot counts a token before it has a cell: a real b11549 told 8,195 of 8,192 a second before it refused."""
    busy = tuple(replace(BUSY, n_prompt_tokens=tokens) for tokens in (512, 513))
    kept = (*busy, replace(IDLE, n_prompt_tokens=5))
    pools = [pool_of(slots, unified=True) for slots in (busy, kept)]

    assert [pool and (pool.capacity_tokens, pool.used_tokens, pool.used_ratio) for pool in pools] == [
        (1024, 1024, 1.0)
    ] * 2
    assert [pool and (pool.cached_tokens, pool.free_tokens) for pool in pools] == [(0, 0)] * 2
    unknown = pool_of(busy, unified=None)
    assert unknown is not None
    assert unknown.capacity_tokens is None


def test_a_busy_slot_that_does_not_tell_leaves_usage_out() -> None:
    """As in builds of 2025: unknown is not 0."""
    pool = pool_of((replace(BUSY, n_prompt_tokens=None), IDLE), unified=True)

    assert pool is not None
    assert (pool.used_tokens, pool.cached_tokens, pool.free_tokens) == (None, 200, None)


@pytest.mark.parametrize(
    ("flags", "unified"),
    [
        (None, None),
        ({}, True),  # as many slots as it likes share one cache
        ({"ctx-size": 4096}, True),
        ({"parallel": 4}, False),
        ({"parallel": -1}, True),
        ({"parallel": 4, "kv-unified": True}, True),
        ({"kv-unified": False}, False),
    ],
)
def test_what_flags_say_of_the_cache(flags: dict[str, int | float | str | bool] | None, unified: bool | None) -> None:
    """A number of slots without more gives each its own."""
    assert is_unified(flags) is unified


def test_a_cache_that_ran_full_is_seen() -> None:
    """All four requests ended; two slots work on requests that waited, the others are empty: four were refused."""
    after = slots_of("after")
    busy = slots_of("busy_t3")

    assert refused(busy, after) == 4


def test_so_does_a_newer_build_show_it() -> None:
    """As b11549 was seen to: 2,041 of 2,048 cells in use, half a second later two slots with requests that waited."""
    before = [Slot(n_ctx=2048, is_processing=True, id_task=task, n_prompt_tokens=510) for task in (9, 5, 4, 2)]
    after = [Slot(n_ctx=2048, is_processing=True, id_task=task, n_prompt_tokens=65) for task in (8, 10)]
    after += [Slot(n_ctx=2048, is_processing=False, id_task=task, n_prompt_tokens=0) for task in (4, 2)]

    assert refused(before, after) == 4


ENDED = replace(BUSY, is_processing=False)
EMPTIED = replace(ENDED, n_prompt_tokens=0)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ((), (BUSY,)),
        ((BUSY, BUSY), (BUSY, BUSY)),
        ((BUSY, IDLE), (ENDED, IDLE)),  # done: its tokens stay
        ((BUSY, IDLE), (BUSY, replace(IDLE, n_prompt_tokens=0))),  # an idle one made room
        ((BUSY, BUSY), (EMPTIED, BUSY)),  # done, and made room for the other
        ((IDLE,), (replace(IDLE, n_prompt_tokens=0),)),
    ],
)
def test_what_is_no_refusal(before: tuple[Slot, ...], now: tuple[Slot, ...]) -> None:
    """Requests that end, and idle slots that are emptied for others."""
    assert refused(before, now) == 0


@pytest.mark.parametrize("text", ["{}", "[1]", '[{"n_ctx": "many"}]', '[{"n_ctx": -4}]', "[" + "{}," * 5000 + "{}]"])
def test_what_are_no_slots_is_refused(text: str) -> None:
    """In one sentence, whatever it is."""
    with pytest.raises(Unreadable):
        parse_slots(text, source="test")


def test_averages_are_not_read() -> None:
    """They begin anew with every scrape of anybody; infinities and what is below 0 are left out."""
    page = (RECORDED / "metrics_busy_t1.txt").read_text(encoding="utf-8")

    assert parse_counters(page, source="test") == {
        "prompt_tokens": 776,
        "cached_tokens": 0,
        "generation_tokens": 0,
        "running": 4,
        "waiting": 2,
    }
    odd = "llamacpp:tokens_predicted_total 1.23457e+07\nllamacpp:requests_processing inf\n"
    assert parse_counters(odd, source="test") == {"generation_tokens": 12_345_700}
