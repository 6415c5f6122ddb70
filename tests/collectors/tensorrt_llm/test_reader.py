"""Reading a trtllm-serve over HTTP: what its figures mean, how old they are, and which paths are never asked for."""

import pytest

from collectors.errors import CollectorError
from collectors.readings import OffloadReading, PoolReading, ReplicaReading
from collectors.tensorrt_llm.reader import PATHS
from tests.collectors.reading import Answers, page, read_in_turn, read_once
from tests.collectors.replay import redirect, reply

POOL = PoolReading(replica="0", capacity_tokens=32000, blocks=1000, block_size_tokens=32)


def server_of(name: str) -> Answers:
    return {
        "/prometheus/metrics": page("tensorrt_llm", name),
        "/version": page("tensorrt_llm", "version.json"),
        # Whoever reads this takes it away from others.
        "/metrics": reply('[{"iter":1,"kvCacheStats":{"usedNumBlocks":250}}]', content_type="application/json"),
    }


FIRST, NEXT = server_of("1.3/metrics.txt"), server_of("1.3/metrics_next.txt")


def test_figures_that_were_just_renewed_are_shown() -> None:
    """400 of 1,000 blocks of 32 tokens; of two processes with gauges the one that knows counts."""
    (_, reading), _ = read_in_turn("tensorrt_llm", [(1000.0, FIRST), (1001.0, NEXT)])

    assert (reading.engine, reading.state, reading.version, reading.model) == (
        "tensorrt_llm",
        "serving",
        "1.3.0rc2",
        "llama",
    )
    assert reading.figures_at == 1001.0
    assert reading.pools == (
        PoolReading(
            replica="0",
            used_ratio=0.4,
            capacity_tokens=32000,
            used_tokens=12800,
            available_tokens=19200,
            blocks=1000,
            used_blocks=400,
            block_size_tokens=32,
        ),
    )
    assert reading.replicas == (
        ReplicaReading(
            replica="0",
            running_requests=2,
            waiting_requests=0,
            prompt_tokens=8000,
            generation_tokens=1600,
            prefix_hit_tokens=2000,
            prefix_query_tokens=8000,
            first_tokens=8,
            first_token_seconds=2.0,
        ),
    )
    assert reading.notes == ()


def test_during_one_long_answer_nothing_old_is_shown_as_new() -> None:
    """No request ends, so its gauges stand still: their age grows, and past ten seconds what moves is left out."""
    steps = [(1000.0, FIRST), (1001.0, NEXT), (1011.0, NEXT), (1012.0, NEXT), (1300.0, NEXT)]
    readings, _ = read_in_turn("tensorrt_llm", steps)

    assert [reading.figures_at for reading in readings] == [None, 1001.0, 1001.0, 1001.0, 1001.0]
    assert [reading.pools[0].used_tokens for reading in readings] == [None, 12800, 12800, None, None]
    assert [reading.replicas[0].running_requests for reading in readings] == [None, 2, 2, None, None]
    assert readings[-1].pools == (POOL,)
    assert readings[-1].replicas[0].generation_tokens == 1600
    assert "renews them only then" in readings[-1].notes[0]


def test_the_secondary_pool_in_host_memory_is_named_while_its_figure_is_fresh() -> None:
    """An empty one can't be told from none, so it is not named; the pool on the device is what it was."""
    later = server_of("1.3/metrics_host.txt")
    (empty, full, old), _ = read_in_turn("tensorrt_llm", [(1000.0, NEXT), (1001.0, later), (1100.0, later)])

    assert (empty.offload, old.offload) == ((), ())
    assert full.offload == (OffloadReading(replica="0", by="secondary blocks", tier="host", used_ratio=0.625),)
    assert full.pools[0].used_tokens == 12800


def test_figures_of_an_unknown_age_are_not_fresh() -> None:
    """The first look can't tell when they were written."""
    reading = read_once("tensorrt_llm", FIRST)

    assert (reading.pools, reading.figures_at) == ((POOL,), None)
    assert "is not known" in reading.notes[0]


def test_only_safe_paths_are_requested() -> None:
    """Never the ones that drain; the version once in ten minutes."""
    _, paths = read_in_turn("tensorrt_llm", [(1000.0 + second, FIRST) for second in range(5)])

    assert paths.count("/version") == 1
    assert set(paths) == PATHS == {"/prometheus/metrics", "/version"}


@pytest.mark.parametrize("name", ["1.1/metrics.txt", "1.3/metrics_cold.txt"])
def test_a_pool_that_is_not_told_is_absent(name: str) -> None:
    """Before 1.3, and before the first request ended: unknown, not 0."""
    reading = read_once("tensorrt_llm", server_of(name))

    assert reading.pools == ()
    assert reading.replicas[0].running_requests is None
    assert reading.replicas[0].prompt_tokens is None
    assert "enable_iter_perf_stats" in reading.notes[0]


def test_times_to_the_first_token_under_their_old_name() -> None:
    """Also without a prefix; a model that is ``undefined`` has no name."""
    reading = read_once("tensorrt_llm", server_of("1.1/metrics.txt"))

    assert (reading.replicas[0].first_tokens, reading.replicas[0].first_token_seconds) == (7, 1.75)
    assert reading.model is None


def test_metrics_that_are_off_are_named_with_their_switch() -> None:
    """And the JSON under another path is not taken instead."""
    with pytest.raises(CollectorError) as caught:
        read_once("tensorrt_llm", {**FIRST, "/prometheus/metrics": reply("no", status=404)})

    assert caught.value.reason == "metrics_off"
    assert "return_perf_metrics: true" in str(caught.value)


def test_a_redirect_to_its_own_slash_is_followed() -> None:
    """As a mounted application answers."""
    answers = {
        **FIRST,
        "/prometheus/metrics": redirect("/prometheus/metrics/"),
        "/prometheus/metrics/": FIRST["/prometheus/metrics"],
    }

    assert read_once("tensorrt_llm", answers).pools == (POOL,)


def test_a_version_that_is_not_answered_is_a_note() -> None:
    """The reading does without."""
    reading = read_once("tensorrt_llm", {"/prometheus/metrics": FIRST["/prometheus/metrics"]})

    assert reading.version is None
    assert "404" in reading.notes[0]
