"""Reading a LightLLM server over HTTP."""

import pytest

from collectors.errors import CollectorError
from collectors.lightllm.reader import SERIES
from collectors.readings import PoolReading, ReplicaReading
from tests.collectors.reading import page, read_in_turn, read_once
from tests.collectors.replay import FIXTURES, Script, reply

LOAD = "1.1/token_load.json"
IGNORED = {
    "lightllm_request_duration": "latency",
    "lightllm_request_validation_duration": "latency",
    "lightllm_request_count": "says nothing about memory",
    "lightllm_request_success": "says nothing about memory",
    "lightllm_request_failure": "for any reason",
    "lightllm_request_inference_duration": "latency",
    "lightllm_request_mean_time_per_token_duration": "latency",
    "lightllm_request_queue_duration_bucket": "latency",
    "lightllm_request_max_new_tokens": "what was asked for, not what is held",
    "lightllm_request_mtp_avg_token_per_step": "says nothing about memory",
    "lightllm_batch_inference_count": "batches, not memory",
    "lightllm_batch_inference_duration_bucket": "latency",
    "lightllm_batch_next_size": "batches, not memory",
    "lightllm_batch_pause_size": "how many are paused, not how often: no counter of preemptions",
    "lightllm_batch_current_max_tokens": "an estimate of what the batch may come to need",
    "lightllm_cache_ratio": "per finished request",
    "lightllm_cache_hit_rate": "the sums say it better",
    "lightllm_gen_throughput": "a rate of counters that are read",
    "lightllm_num_running_reqs": "as running, at longer intervals",
}


def server_of(version: str, load: str = LOAD) -> dict[str, bytes | Script]:
    return {"/metrics": page("lightllm", f"{version}/metrics.txt"), "/token_load": page("lightllm", load)}


@pytest.mark.parametrize(
    ("version", "model", "prompt", "generated"), [("1.0", None, 9000, 1400), ("1.1", "qwen", 8000, 1900)]
)
def test_one_state_in_every_version(version: str, model: str | None, prompt: int, generated: int) -> None:
    """Up to 1.0 tokens come with the requests; what is in use is a share of a pool whose size is not told."""
    reading = read_once("lightllm", server_of(version))

    assert (reading.engine, reading.state, reading.model) == ("lightllm", "serving", model)
    assert reading.pools == (PoolReading(replica="0", used_ratio=0.421875),)
    assert reading.replicas == (
        ReplicaReading(
            replica="0",
            running_requests=3,
            waiting_requests=1,
            prompt_tokens=prompt,
            generation_tokens=generated,
            prefix_hit_tokens=1750,
            prefix_query_tokens=prompt,
            first_tokens=7,
            first_token_seconds=1.75,
        ),
    )
    assert "--max_total_token_num" in reading.notes[0]


def test_a_pool_whose_size_its_flags_tell() -> None:
    """Its tokens."""
    readings, _ = read_in_turn("lightllm", [(1.0, server_of("1.1"))], flags={"max-total-token-num": 64_000})

    assert readings[0].pools == (
        PoolReading(
            replica="0", used_ratio=0.421875, capacity_tokens=64_000, used_tokens=27_000, available_tokens=37_000
        ),
    )
    assert readings[0].notes == ()


def test_replicas_have_pools_of_their_own() -> None:
    """Requests and tokens are of all of them together, so of none."""
    reading = read_once("lightllm", server_of("1.1", "1.1/token_load_dp2.json"))

    assert [(pool.replica, pool.used_ratio) for pool in reading.pools] == [("0", 0.25), ("1", 0.0)]
    assert reading.replicas == ()
    assert "of all its replicas together" in reading.notes[-1]


def test_a_model_that_was_given_no_name() -> None:
    """The label's default is none."""
    text = (FIXTURES / "lightllm" / "1.1" / "metrics.txt").read_text(encoding="utf-8")

    reading = read_once("lightllm", server_of("1.1") | {"/metrics": reply(text.replace("qwen", "default_model_name"))})

    assert reading.model is None


def test_before_the_first_request() -> None:
    """Not 0, but not known; it is a LightLLM all the same."""
    reading = read_once("lightllm", server_of("1.1") | {"/metrics": page("lightllm", "1.1/metrics_cold.txt")})

    assert reading.replicas == (ReplicaReading(replica="0"),)
    assert len(reading.pools) == 1


@pytest.mark.parametrize("load", ["{}", '{"current_load": "x"}', "[" * 5000])
def test_a_load_that_is_not_one_is_a_note(load: str) -> None:
    """Requests are read."""
    reading = read_once("lightllm", server_of("1.1") | {"/token_load": reply(load)})

    assert (reading.pools, reading.replicas[0].running_requests) == ((), 3)
    assert "/token_load is not the JSON" in reading.notes[0]


@pytest.mark.parametrize("load", ["-1", "1.5", "[2]"])
def test_a_share_that_cannot_be_one_is_absent(load: str) -> None:
    """And not cut to fit."""
    assert read_once("lightllm", server_of("1.1") | {"/token_load": reply(f'{{"current_load": {load}}}')}).pools == ()


def test_nothing_is_asked_that_generates_tokens() -> None:
    """Its health does."""
    _, paths = read_in_turn("lightllm", [(second, server_of("1.1")) for second in (1.0, 2.0)], api_key="secret")

    assert paths == ["/metrics", "/token_load"] * 2


def test_another_server() -> None:
    """Which has neither."""
    with pytest.raises(CollectorError) as caught:
        read_once("lightllm", {"/metrics": reply("# nothing\n")})

    assert caught.value.reason == "no_series"


def test_every_series_is_read_or_left_out_for_a_reason() -> None:
    """Of those that its newest release declares."""
    text = (FIXTURES / "lightllm" / "1.1" / "metrics.txt").read_text(encoding="utf-8")
    named = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE") and "_created" not in line}
    read = {name.removesuffix("_sum").removesuffix("_count") for name in SERIES.full_names}
    left = {name.removesuffix("_total") for name in named - read}

    assert left <= IGNORED.keys()
    assert IGNORED.keys() - left == {"lightllm_batch_inference_duration_bucket"}  # no sample yet
