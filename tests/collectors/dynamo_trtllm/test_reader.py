"""Reading TensorRT-LLM in a worker of Dynamo over HTTP, and the other engines that Dynamo carries."""

import asyncio

import pytest

from collectors.errors import CollectorError
from collectors.http_text import Endpoint
from collectors.registry import ENGINES
from tests.collectors.reading import Answers, page, read_in_turn, read_once
from tests.collectors.replay import FIXTURES, replaying, reply


def worker(version: str, name: str = "metrics") -> Answers:
    return {"/metrics": page("dynamo_trtllm", f"{version}/{name}.txt")}


@pytest.mark.parametrize(("version", "tokens"), [("1.6", 12800), ("0.9", None)])
def test_the_pool_by_series_of_the_engine_or_of_the_worker(version: str, tokens: int | None) -> None:
    """400 of 1,000 blocks; a percent that is a ratio. How many tokens a block has the old worker does not tell."""
    steps = [(1000.0, worker(version)), (1001.0, worker(version, "metrics_next"))]
    (first, reading), _ = read_in_turn("dynamo_trtllm", steps)

    (pool,) = reading.pools
    assert (pool.blocks, pool.used_blocks, pool.used_ratio, pool.used_tokens) == (1000, 400, 0.4, tokens)
    assert (reading.model, reading.figures_at) == ("llama", 1001.0)
    assert first.pools[0].used_blocks is None


def test_the_queue_of_a_trtllm_serve_is_taken_from_once_at_most() -> None:
    """Where the settings take it for a worker."""

    async def run() -> list[str]:
        async with replaying({"/metrics": reply("[]", content_type="application/json")}) as server:
            endpoint = Endpoint(server.url, paths=ENGINES["dynamo_trtllm"].paths, deadline_seconds=5.0)
            reader = ENGINES["dynamo_trtllm"].open(endpoint, clock=lambda: 0.0)
            for _ in range(3):
                with pytest.raises(CollectorError, match="engine: tensorrt_llm"):
                    await reader.read()
            await endpoint.aclose()
            return server.paths

    assert asyncio.run(run()) == ["/metrics"]


@pytest.mark.parametrize(("engine", "name"), [("vllm", "0.33.0/metrics.txt"), ("sglang", "0.5.12.post1/metrics.txt")])
def test_workers_around_other_engines_are_read_as_those(engine: str, name: str) -> None:
    """Their series are passed on under their own names, beside those of the worker."""
    own = (FIXTURES / "dynamo_trtllm" / "0.9" / "metrics.txt").read_bytes()
    passed = {"/metrics": reply(own + (FIXTURES / engine / name).read_bytes())}

    pool, own_pool = (read_once(engine, one).pools for one in (passed, {"/metrics": page(engine, name)}))

    assert pool == own_pool != ()


def test_a_worker_around_another_engine_is_said() -> None:
    """With the engine to set."""
    with pytest.raises(CollectorError, match="engine: vllm or sglang"):
        read_once("dynamo_trtllm", {"/metrics": page("vllm", "0.33.0/metrics.txt")})
