"""A real SGLang server with kernels replaced: started, asked once what it allocated, and ended."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from tests.engines.scrape import Scrape
from tests.engines.vllm_server import ServerFailed, free_port

START_SECONDS = 600.0
_OF_INTEREST = ("KV Cache is allocated", "max_total_num_tokens=", "Load weight", "avail mem", "sliding window")
_METRICS = ("max_total_num_tokens", "kv_cache_memory_usage_gb", "page_size", "num_pages", "weight_memory_usage_gb")

Said = dict[str, int | str]


def start(python: Path, model: Path, flags: Sequence[str], log: Path) -> tuple[str, str]:
    """Serve a model until it is ready; its log and metrics of memory.

    Raises:
        ServerFailed: it was not ready in time.
    """
    port = free_port()
    command = [
        *("nice", "-n", "10", str(python), "-m", "sglang.launch_server", "--model-path", str(model)),
        *("--device", "cpu", "--load-format", "dummy", "--enable-metrics", "--host", "127.0.0.1", "--port", str(port)),
        *("--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--disable-cuda-graph"),
        *("--max-running-requests", "8", "--skip-server-warmup", *flags),
    ]
    environment = os.environ | {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        metrics = _metrics(process, f"http://127.0.0.1:{port}/metrics")
    except ServerFailed as exc:
        raise ServerFailed(f"{exc} ({log})") from exc
    finally:
        _end(process)
    return of_interest(log.read_text("utf-8", "replace")), metrics


def of_interest(log: str) -> str:
    lines = (re.sub(r"^\[[\d :-]+\] ", "", line) for line in log.splitlines())
    return "".join(
        f"{line}\n" for line in lines if any(word in line for word in _OF_INTEREST) and "server_args" not in line
    )


def said(metrics: str) -> Said:
    """Tokens of the pool and its bytes; the unit that is called GB is GiB."""
    scrape = Scrape(metrics)
    return {
        "tokens": int(scrape.value("sglang:max_total_num_tokens")),
        "pool_bytes": round(scrape.value("sglang:kv_cache_memory_usage_gb") * 2**30),
    }


def _metrics(process: subprocess.Popen[bytes], url: str) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerFailed(f"SGLang ended with {process.returncode} before it was ready")
        try:
            text = httpx.get(url, timeout=5, trust_env=False).text
        except httpx.TransportError:
            text = ""
        if "sglang:kv_cache_memory_usage_gb" in text:
            lines = text.splitlines()
            return "".join(
                f"{line}\n" for line in lines if line.startswith(tuple(f"sglang:{name}{{" for name in _METRICS))
            )
        time.sleep(0.5)
    raise ServerFailed(f"SGLang was not ready within {START_SECONDS:.0f} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    """All of its processes: they are one session."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
