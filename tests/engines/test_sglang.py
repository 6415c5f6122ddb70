"""A real SGLang (kernels replaced) under load, found by an agent that nobody configured; what both say of its pool."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engines.tiny_models import make_llama
from tests.engines.vllm_server import Scrape, free_port
from tests.program import Program, running

pytestmark = pytest.mark.engines

SLOTS, REQUESTS, ANSWER = 3200, 4, 600
_START_SECONDS, _LOAD_SECONDS = 600.0, 600.0
_FLAGS = (
    *("--device", "cpu", "--load-format", "dummy", "--enable-metrics", "--host", "127.0.0.1"),
    *("--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--disable-cuda-graph"),
    *("--max-running-requests", "8", "--skip-server-warmup"),
    *("--max-total-tokens", str(SLOTS), "--context-length", "2048"),
)


@contextlib.contextmanager
def sglang_server(python: Path, model: Path, log: Path) -> Iterator[str]:
    """Its URL, once it exports its metrics."""
    port = free_port()
    command = [str(python), "-m", "sglang.launch_server", "--model-path", str(model), "--port", str(port), *_FLAGS]
    environment = os.environ | {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + _START_SECONDS
        while "sglang:max_total_num_tokens" not in _page(url):
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, "SGLang did not start in time"
            time.sleep(1)
        yield url
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def _page(url: str) -> str:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/metrics", timeout=10, trust_env=False).text
    return ""


def value(url: str, name: str) -> int:
    return int(Scrape(_page(url)).value(f"sglang:{name}"))


def complete(url: str, number: int) -> None:
    body = {"model": "default", "prompt": f"{number} {'x' * 60}", "max_tokens": ANSWER, "ignore_eos": True}
    httpx.post(f"{url}/v1/completions", json=body, timeout=_LOAD_SECONDS, trust_env=False).raise_for_status()


def seen(program: Program, url: str) -> dict[str, Any] | None:
    """What the agent says of the server that answers there, once it reads it."""
    servers = program.snapshot()["servers"]
    return next((one for one in servers if one["url"] == url and one["state"] == "serving" and one["pools"]), None)


def awaited(program: Program, look: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    found = program.until(look, seconds=90)
    assert found is not None
    return found


def test_an_unconfigured_agent_agrees_with_the_server(sglang_python: Path, tmp_path: Path) -> None:
    """Used, cached and free slots: before the load, under it, and when prefixes are all that is left of it."""
    (tmp_path / "empty.yml").touch()
    model = make_llama(tmp_path / "tiny-llama")
    start = ("run", "--config", str(tmp_path / "empty.yml"), "--listen", "127.0.0.1:0")
    with sglang_server(sglang_python, model.path, tmp_path / "sglang.log") as url, running(*start) as program:
        before = awaited(program, lambda: seen(program, url))
        assert (before["engine"], before["configured"]) == ("sglang", False)
        assert before["version"].startswith("0.5.")
        assert before["model_path"] == str(model.path)
        pool = before["pools"][0]
        assert (pool["capacity_tokens"], pool["used_tokens"]) == (SLOTS, 0)
        assert pool["pool_bytes"] == (SLOTS + 1) * pool["bytes_per_token"]

        load = [threading.Thread(target=complete, args=(url, number)) for number in range(REQUESTS)]
        for thread in load:
            thread.start()
        _agrees_under_load(program, url)
        for thread in load:
            thread.join()

        after = awaited(program, lambda: _settled(program, url))
        pool = after["pools"][0]
        assert pool["cached_tokens"] == value(url, "kv_evictable_tokens") > 0
        assert pool["free_tokens"] == value(url, "kv_available_tokens")
        assert pool["cached_tokens"] + pool["free_tokens"] == SLOTS
        assert after["counters"]["first_tokens"] == value(url, "time_to_first_token_seconds_count")


def _agrees_under_load(program: Program, url: str) -> None:
    """What is in use lies between what the server says a moment before and a moment after."""

    def busy(least: int) -> dict[str, Any] | None:
        one = seen(program, url)
        return one if one and one["requests"]["running"] and one["pools"][0]["used_tokens"] >= least else None

    awaited(program, lambda: busy(1))
    low = value(url, "kv_used_tokens")
    found = awaited(program, lambda: busy(low))
    assert low <= found["pools"][0]["used_tokens"] <= value(url, "kv_used_tokens")
    assert found["requests"]["running"] + found["requests"]["waiting"] <= REQUESTS


def _settled(program: Program, url: str) -> dict[str, Any] | None:
    """The server once its own figures say that nothing runs any more: up to half a minute after the load."""
    one = seen(program, url)
    if one is None or one["requests"]["running"] or value(url, "kv_used_tokens"):
        return None
    pool = one["pools"][0]
    return one if pool["used_tokens"] == 0 and pool["cached_tokens"] else None
