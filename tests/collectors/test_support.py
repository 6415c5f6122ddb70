"""The table of engines says what their readings hold."""

import pytest

from collectors.registry import ENGINES
from collectors.support import Told, told
from tests.collectors.reading import page, read_in_turn

PAGES: dict[str, tuple[dict[str, str], ...]] = {
    "vllm": ({"/metrics": "0.32.0/metrics_after.txt"},),
    "sglang": ({"/metrics": "recorded-0.5.23/metrics_growing.txt"}, {"/metrics": "0.5.12.post1/metrics.txt"}),
    "llama_cpp": (
        {
            "/props": "recorded-7e4c0a9/props_not_unified.json",
            "/slots": "recorded-7e4c0a9/slots_busy_t1.json",
            "/metrics": "recorded-7e4c0a9/metrics_busy_t1.txt",
        },
    ),
    "ollama": ({"/api/ps": "ps_one.json", "/api/version": "version.json"},),
    "tensorrt_llm": (
        {"/prometheus/metrics": "1.3/metrics.txt"},
        {"/prometheus/metrics": "1.3/metrics_next.txt"},
    ),
    "triton": ({"/metrics": "25.06/metrics.txt"}, {"/metrics": "25.06/metrics_next.txt"}),
    "tgi": ({"/metrics": "3.3.7/metrics.txt", "/info": "3.3.7/info.json"},),
    "lmdeploy": ({"/metrics": "0.14/metrics.txt"},),
    "nim": ({"/v1/metrics": "1.14/metrics.txt"},),
    "dynamo_trtllm": ({"/metrics": "1.6/metrics.txt"}, {"/metrics": "1.6/metrics_next.txt"}),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_engine_tells_is_what_its_newest_pages_give(engine: str) -> None:
    """No more and no less."""
    steps = [
        (float(number), {path: page(engine, name) for path, name in answers.items()})
        for number, answers in enumerate(PAGES[engine])
    ]
    readings, _ = read_in_turn(engine, steps, flags={"kv-unified": False, "parallel": 4, "num-parallel": 1})

    assert frozenset[Told]().union(*map(told, readings)) == ENGINES[engine].tells
