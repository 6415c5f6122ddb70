"""On a real GPU: known sizes through PyTorch; torch, the probe, NVML and the breakdown agree to 1 %.

``pytest -m gpu tests/test_gpu_probe.py`` with torch (CUDA) in this Python, or in that of ``VRAMSCOPE_GPU_PYTHON``.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.replay import FIXTURES
from tests.probe.programs import ROOT
from tests.probe.said import awaited, of_pid
from tests.program import Program, running

pytestmark = pytest.mark.gpu

MIB, GIB = 2**20, 2**30
WEIGHTS, POOL, PASSING = 2 * GIB, 3 * GIB, 1 * GIB
PAGE = FIXTURES / "vllm" / "0.32.0" / "metrics_idle_cold.txt"
CHECK = "import torch; raise SystemExit(not torch.cuda.is_available())"


class Server:
    """The process on the GPU: what it is told to hold, what torch says it holds."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._process = process
        self._out = process.stdout
        self.pid = process.pid
        self.url = self._out.readline().strip()

    def told(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._out.readline())
        return found


@pytest.fixture(scope="module")
def python() -> str:
    """A Python whose torch sees a GPU."""
    path = os.environ.get("VRAMSCOPE_GPU_PYTHON", sys.executable)
    if subprocess.run([path, "-c", CHECK], capture_output=True, timeout=120, check=False).returncode:
        pytest.skip(f"no GPU with PyTorch: {path} has no torch that sees one")
    return path


@pytest.fixture
def server(python: str, tmp_path: Path) -> Iterator[Server]:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "probe"),
        "VRAMSCOPE_PROBE_DIRECTORY": str(tmp_path / "probe"),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0],
        "PYTORCH_ALLOC_CONF": "",
        "PYTORCH_CUDA_ALLOC_CONF": "",
    }
    command = [python, str(Path(__file__).with_name("gpu_server.py")), str(PAGE)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


def test_probe_nvml_and_breakdown_agree(server: Server, tmp_path: Path) -> None:
    """Weights, pool, what a prefill holds, what it leaves behind in the allocator, and what is given back."""
    (tmp_path / "vramscope.yml").write_text(json.dumps({"servers": [{"url": server.url, "name": "chat"}]}))
    start = ("run", "--config", str(tmp_path / "vramscope.yml"), "--listen", "127.0.0.1:0")
    probe = of_pid(tmp_path / "probe", server.pid)
    with running(*start) as program:
        server.told(f"weights {WEIGHTS}")
        server.told(f"kv {POOL}")
        busy = server.told(f"passing {PASSING}")
        assert _near(busy["active"], WEIGHTS + POOL + PASSING)
        held = _agreed(program, probe, busy, {"weights": WEIGHTS, "activations": PASSING})
        assert _near(held["pool"], POOL)

        idle = server.told("passing 0")
        after = _agreed(program, probe, idle, {"weights": WEIGHTS, "allocator_slack": PASSING})
        assert _near(after["holds"], held["holds"])
        assert after["fragmentation"] == pytest.approx(1 - idle["active"] / idle["reserved"], abs=0.01)

        empty = server.told("empty")
        given_back = _agreed(program, probe, empty, {"weights": WEIGHTS})
        assert _near(after["holds"] - given_back["holds"], PASSING)
        assert abs(given_back["fragmentation"]) < 0.01


def _near(found: float, expected: float) -> bool:
    return abs(found - expected) <= 0.01 * expected


def _agreed(program: Program, probe: Path, torch: dict[str, Any], parts: dict[str, int]) -> dict[str, float]:
    """What the breakdown says once it has these parts, the probe what torch said, and NVML all of it and a context.

    Processes are asked for each five seconds: until then the context seems to hold what was freed.
    """
    figures = {name: torch[name] for name in ("allocated", "active", "reserved")}
    awaited(probe, lambda one: bool(one.devices) and figures.items() <= one.devices[0].known.items())

    def look() -> dict[str, Any]:
        found = program.snapshot()
        device = next((one for one in found["devices"] if torch["uuid"] in one["uuid"]), {"components": ()})
        sizes = {one["component"]: one["bytes"] for one in device["components"] if one["server"] == "chat"}
        of_torch = sum(sizes.values()) - sizes.get("context", 0)
        is_so = all(_near(sizes.get(name, 0), size) for name, size in parts.items())
        is_so = is_so and 64 * MIB < sizes.get("context", 0) < GIB and _near(of_torch, torch["reserved"])
        return {"device": device, **found} if is_so else {}

    return _figures(program.until(look, seconds=60))


def _figures(found: dict[str, Any]) -> dict[str, float]:
    """The components sum to the device; those that the probe tells are measured."""
    device = found["device"]
    of_server = {one["component"]: one for one in device["components"] if one["server"] == "chat"}
    assert sum(one["bytes"] for one in device["components"]) == device["total_bytes"]
    assert {of_server[name]["evidence"] for name in ("weights", "allocator_slack", "context")} == {"measured"}
    (allocator,) = (one["likely"] for one in found["servers"][0]["fragmentation"] if one["kind"] == "allocator")
    return {
        "holds": sum(one["bytes"] for one in of_server.values()),
        "pool": sum(one["bytes"] for name, one in of_server.items() if name.startswith("kv_")),
        "fragmentation": allocator,
    }
