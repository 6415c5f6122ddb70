"""The simulated node as the demo runs it: the simulation on a faster clock, its state file and its servers.

Beside the clock there is nothing here that decides: the simulation moves in its own fixed steps, so what happens
depends on scenario and seed, and only when it is seen depends on the machine.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from collectors.simulated.server import HOST, SimulatedServers
from collectors.simulated.simulation import Simulation, write_model
from collectors.simulated.state import NodeState, write_state
from collectors.simulated.story import Scenario

_TICK_SECONDS = 0.2  # real time between two looks at the clock
_CHUNK_SECONDS = 10.0  # simulated time after which others in the event loop get their turn


class ServerAddress(Struct, frozen=True, kw_only=True):
    """What settings say about a server: where it answers, its model's directory, the flags its endpoints don't show."""

    name: str
    url: str
    model: Path
    arguments: dict[str, int | float | str | bool]


class SimulatedNode:
    """A scenario that plays ``speed`` times as fast as real time, with its files in ``directory``.

    ``clock`` (monotonic) paces the simulation, ``wall`` dates what starts in it; both are real seconds.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int = 0,
        speed: float = 10.0,
        directory: Path,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._scenario = scenario
        self._seed = seed
        self._speed = speed
        self._directory = directory
        self._clock = clock
        self._wall = wall
        self._http: SimulatedServers | None = None
        self.simulation: Simulation  # there once the node has started
        self._written: NodeState | None = None

    @property
    def state_path(self) -> Path:
        """The node state file, there once the node has started."""
        return self._directory / "node.state"

    @property
    def servers(self) -> tuple[ServerAddress, ...]:
        """The servers of the scenario, in its order; known once the node has started."""
        ports = self._http.ports if self._http else {}
        return tuple(
            ServerAddress(
                name=server.name,
                url=f"http://{HOST}:{ports[server.name]}",
                model=self._model_directory(server.name),
                arguments={
                    "tensor-parallel-size": server.arguments.tensor_parallel_size,
                    "max-num-seqs": server.arguments.max_num_seqs,
                },
            )
            for server in self._scenario.servers
            if server.name in ports
        )

    async def start(self) -> None:
        """Write the model directories and the first state, and take the servers' ports.

        Raises:
            OSError: the directory can't be written, or a port that the scenario names is in use.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        for server in self._scenario.servers:
            write_model(server.model, self._model_directory(server.name))
        self._http = SimulatedServers({server.name: server.port for server in self._scenario.servers})
        started = self._wall()
        self.simulation = Simulation(
            self._scenario,
            seed=self._seed,
            ports=self._http.ports,
            stamp=lambda seconds: started + seconds / self._speed,
        )
        self._show()

    async def run(self, duration_seconds: float | None = None) -> None:
        """Play until ``duration_seconds`` simulated seconds have passed in this call, or for ever."""
        begun, played = self._clock(), 0.0
        while duration_seconds is None or played < duration_seconds:
            due = (self._clock() - begun) * self._speed
            if duration_seconds is not None:
                due = min(due, duration_seconds)
            while played < due:
                step = min(_CHUNK_SECONDS, due - played)
                await self._play(step)
                played += step
            self._show()
            await asyncio.sleep(_TICK_SECONDS)

    async def stop(self) -> None:
        """Close the servers and give their ports back; the files stay."""
        if self._http is not None:
            await self._http.stop()
            self._http = None

    async def _play(self, seconds: float) -> None:
        self.simulation.advance(seconds)
        if self._http is not None:
            await self._http.follow(self.simulation)
        await asyncio.sleep(0)

    def _show(self) -> None:
        """Write the state file, if there is something new to say."""
        state = self.simulation.state()
        if state != self._written:
            write_state(self.state_path, state)
            self._written = state

    def _model_directory(self, server: str) -> Path:
        return self._directory / "models" / server
