"""Reading a TGI server over HTTP."""

import pytest

from collectors.errors import CollectorError
from collectors.readings import PoolReading, ReplicaReading
from tests.collectors.reading import Answers, page, read_in_turn, read_once
from tests.collectors.replay import reply


def server_of(version: str, name: str = "metrics.txt") -> Answers:
    return {"/metrics": page("tgi", f"{version}/{name}"), "/info": page("tgi", f"{version}/info.json")}


def test_reserved_tokens_are_not_used_ones() -> None:
    """The longest that requests may become; what is written and so what is free is not told."""
    reading = read_once("tgi", server_of("3.3.7"))

    assert (reading.engine, reading.version, reading.model) == ("tgi", "3.3.7", "meta-llama/Llama-3.1-8B")
    assert reading.pools == (PoolReading(replica="0", capacity_tokens=32000, reserved_tokens=12000),)
    assert reading.replicas == (
        ReplicaReading(replica="0", running_requests=3, waiting_requests=2, prompt_tokens=7000, generation_tokens=1400),
    )
    assert reading.arguments == {"max_model_len": 4096}
    assert "reserves" in reading.notes[0]


def test_the_capacity_of_an_older_version_is_in_its_info() -> None:
    """Before 2.3."""
    reading = read_once("tgi", server_of("2.2"))

    assert reading.pools == (PoolReading(replica="0", capacity_tokens=32000, reserved_tokens=4096),)


def test_what_was_never_used_is_unknown_and_not_0() -> None:
    """Series are absent until then."""
    reading = read_once("tgi", server_of("3.3.7", "metrics_cold.txt"))

    assert reading.pools == (PoolReading(replica="0", capacity_tokens=32000),)
    assert reading.replicas == (ReplicaReading(replica="0"),)


def test_only_safe_paths_are_requested() -> None:
    """Never the health path, which may run a prefill."""
    _, paths = read_in_turn("tgi", [(1000.0 + second, server_of("3.3.7")) for second in range(5)])

    assert (paths.count("/metrics"), paths.count("/info"), len(paths)) == (5, 1, 6)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"/metrics": reply("# nothing\n")}, "no_series"),
        ({"/metrics": reply("tgi_queue_size two\n")}, "malformed"),
        ({"/metrics": reply("x", status=404)}, "http_404"),
    ],
)
def test_what_can_go_wrong_is_said(answers: Answers, reason: str) -> None:
    """One reason each."""
    with pytest.raises(CollectorError) as caught:
        read_once("tgi", answers)

    assert caught.value.reason == reason


def test_no_more_is_reserved_than_there_is() -> None:
    """A note says what it claims."""
    page = "tgi_batch_max_total_tokens 1000\ntgi_batch_current_max_tokens 5000\n"
    reading = read_once("tgi", {"/metrics": reply(page)})

    assert reading.pools == (PoolReading(replica="0", capacity_tokens=1000, reserved_tokens=1000),)
    assert any("5000 tokens of 1000 are reserved" in note for note in reading.notes)
