"""Reading an LMDeploy server over HTTP."""

import pytest

from collectors.errors import CollectorError
from collectors.readings import PoolReading, ReplicaReading
from tests.collectors.reading import Answers, page, read_in_turn, read_once
from tests.collectors.replay import reply


def server_of(name: str) -> Answers:
    return {"/metrics": page("lmdeploy", name)}


@pytest.mark.parametrize(("version", "hits"), [("0.9.2", None), ("0.12.3", None), ("0.14", 1750)])
def test_how_full_its_cache_is_in_every_version(version: str, hits: int | None) -> None:
    """A ratio despite its name; how large it is, LMDeploy does not tell. Tokens from the prefix cache since 0.14."""
    reading = read_once("lmdeploy", server_of(f"{version}/metrics.txt"))

    assert (reading.engine, reading.model) == ("lmdeploy", "qwen")
    assert reading.pools == (PoolReading(replica="0", used_ratio=0.42),)
    assert reading.replicas == (
        ReplicaReading(
            replica="0",
            running_requests=3,
            waiting_requests=1,
            prompt_tokens=7000,
            generation_tokens=1400,
            prefix_hit_tokens=hits,
            prefix_query_tokens=7000 if hits else None,
            first_tokens=7,
            first_token_seconds=1.75,
        ),
    )
    assert reading.arguments == {"max_model_len": 8192, "tp": 2, "dp": 1}
    assert "every 10 s" in reading.notes[0]


def test_replicas_are_apart() -> None:
    """By their engine."""
    reading = read_once("lmdeploy", server_of("0.14/metrics_dp2.txt"))

    assert [pool.replica for pool in reading.pools] == [one.replica for one in reading.replicas] == ["0", "1"]


def test_a_usage_that_is_no_number_is_absent() -> None:
    """And not 0."""
    assert read_once("lmdeploy", server_of("0.14/metrics_unknown.txt")).pools == ()


def test_only_its_metrics_are_requested() -> None:
    """Another path of it would end the server."""
    _, paths = read_in_turn("lmdeploy", [(1000.0, server_of("0.14/metrics.txt"))] * 3, api_key="secret")

    assert set(paths) == {"/metrics"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply("x", status=404), "metrics_off"),
        (reply("x", status=401), "http_401"),
        (reply("# nothing\n"), "no_series"),
    ],
)
def test_what_can_go_wrong_is_said(answer: bytes, reason: str) -> None:
    """One reason each."""
    with pytest.raises(CollectorError) as caught:
        read_once("lmdeploy", {"/metrics": answer})

    assert caught.value.reason == reason
