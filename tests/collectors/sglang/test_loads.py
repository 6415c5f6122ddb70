"""A server of SGLang whose metrics are off: what its loads say, and what is asked."""

import json
from collections.abc import Mapping

import pytest

from collectors.errors import CollectorError
from collectors.facts import FACTS_SECONDS
from collectors.readings import PoolReading, RankReport, ReplicaReading
from collectors.registry import ENGINES
from collectors.sglang.loads import parse_loads
from collectors.sglang.reader import SglangReader
from tests.collectors.reading import Answers, page, read_in_turn, read_once
from tests.collectors.replay import Replay, reply
from tests.collectors.sglang.test_reader import Clock, with_reader

JSON = "application/json"
RECORDED = "recorded-0.5.23"
OFF: Answers = {
    "/v1/loads": page("sglang", f"{RECORDED}/v1_loads.json"),
    "/server_info": page("sglang", f"{RECORDED}/server_info.json"),
}


def loads(*ranks: Mapping[str, object]) -> bytes:
    return reply(json.dumps({"loads": ranks}), content_type=JSON)


def test_a_recorded_server() -> None:
    """Its pool is empty but for what it keeps of prefixes, which is not told apart from free room there."""
    reading = read_once("sglang", OFF)

    assert (reading.version, reading.state) == ("0.5.23", "serving")
    assert reading.pools == (
        PoolReading(
            replica="0",
            used_ratio=0.0,
            capacity_tokens=3200,
            used_tokens=0,
            available_tokens=3200,
            blocks=3201,
            used_blocks=0,
            block_size_tokens=1,
        ),
    )
    assert reading.replicas == (ReplicaReading(replica="0", running_requests=0, waiting_requests=0),)
    assert reading.ranks == (RankReport(replica="0", pp_rank=0),)  # its weights came out below 0
    assert "metrics are off, so cached tokens, retractions and token counts are not known" in reading.notes[0]


def test_replicas_under_load() -> None:
    """One each; the weights of a rank in GiB."""
    one = {"num_running_reqs": 2, "num_waiting_reqs": 1, "num_used_tokens": 512, "max_total_num_tokens": 2048}
    answers = {**OFF, "/v1/loads": loads(one | {"dp_rank": 0, "memory": {"weight_gb": 15.0}}, one | {"dp_rank": 1})}

    reading = read_once("sglang", answers)

    assert [(pool.replica, pool.used_tokens, pool.used_ratio) for pool in reading.pools] == [
        ("0", 512, 0.25),
        ("1", 512, 0.25),
    ]
    assert [(one.running_requests, one.waiting_requests) for one in reading.replicas] == [(2, 1), (2, 1)]
    assert [rank.weights_bytes for rank in reading.ranks] == [15 << 30, None]


def test_nothing_else_is_asked_and_metrics_seldom() -> None:
    """They may come back, but an answer of 404 a second is noise in its log."""
    steps = [(1000.0 + second, OFF) for second in range(5)]
    metrics = {**OFF, "/metrics": page("sglang", f"{RECORDED}/metrics_growing.txt")}

    readings, paths = read_in_turn("sglang", [*steps, (1000.0 + FACTS_SECONDS, metrics)])

    assert paths == [
        *("/metrics", "/v1/loads", "/server_info"),
        *["/v1/loads"] * 4,
        *("/metrics", "/server_info"),
    ]
    assert readings[-1].pools[0].cached_tokens is not None
    assert set(paths) <= ENGINES["sglang"].paths
    assert not any("health" in path or "flush" in path or "occupation" in path for path in ENGINES["sglang"].paths)


def test_metrics_are_asked_for_again_once_it_was_gone() -> None:
    """It may have been started with them."""

    async def scenario(reader: SglangReader, server: Replay, clock: Clock) -> None:
        await reader.read()
        server.answers["/v1/loads"] = reply("not ready", status=503)
        with pytest.raises(CollectorError):
            await reader.read()
        server.answers["/metrics"] = page("sglang", f"{RECORDED}/metrics_growing.txt")
        assert (await reader.read()).pools[0].cached_tokens is not None

    with_reader(dict(OFF), scenario)


def test_neither_metrics_nor_loads() -> None:
    """As before 0.5.8: the flag that is missing."""
    with pytest.raises(CollectorError, match=r"/metrics answered 404; start SGLang with --enable-metrics") as caught:
        read_once("sglang", {"/server_info": OFF["/server_info"]})

    assert caught.value.reason == "metrics_off"


def test_a_key_that_is_missing() -> None:
    """Loads are behind it, unlike metrics."""
    with pytest.raises(CollectorError) as caught:
        read_once("sglang", {"/v1/loads": reply("no", status=401)})

    assert caught.value.reason == "http_401"


@pytest.mark.parametrize("text", ["", "[]", '{"loads": [{"dp_rank": "x"}]}', "[" * 5000])
def test_what_are_no_loads(text: str) -> None:
    """One sentence."""
    with pytest.raises(CollectorError, match="is not the JSON that SGLang answers there"):
        parse_loads(text, source="here")


def test_absurd_values_are_absent() -> None:
    """Neither 0 nor passed on."""
    answer = loads({"dp_rank": 0, "num_used_tokens": -5, "max_total_num_tokens": 1e300, "token_usage": 7})

    assert read_once("sglang", {**OFF, "/v1/loads": answer}).pools == (
        PoolReading(replica="0", capacity_tokens=3200, blocks=3201, block_size_tokens=1),  # as its facts say
    )


def test_more_replicas_than_there_can_be() -> None:
    """Refused."""
    text = json.dumps({"loads": [{"dp_rank": number} for number in range(600)]})

    with pytest.raises(CollectorError, match="names 600 replicas"):
        parse_loads(text, source="here")
