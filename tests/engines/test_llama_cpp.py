"""A real llama.cpp server under load, found by an agent that nobody configured, and what both say of its cache."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engines.tiny_ggufs import llama
from tests.engines.vllm_server import free_port
from tests.program import Program, running

pytestmark = pytest.mark.engines

CELLS, SLOTS, REQUESTS, ANSWER = 4096, 4, 6, 1500  # four answers fill the cells, two do not
_SCRIPT = Path(__file__).with_name("run_llama_server.py")
_START_SECONDS, _LOAD_SECONDS = 60.0, 600.0
_REFUSED = "Context size has been exceeded."


class LlamaServer:
    """The real server under its program's name, and what it answers itself."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self.log = log
        self._client = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def close(self) -> None:
        self._client.close()

    def held(self) -> tuple[int, int]:
        """Tokens in busy and in idle slots."""
        slots: list[dict[str, Any]] = self._client.get("/slots").json()
        used = sum(slot.get("n_prompt_tokens", 0) for slot in slots if slot["is_processing"])
        return used, sum(slot.get("n_prompt_tokens", 0) for slot in slots if not slot["is_processing"])

    def counter(self, name: str) -> int:
        lines = self._client.get("/metrics").text.splitlines()
        return next(int(float(line.split()[1])) for line in lines if line.startswith(f"llamacpp:{name} "))

    def complete(self, seed: int, answers: list[int]) -> None:
        """One request; its status is added to ``answers``."""
        body = {"prompt": "x" * 60, "n_predict": ANSWER, "ignore_eos": True, "seed": seed}
        answers.append(httpx.post(f"{self.url}/completion", json=body, timeout=_LOAD_SECONDS).status_code)


@contextlib.contextmanager
def llama_server(python: Path, folder: Path) -> Iterator[LlamaServer]:
    """Started as people start it: slots share one cache."""
    model = llama().write(folder / "tiny.gguf")
    port, log = free_port(), folder / "llama.log"
    packages = next((python.parent.parent / "lib").glob("python3*/site-packages"))
    words = ("-m", model, "--port", port, "-c", CELLS, "-np", SLOTS, "-kvu", "--metrics")
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["llama-server", str(_SCRIPT), *map(str, words)],
            executable=Path(sys.executable).resolve(),
            env={**os.environ, "PYTHONPATH": str(packages)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    server = LlamaServer(f"http://127.0.0.1:{port}", log)
    try:
        _await_start(process, server)
        yield server
    finally:
        server.close()
        process.kill()
        process.wait()


def _await_start(process: "subprocess.Popen[bytes]", server: LlamaServer) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        assert process.poll() is None, server.log.read_text(errors="replace")[-2000:]
        assert time.monotonic() < deadline, "llama.cpp did not start in time"
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{server.url}/health", timeout=5, trust_env=False).status_code == 200:
                return
        time.sleep(0.2)


def seen(program: Program, url: str) -> dict[str, Any] | None:
    """What the agent says of the server that answers there, once it reads it."""
    servers = program.snapshot()["servers"]
    return next((one for one in servers if one["url"] == url and one["state"] == "serving" and one["pools"]), None)


def awaited(program: Program, look: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    found = program.until(look, seconds=60)
    assert found is not None
    return found


def test_an_unconfigured_agent_agrees_with_the_server(llama_cpp_pythons: dict[str, Path], tmp_path: Path) -> None:
    """Capacity, tokens in use and refused requests: before the load, under it, and after it has filled the cache."""
    (tmp_path / "empty.yml").touch()
    answers: list[int] = []
    python = next(iter(llama_cpp_pythons.values()))
    with (
        llama_server(python, tmp_path) as server,
        running("run", "--config", str(tmp_path / "empty.yml"), "--listen", "127.0.0.1:0") as program,
    ):
        before = awaited(program, lambda: seen(program, server.url))
        assert (before["engine"], before["configured"]) == ("llama_cpp", False)
        assert before["model_path"] == str(tmp_path / "tiny.gguf")
        pool = before["pools"][0]
        assert (pool["capacity_tokens"], pool["used_tokens"], pool["free_tokens"]) == (CELLS, 0, CELLS)
        assert pool["bytes_per_token"] == 4 * 2 * 2 * 32 * 2  # layers x (K and V) x heads x width x 2 bytes
        assert pool["pool_bytes"] == CELLS * pool["bytes_per_token"]

        load = [threading.Thread(target=server.complete, args=(seed, answers)) for seed in range(REQUESTS)]
        for thread in load:
            thread.start()
        _agrees_under_load(program, server)
        for thread in load:
            thread.join()

        after = awaited(program, lambda: _settled(program, server))
        assert after["counters"]["refusals"] == answers.count(500) == SLOTS
        assert _REFUSED in server.log.read_text(errors="replace")
        assert after["counters"]["generation_tokens"] == server.counter("tokens_predicted_total")
        used, cached = server.held()
        assert (after["pools"][0]["used_tokens"], after["pools"][0]["cached_tokens"]) == (used, cached)


def _agrees_under_load(program: Program, server: LlamaServer) -> None:
    """What is in use lies between what the server says a moment before and a moment after."""

    def busy(least: int) -> dict[str, Any] | None:
        one = seen(program, server.url)
        is_busy = one and one["requests"]["running"] == SLOTS
        return one if one and is_busy and one["pools"][0]["used_tokens"] >= least else None

    awaited(program, lambda: busy(1))
    low, _ = server.held()
    found = awaited(program, lambda: busy(low))
    high, _ = server.held()
    assert low <= found["pools"][0]["used_tokens"] <= high
    assert found["requests"] == {"running": SLOTS, "waiting": REQUESTS - SLOTS}


def _settled(program: Program, server: LlamaServer) -> dict[str, Any] | None:
    """The server once the agent has seen that nothing runs any more."""
    one = seen(program, server.url)
    done = one and one["requests"]["running"] == 0 and one["counters"]["generation_tokens"]
    return one if done == server.counter("tokens_predicted_total") else None
