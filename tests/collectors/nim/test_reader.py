"""Reading a NIM over HTTP."""

import pytest

from collectors.errors import CollectorError
from collectors.readings import PoolReading, ReplicaReading, ServerReading
from tests.collectors.reading import page, read_in_turn, read_once
from tests.collectors.replay import reply


def nim(name: str) -> dict[str, bytes]:
    return {"/v1/metrics": page("nim", name)}


def figures(reading: ServerReading) -> object:
    return reading.pools, reading.replicas, reading.ranks, reading.started_at, reading.state


@pytest.mark.parametrize(("version", "preemptions"), [("1.14", None), ("2.0", 0)])
def test_the_same_facts_with_and_without_a_prefix(version: str, preemptions: int | None) -> None:
    """A ratio despite its name; preemptions only under the names of vLLM."""
    reading = read_once("nim", nim(f"{version}/metrics.txt"))

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


@pytest.mark.parametrize(
    ("engine", "path", "own", "inside"),
    [
        ("vllm", "/metrics", "0.24.0/metrics.txt", "vLLM"),
        ("sglang", "/metrics", "0.5.12.post1/metrics.txt", "SGLang"),
        ("tensorrt_llm", "/prometheus/metrics", "1.3/metrics.txt", "TensorRT-LLM"),
    ],
)
def test_the_engine_inside_is_read_as_that_engine(engine: str, path: str, own: str, inside: str) -> None:
    """Where its names are on the page: pools with their sizes, and whatever else it tells."""
    short = {"tensorrt_llm": "trtllm"}.get(engine, engine)
    reading = read_once("nim", nim(f"2.1/metrics_{short}.txt"))

    assert figures(reading) == figures(read_once(engine, {path: page(engine, own)}))
    assert reading.pools[0].capacity_tokens is not None
    assert (reading.engine, reading.version) == ("nim", None)
    assert reading.notes[-1] == f"the engine inside is {inside}"


def test_figures_of_tensorrt_llm_are_as_old_as_there() -> None:
    """They are renewed when a request ends."""
    steps = [(1000.0, "metrics"), (1001.0, "metrics_next"), (1060.0, "metrics_next")]
    readings, _ = read_in_turn("nim", [(at, nim(f"2.1/{name}_trtllm.txt")) for at, name in steps])

    assert [reading.figures_at for reading in readings] == [None, 1001.0, 1001.0]
    assert [reading.pools[0].used_ratio for reading in readings] == [None, 0.4, None]


def test_only_its_metrics_are_requested() -> None:
    """Nothing else."""
    _, paths = read_in_turn("nim", [(1.0, nim("1.14/metrics.txt")), (2.0, nim("2.1/metrics_sglang.txt"))])

    assert paths == ["/v1/metrics"] * 2


def test_another_page_is_refused() -> None:
    """With what to check."""
    with pytest.raises(CollectorError) as caught:
        read_once("nim", {"/v1/metrics": reply("# nothing\n")})

    assert caught.value.reason == "no_series"
