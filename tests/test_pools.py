"""The simulated pools on which the forecast is tuned and scored."""

from random import Random

import pytest

from agent.backtest.episodes import episodes_of
from benchmarks.pools.__main__ import half, recording
from benchmarks.pools.episode import play
from benchmarks.pools.families import FAMILIES
from benchmarks.pools.simulator import BLOCK, Pool, Request, Spec


def test_there_are_enough_families() -> None:
    assert len(FAMILIES) >= 30


def test_no_episode_is_in_both_halves() -> None:
    """By parity of the seed, within each family."""
    names = [next(iter(half(name))).name for name in ("tuning", "test")]

    assert names == ["steady_low:0", "steady_low:1"]


def test_a_seed_gives_the_same_recording() -> None:
    assert recording("bursts", 100) == recording("bursts", 100)


def test_a_pool_holds_what_its_requests_hold() -> None:
    """Three requests of 100 prompt tokens; after ten seconds at 50 a second each has generated 450 to 500."""
    pool = Pool(Spec(capacity=100_000, speed=(0.02, 0.0, 0.0)))
    for _ in range(3):
        pool.submit(Request(100, 5000))
    for second in range(10):
        pool.tick(float(second))

    held = 3 * (100 + BLOCK / 2) + pool.held_generation
    assert pool.used == pytest.approx(held)
    assert pool.generation_tokens == pytest.approx(pool.held_generation, abs=3)


def test_the_last_one_in_is_preempted_and_counted_when_it_is_back() -> None:
    """Two chains of which each would fill the pool alone: one goes, and waits."""
    pool = Pool(Spec(capacity=1500, speed=(0.02, 0.0, 0.0)))
    first, second = Request(100, 1200), Request(100, 1200)
    pool.submit(first)
    pool.submit(second)
    for now in range(15):
        pool.tick(float(now))

    assert pool.shortages == 1
    assert (pool.running, list(pool.waiting)) == ([first], [second])
    assert pool.generation_tokens - pool.finished_generation > second.generated > 0


def test_a_window_stops_growing() -> None:
    """A pool of windows of 200 tokens: one request holds 200, however long it gets."""
    pool = Pool(Spec(capacity=10_000, speed=(0.02, 0.0, 0.0), window=200, window_share=1.0))
    pool.submit(Request(100, 5000))
    for now in range(30):
        pool.tick(float(now))

    assert pool.used == pytest.approx(200 + BLOCK / 2)


def test_refusal_takes_all_that_run() -> None:
    pool = Pool(Spec(capacity=1000, speed=(0.02, 0.0, 0.0), rule="refuse"))
    for _ in range(3):
        pool.submit(Request(100, 5000))
    for now in range(10):
        pool.tick(float(now))

    assert (pool.shortages, pool.running) == (3, [])


@pytest.mark.parametrize("family", ["storm", "smaller_rank", "llama_slots", "drift"])
def test_the_event_is_found_in_what_was_read(family: str) -> None:
    """Within some seconds of the truth: vLLM's counter comes late, its gauges tell at once unless much happens."""
    for seed in (100, 101):
        name = f"{family}:{seed}"
        random = Random(name)
        episode = play(name, FAMILIES[family](random), random)
        found = [one.end for one in episodes_of(episode.signals) if one.event]

        assert (episode.event_at is None) == (not found)
        if episode.event_at is not None:
            assert 0 <= found[0] - episode.event_at <= 10
