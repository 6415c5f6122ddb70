"""What a real llama.cpp server says that it allocates, by its log."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.engines.vllm_server import ServerFailed, free_port, wait_until

START_SECONDS = 120.0
_SCRIPT = Path(__file__).with_name("serve_llama_cpp.py")
_OF_INTEREST = ("llama_context:", "llama_kv_cache", "llama_memory_recurrent:", "sched_reserve:", "load_model: init")
_READY = "load_model: initializing"

Said = dict[str, int | str]


def start(python: Path, model: Path, arguments: dict[str, Any], log: Path) -> str:
    """Start a server with these arguments of a budget, kill it, and return what it logged of its memory.

    Raises:
        ServerFailed: it did not start.
    """
    command = ["nice", "-n", "10", str(python), str(_SCRIPT), str(model), str(free_port()), json.dumps(arguments)]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: process.poll() is not None or _READY in _read(log), START_SECONDS, what="llama.cpp's slots")
    finally:
        process.kill()
        process.wait()
    text = _read(log)
    if _READY not in text:
        raise ServerFailed(f"llama.cpp ended with {process.returncode}: {_last_error(text)}")
    return of_interest(text)


def of_interest(log: str) -> str:
    """Lines about memory, without times."""
    lines = (re.sub(r"^[\d.]+ [IWE] (srv +)?", "", line) for line in log.splitlines() if " took " not in line)
    return "".join(f"{line}\n" for line in lines if line.startswith(_OF_INTEREST))


def said(log: str) -> Said:
    """Context, sizes of the caches and of the compute buffer; sizes in MiB as they are printed."""
    last = log[log.rindex("n_seq_max") :]  # older builds look first, without allocating
    found: Said = {
        "tokens": int(_one(r"n_ctx +\D+(\d+)", last)),
        "compute_mib": _one(r"compute buffer.* ([\d.]+) MiB", last),
    }
    sizes = re.findall(r"KV buffer size = +([\d.]+) MiB", last)
    second = "index_mib" if "creating indexer KV cache" in last else "window_mib"
    found |= dict(zip(("kv_mib", second), sizes, strict=False))
    states = re.findall(r"RS buffer size = +([\d.]+) MiB", last)
    return found | ({"state_mib": states[0]} if states else {})


def _one(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, pattern
    return found[1]


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _last_error(text: str) -> str:
    errors = [line for line in text.splitlines() if re.search(r"error|fail", line, re.IGNORECASE)]
    return errors[-1].strip() if errors else "no error in its log"
