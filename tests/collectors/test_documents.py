"""What engines answer in JSON: whatever is in it, a reading that can be recorded or one refusal, and never a bug."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import astuple

from collectors.errors import CollectorError
from collectors.http_text import Endpoint
from collectors.readings import ServerReading
from collectors.registry import ENGINES
from tests.collectors.replay import FIXTURES

WHOLE: dict[str, dict[str, str]] = {
    engine: {path: (FIXTURES / engine / name).read_text("utf-8") for path, name in files.items()}
    for engine, files in {
        "sglang": {
            "/metrics": "recorded-0.5.23/metrics_growing.txt",
            "/v1/loads": "recorded-0.5.23/v1_loads.json",
            "/server_info": "recorded-0.5.23/server_info.json",
        },
        "llama_cpp": {
            "/metrics": "recorded-7e4c0a9/metrics_busy_t3.txt",
            "/props": "recorded-7e4c0a9/props_not_unified.json",
            "/slots": "recorded-7e4c0a9/slots_busy_t3.json",
        },
        "ollama": {"/api/ps": "ps_one.json", "/api/version": "version.json"},
        "tgi": {"/metrics": "3.3.7/metrics.txt", "/info": "3.3.7/info.json"},
        "lightllm": {"/metrics": "1.1/metrics.txt", "/token_load": "1.1/token_load.json"},
    }.items()
}
WHOLE["vllm"] = {
    "/metrics": (FIXTURES / "vllm" / "0.33.0" / "metrics.txt").read_text("utf-8"),
    "/v1/models": '{"data":[{"id":"m","owned_by":"vllm","max_model_len":4096,"parent":null}]}',
    "/version": '{"version":"0.33.0"}',
}
NEEDED = ("tp_size", "dp_size", "page_size", "context_length", "mem_fraction_static", "disable_radix_cache", "version")
WHOLE["sglang"]["/server_info"] = json.dumps(
    {
        name: value
        for name, value in json.loads(WHOLE["sglang"]["/server_info"]).items()
        if name.startswith((*NEEDED, "speculative_", "max_total"))
    }
)


HOSTILE = ('"8"', "-5", "9" * 40, "1e308", "[]", '[{"a":[]}]', "{}", "true", "null", '"\\ud800"', f'"{"x" * 5000}"')


def damaged(document: Any) -> Iterator[str]:
    """The document with each of its values in turn, the first of each list, in each hostile way."""
    mark = "the value"
    for changed in _marked(document, mark):
        text = json.dumps(changed)
        for value in HOSTILE:
            yield text.replace(json.dumps(mark), value)


def _marked(value: Any, mark: str) -> Iterator[Any]:
    yield mark
    if isinstance(value, list):
        for changed in _marked(value[0], mark) if value else ():
            yield [changed, *value[1:]]
    elif isinstance(value, dict):
        for key, inner in value.items():
            for changed in _marked(inner, mark):
                yield {**value, key: changed}


async def read(engine: str, answers: Mapping[str, str]) -> ServerReading:
    def answer(request: httpx.Request) -> httpx.Response:
        text = answers.get(request.url.path)
        return httpx.Response(404 if text is None else 200, stream=httpx.ByteStream((text or "").encode()))

    paths, transport = ENGINES[engine].paths, httpx.MockTransport(answer)
    endpoint = Endpoint("http://127.0.0.1:8000", paths=paths, deadline_seconds=5, transport=transport)
    return await ENGINES[engine].open(endpoint, clock=lambda: 1.0, flags={"parallel": 4}).read()


def check(reading: ServerReading) -> None:
    """No figure is negative, not a number, or too large for a recording."""
    records = (*reading.pools, *reading.replicas, *reading.ranks, *reading.offload, *reading.adapters)
    figures = [one for record in records for one in astuple(record) if isinstance(one, int | float)]
    assert all(0 <= figure <= 1 << 53 for figure in figures)
    assert msgspec.msgpack.encode(reading)
    assert len(repr(reading)) < 10_000


@pytest.mark.parametrize(
    ("engine", "path"),
    [(engine, path) for engine, paths in WHOLE.items() for path in paths if not path.endswith("/metrics")],
)
def test_no_value_of_a_document_breaks_a_reading(engine: str, path: str) -> None:
    """Its reading can be recorded, or there is one refusal; beside a page of metrics there is always a reading."""
    whole = {other: text for other, text in WHOLE[engine].items() if path != "/v1/loads" or other != "/metrics"}
    beside = "/metrics" in whole and engine != "llama_cpp"  # which has its page beside its documents

    async def each() -> None:
        for text in damaged(json.loads(whole[path])):
            try:
                check(await read(engine, {**whole, path: text}))
            except CollectorError:
                assert not beside, text[:200]

    asyncio.run(each())
