"""Reading a NIM over HTTP."""

import pytest

from collectors.errors import CollectorError
from collectors.readings import PoolReading, ReplicaReading
from tests.collectors.reading import page, read_in_turn, read_once
from tests.collectors.replay import reply


@pytest.mark.parametrize(("version", "preemptions"), [("1.14", None), ("2.0", 0)])
def test_the_same_facts_with_and_without_a_prefix(version: str, preemptions: int | None) -> None:
    """A ratio despite its name; preemptions only under the names of vLLM."""
    reading = read_once("nim", {"/v1/metrics": page("nim", f"{version}/metrics.txt")})

    assert (reading.engine, reading.model) == ("nim", "meta/llama-3.1-8b-instruct")
    assert reading.pools == (PoolReading(replica="0", used_ratio=0.42),)
    assert reading.replicas == (
        ReplicaReading(
            replica="0",
            running_requests=3,
            waiting_requests=1,
            preemptions=preemptions,
            prompt_tokens=7000,
            generation_tokens=1400,
            first_tokens=7,
            first_token_seconds=1.75,
        ),
    )


def test_only_its_metrics_are_requested() -> None:
    """Nothing else."""
    _, paths = read_in_turn("nim", [(1.0, {"/v1/metrics": page("nim", "1.14/metrics.txt")})])

    assert paths == ["/v1/metrics"]


def test_another_page_is_refused() -> None:
    """With what to check."""
    with pytest.raises(CollectorError) as caught:
        read_once("nim", {"/v1/metrics": reply("# nothing\n")})

    assert caught.value.reason == "no_series"
