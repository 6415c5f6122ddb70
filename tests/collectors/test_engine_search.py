"""Which engine serves at a URL: known by the newest pages of each, and no page asked that takes something away."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from collectors.engine_search import ENGINE_UNKNOWN, METRICS, MODELS, SEARCH_SECONDS, UNDRAINED
from collectors.errors import CollectorError
from collectors.http_text import Endpoint
from collectors.registry import ENGINES, UNKNOWN
from tests.collectors.replay import FIXTURES, replaying, reply

JSON = "application/json"
LOADS = json.dumps({"loads": [{"dp_rank": 0, "num_running_reqs": 1}]})


class Search:
    """What a search said of a server, look by look, and which pages it asked for that."""

    def __init__(self, answers: Mapping[str, bytes], *, at: tuple[float, ...] = (0.0,)) -> None:
        self.found: list[str] = []
        self.asked: list[str] = []
        asyncio.run(self._search(answers, at))

    async def _search(self, answers: Mapping[str, bytes], at: tuple[float, ...]) -> None:
        times = iter(at)
        now = [0.0]
        async with replaying(answers) as server:
            endpoint = Endpoint(server.url, paths=UNKNOWN.paths, deadline_seconds=5.0)
            reader = UNKNOWN.open(endpoint, clock=lambda: now[0])
            for now[0] in times:
                try:
                    self.found.append((await reader.read()).engine)
                except CollectorError as error:
                    self.found.append(f"{error.reason}: {str(error).removeprefix(server.url)}")
            await endpoint.aclose()
            self.asked = server.paths


def models_of(owner: str) -> bytes:
    return reply(json.dumps({"object": "list", "data": [{"id": "m", "owned_by": owner}]}), content_type=JSON)


def newest() -> list[tuple[str, dict[str, bytes]]]:
    """Each engine with the answers of its newest fixtures."""
    found = []
    for engine in ENGINES:
        for page in json.loads((FIXTURES / engine / "newest.json").read_text(encoding="utf-8"))["pages"]:
            found.append(
                (engine, {path: reply((FIXTURES / engine / name).read_bytes()) for path, name in page.items()})
            )
    return found


@pytest.mark.parametrize(("engine", "answers"), newest())
def test_every_engine_is_known_by_its_newest_pages(engine: str, answers: dict[str, bytes]) -> None:
    """Without a word of what it is; only paths are asked that some engine's reader asks too."""
    search = Search(answers)

    assert search.found == [engine]
    assert set(search.asked) <= frozenset().union(*(one.paths for one in ENGINES.values()))


@pytest.mark.parametrize(
    ("answers", "engine"),
    [
        ({"/metrics": reply('ray_vllm:num_requests_running{model_name="m"} 1\n')}, "vllm"),
        ({"/props": reply('{"build_info":"b6500","total_slots":1}', content_type=JSON)}, "llama_cpp"),
        ({"/v1/loads": reply(LOADS, content_type=JSON)}, "sglang"),
        ({MODELS: models_of("sglang")}, "sglang"),
        ({MODELS: models_of("vllm"), "/metrics": reply("# nothing yet\n")}, "vllm"),
        ({MODELS: models_of("vllm"), "/v1/metrics": reply("num_requests_running 1\n")}, "nim"),
        ({MODELS: models_of("organization"), "/metrics": reply("tgi_queue_size 1\n")}, "tgi"),
        ({UNDRAINED: reply("request_success_total 1\n")}, "tensorrt_llm"),
    ],
)
def test_an_engine_whose_metrics_are_off_or_elsewhere(answers: dict[str, bytes], engine: str) -> None:
    """By another of its pages, and at last by who owns its models."""
    assert Search(answers).found == [engine]


@pytest.mark.parametrize("answers", [{MODELS: models_of("tensorrt_llm")}, {UNDRAINED: reply("")}])
def test_tensorrt_llm_keeps_its_records(answers: dict[str, bytes]) -> None:
    """A look at its ``/metrics`` would take them away from whoever reads them."""
    search = Search({**answers, METRICS: reply("[]", content_type=JSON)})

    assert search.found == ["tensorrt_llm"]
    assert METRICS not in search.asked


def test_what_is_no_engine_is_asked_again_now_and_then() -> None:
    """One sentence until then."""
    answers = {path: reply("<html></html>", content_type="text/html") for path in UNKNOWN.paths}
    search = Search(answers, at=(0.0, 1.0, SEARCH_SECONDS - 0.1, SEARCH_SECONDS))

    expected = f"{ENGINE_UNKNOWN}: : its engine is not known yet: it serves nothing that an engine is known by; set it"
    assert search.found == [expected] * 4
    assert len(search.asked) == 2 * len(UNKNOWN.paths)


def test_a_server_that_wants_a_key_says_so() -> None:
    """That is why its engine is not known."""
    (found,) = Search({path: reply("no", status=401) for path in UNKNOWN.paths}).found

    assert found.startswith(ENGINE_UNKNOWN)
    assert "answered 401; set api_key_file of this server" in found


def test_nothing_there_is_asked_once_a_look() -> None:
    """It is unreachable, whatever it is."""

    async def scenario() -> None:
        async with replaying({}) as server:
            url = server.url
        endpoint = Endpoint(url, paths=UNKNOWN.paths, deadline_seconds=1.0)
        reader = UNKNOWN.open(endpoint, clock=lambda: 0.0)
        with pytest.raises(CollectorError, match="nothing listens"):
            await reader.read()
        await endpoint.aclose()

    asyncio.run(scenario())
