"""The simulated node: devices, servers and other processes of a scenario, moved by explicit steps of time.

The same scenario and seed give the same node at the same simulated time, however time was cut into calls; nothing here
reads a clock.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from collectors.simulated.exposition import Exposition, models
from collectors.simulated.life import STEP_SECONDS, Clock, ProcessLife, ServerLife
from collectors.simulated.memory import DeviceMemory
from collectors.simulated.state import NodeState
from collectors.simulated.story import Model, Scenario

_EPOCH = 1_700_000_000.0


class Simulation:
    """A scenario being played. ``ports`` by server name; ``stamp`` turns simulated seconds into wall-clock seconds."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int = 0,
        ports: Mapping[str, int] | None = None,
        stamp: Callable[[float], float] = lambda seconds: _EPOCH + seconds,
    ) -> None:
        self.scenario = scenario
        self._ports = {server.name: server.port for server in scenario.servers} | dict(ports or {})
        self._stamp = stamp
        self._due = 0.0
        random = _random(seed, "node")
        pids = _pids(random)
        self._clock = Clock(scenario.period_seconds)
        self._memory = DeviceMemory(scenario.devices, random)
        self._servers = {
            server.name: ServerLife(
                server,
                scenario.devices,
                clock=self._clock,
                memory=self._memory,
                pids=pids,
                random=_random(seed, f"server {server.name}"),
            )
            for server in scenario.servers
        }
        self._processes = [
            ProcessLife(process, clock=self._clock, memory=self._memory, pids=pids) for process in scenario.processes
        ]

    @property
    def time(self) -> float:
        """Simulated seconds since the start, in whole steps."""
        return self._clock.now

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass; what is less than a step is kept for the next call."""
        self._due += seconds
        while (self._clock.steps + 1) * STEP_SECONDS <= self._due + 1e-6:
            self._step()

    def state(self) -> NodeState:
        """What the driver and the process table answer now."""
        servers = self._servers.items()
        return NodeState(
            driver_version=self.scenario.driver,
            devices=tuple(self._memory.devices()),
            gpu_processes=tuple(self._memory.processes()),
            host_processes=tuple(
                process for name, life in servers for process in life.host_processes(self._ports[name], self._stamp)
            ),
            allocators=tuple(one for _, life in servers for one in life.allocators()),
        )

    def life(self, server: str) -> ServerLife:
        """A server as it stands now."""
        return self._servers[server]

    def metrics_text(self, server: str) -> str | None:
        """The server's /metrics; None while nothing listens."""
        life = self._servers[server]
        if life.engine is None:
            return None
        return Exposition(
            server=life.server,
            engine=life.engine,
            process_started_at=self._stamp(life.started_at),
            created_at=self._stamp(life.serving_since),
        ).text()

    def models(self, server: str) -> dict[str, Any]:
        """The server's /v1/models."""
        return models(self._servers[server].server, self._stamp(self.time))

    def version(self, server: str) -> dict[str, str]:
        """The server's /version."""
        return {"version": self._servers[server].server.engine_version}

    def _step(self) -> None:
        self._clock.steps += 1
        self._memory.clean_up(self._clock.now)
        for process in self._processes:
            process.step()
        for life in self._servers.values():
            life.step()


def write_model(model: Model, directory: Path) -> None:
    """Write what a model directory tells about its bytes: config.json and an index without its checkpoint."""
    directory.mkdir(parents=True, exist_ok=True)
    weight_map = {"model.embed_tokens.weight": "model-00001-of-00001.safetensors"}
    index = {"metadata": {"total_size": model.total_size}, "weight_map": weight_map}
    (directory / "config.json").write_text(json.dumps(model.config, indent=2) + "\n", encoding="utf-8")
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _random(seed: int, purpose: str) -> Random:
    return Random(f"{seed} {purpose}")  # noqa: S311  a story, not a secret


def _pids(random: Random) -> Iterator[int]:
    pid = random.randrange(2_000, 60_000)
    while True:
        pid += random.randrange(1, 40)
        yield pid
