"""A real server under a driver-level double: the device that is said to hold it, and what the agent says beside it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from collectors.simulated.state import GpuProcess, NodeState, write_state
from tests.double.build import build, environment
from tests.engines.scrape import Scrape
from tests.engines.vllm_server import VllmServer
from tests.node import GIB, H100, MIB
from tests.program import Program

NAME = "chat"
CORE_BYTES = 512 * MIB
WORKER_RUNTIME_BYTES = 1 * GIB


class Node:
    """One H100 of a double on which a server's real pids hold given bytes, and the agent's settings for that server."""

    def __init__(
        self, folder: Path, server: VllmServer, model: Path, *, arguments: Mapping[str, str | int] | None = None
    ) -> None:
        self._state_file = folder / "node.state"
        self.release()
        self.environment = environment(build(folder), self._state_file)
        self.config = folder / "vramscope.yml"
        entry = {"url": server.url, "name": NAME, "model": str(model), "arguments": dict(arguments or {})}
        self.config.write_text(json.dumps({"servers": [entry], "discovery": False}))  # others may run on this host

    def release(self) -> None:
        """Nothing is allocated: what a driver shows after a server has died."""
        write_state(self._state_file, NodeState(devices=(H100,)))

    def occupy(self, server: VllmServer, *, weights_bytes: int, pool_bytes: int) -> int:
        """List the server's engine core and worker with the bytes they would hold; returns their sum."""
        core, worker = server.engine_pids()
        worker_bytes = weights_bytes + pool_bytes + WORKER_RUNTIME_BYTES
        held = CORE_BYTES + worker_bytes
        processes = (
            GpuProcess(index=0, pid=core, used_bytes=CORE_BYTES),
            GpuProcess(index=0, pid=worker, used_bytes=worker_bytes),
        )
        device = replace(H100, allocated_bytes=held)
        write_state(self._state_file, NodeState(devices=(device,), gpu_processes=processes))
        return held


class View:
    """What the agent exports at one moment, as a scrape and as JSON."""

    def __init__(self, program: Program) -> None:
        self.snapshot = program.snapshot()
        self.scrape = Scrape(program.metrics())

    @property
    def server(self) -> dict[str, Any]:
        (server,) = self.snapshot["servers"]
        found: dict[str, Any] = server
        return found

    @property
    def pool(self) -> dict[str, Any]:
        (pool,) = self.server["pools"]
        found: dict[str, Any] = pool
        return found

    @property
    def device(self) -> dict[str, Any]:
        (device,) = self.snapshot["devices"]
        found: dict[str, Any] = device
        return found

    def components(self) -> dict[tuple[str, str], int]:
        """Bytes by server ("" for the device's own) and component; none while the device's reading is not fresh."""
        return {
            (part["server"], part["component"]): part["bytes"]
            for device in self.snapshot["devices"]
            for part in device["components"]
        }

    def metric(self, name: str, **labels: str) -> float:
        return self.scrape.value(f"vramscope_{name}", **labels)

    def series_of_server(self) -> set[str]:
        """Names of all series that carry the server's name."""
        return self.scrape.names(server=NAME)


def until(program: Program, wanted: Callable[[View], bool], *, seconds: float = 30.0) -> View:
    """The first view that is as wanted; fails after the deadline."""

    def look() -> View | None:
        view = View(program)
        return view if wanted(view) else None

    found = program.until(look, seconds=seconds)
    assert found is not None
    return found


def after(program: Program, moment: float) -> View:
    """What the agent says once its reading of the server is younger than ``moment`` (wall clock)."""

    def fresh(view: View) -> bool:
        age = view.server["age_seconds"]
        return age is not None and view.snapshot["time"] - age > moment and bool(view.components())

    return until(program, fresh)
