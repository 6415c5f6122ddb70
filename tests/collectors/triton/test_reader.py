"""Reading a Triton server with TensorRT-LLM models over HTTP."""

from collectors.readings import PoolReading, ReplicaReading
from tests.collectors.reading import Answers, page, read_in_turn, read_once


def server_of(name: str) -> Answers:
    return {"/metrics": page("triton", f"25.06/{name}.txt")}


def test_five_units_under_one_name_are_told_apart() -> None:
    """300 of 1,000 blocks of 64 tokens: computed, since the fraction on the page contradicts it; the response cache and
    Triton's own queue are not the engine's."""
    (_, reading), paths = read_in_turn("triton", [(1000.0, server_of("metrics")), (1001.0, server_of("metrics_next"))])

    assert (reading.engine, reading.state, reading.version, reading.model) == (
        "triton",
        "serving",
        None,
        "tensorrt_llm",
    )
    assert reading.pools == (
        PoolReading(
            replica="0",
            used_ratio=0.3,
            capacity_tokens=64000,
            used_tokens=19200,
            available_tokens=44800,
            blocks=1000,
            used_blocks=300,
            block_size_tokens=64,
        ),
    )
    assert reading.replicas == (
        ReplicaReading(
            replica="0", running_requests=3, waiting_requests=1, first_tokens=8, first_token_seconds=2.0
        ),  # 2,000 ms
    )
    assert (reading.figures_at, reading.notes) == (1001.0, ())
    assert set(paths) == {"/metrics"}


def test_iterations_that_do_not_go_on_make_figures_old() -> None:
    """While requests run; after ten seconds what moves is left out."""
    steps = [(1000.0, server_of("metrics")), (1001.0, server_of("metrics_next")), (1020.0, server_of("metrics_next"))]
    readings, _ = read_in_turn("triton", steps)

    assert [reading.pools[0].used_tokens for reading in readings] == [None, 19200, None]
    assert readings[2].figures_at == 1001.0
    assert readings[2].pools[0].capacity_tokens == 64000
    assert "do not go on" in readings[2].notes[0]


def test_an_idle_server_has_nothing_to_renew() -> None:
    """Its zeros are true ones."""
    reading = read_once("triton", server_of("metrics_idle"))

    assert (reading.pools[0].used_tokens, reading.replicas[0].running_requests, reading.notes) == (0, 0, ())


def test_models_are_replicas_of_their_own() -> None:
    """Of one page; which of them the server is called by is not known."""
    reading = read_once("triton", server_of("metrics_two_models"))

    assert [(pool.replica, pool.blocks) for pool in reading.pools] == [("small", 500), ("tensorrt_llm", 1000)]
    assert reading.model is None


def test_another_backend_is_no_failure() -> None:
    """It serves, and what is not told is absent."""
    reading = read_once("triton", server_of("metrics_other_backend"))

    assert (reading.state, reading.pools, reading.replicas) == ("serving", (), ())
    assert "no nv_trt_llm series" in reading.notes[0]
