"""A simulated node and its agent, moved a scrape at a time on a clock of their own: nothing waits.

The agent's own fleet, board and readers read what the simulation writes; what they are moved by is its story's time.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import httpx
import msgspec
from msgspec.structs import replace

from agent.board import Board
from agent.fleet import Fleet, ServerSpec, Source
from agent.processes import look
from agent.recorder.writer import Status
from collectors.errors import CollectorError
from collectors.http_text import Endpoint
from collectors.nvml.passes import Passes
from collectors.own_process import Usage
from collectors.probe_files import ProbePass
from collectors.readings import Container, Fault, Home, HostKills, NodeReading
from collectors.registry import ENGINES, engine_of
from collectors.run import Outcome, run
from collectors.simulated.driver import SimulatedDriver
from collectors.simulated.probes import SimulatedProbes
from collectors.simulated.processes import SimulatedDiscovery, SimulatedProcesses
from collectors.simulated.simulation import Simulation, write_model
from collectors.simulated.state import HostState, NodeState, write_state
from collectors.simulated.story import Scenario

GIB = 2**30
CPU_SHARE = 0.0186  # of a core, as benchmarks measure it
RESIDENT_BYTES = 62 * 2**20


class Node:
    """The node of a scenario, its files in ``folder``, and its agent; ``began`` is the wall clock at its first second.

    ``ports`` says where each server listens. What happens beside the scenario is told by overriding ``state``,
    ``happen``, ``reading``, ``page`` and ``bundles``.
    """

    def __init__(
        self, folder: Path, scenario: Scenario, *, ports: Mapping[str, int], began: float, seed: int = 8
    ) -> None:
        self.now = 0.0
        self.folder = folder
        self.board: Board
        self.pages: dict[str, str | None] = {}
        self._names = {port: name for name, port in ports.items()}
        self._simulation = Simulation(scenario, seed=seed, ports=ports, stamp=lambda seconds: began + seconds)
        for server in scenario.servers:
            write_model(server.model, folder / "models" / server.name)
            (folder / f"{server.name}.log").touch()
        self._state_file = folder / "node.state"
        self._discovery = SimulatedDiscovery(
            self._state_file, {name: engine.command for name, engine in ENGINES.items()}, clock=self._clock
        )
        self._tree = SimulatedProcesses(self._state_file, clock=self._clock)
        self._probes = SimulatedProbes(self._state_file, clock=self._clock)
        self._fleet = Fleet((), open_endpoint=self._endpoint, local_hosts=frozenset(), clock=self._clock)
        self.board = Board(
            self._fleet.watches,
            memory_interval_seconds=1.0,
            clock=self._clock,
            wall=lambda: began + self.now,
            usage=lambda: Usage(cpu_seconds=CPU_SHARE * self.now, resident_bytes=RESIDENT_BYTES, started_at=began),
        )
        self._passes: Passes | None = None
        self._modelled: set[str] = set()
        self.board.settings_reloaded(success=True)

    async def after(self, seconds: int) -> str:
        """The agent's page once it has read everything, so many seconds later."""
        self.now += seconds
        self._simulation.advance(seconds)
        self.pages = {name: self.page(name) for name in self._names.values()}
        write_state(self._state_file, self.state())
        self.happen()
        self._look()
        for source in list(self._fleet.sources.values()):
            await self._read(source)
        self.board.took_node(self.reading())
        self.board.took_recorder(Status(seconds=0.01, bundles=self.bundles()))
        return self.board.tick().metrics.decode()

    def state(self) -> NodeState:
        """What the driver says: as simulated, and on a host with memory enough."""
        host = HostState(total_bytes=512 * GIB, available_bytes=300 * GIB, some_seconds=0.0, full_seconds=0.0)
        return replace(self._simulation.state(), host=host)

    def happen(self) -> None:
        """What happens beside the simulation, now."""

    def reading(self) -> NodeReading:
        """A pass over the devices."""
        return msgspec.convert(self._device_passes().read(), NodeReading)

    def page(self, name: str) -> str | None:
        """What a server answers; None: nothing listens."""
        return self._simulation.metrics_text(name)

    def bundles(self) -> int:
        """How many bundles the flight recorder has kept."""
        return 0

    def log(self, name: str) -> Path:
        """What a server writes to."""
        return self.folder / f"{name}.log"

    def _clock(self) -> float:
        return self.now

    def _look(self) -> None:
        """As the poller takes a look at the process table; all servers here are found, none is configured."""
        seen = look(self._tree, self._discovery, {}, probes=self._probes)
        self.board.took_processes(self._done(seen))
        self._fleet.found(seen.found)
        for watch in self._fleet.watches:
            watch.take_home(self._home(watch.facts.url) if watch.tree else None)
        found = self._probes.read(seen.probes) if seen.probes else ProbePass(readings=(), seen=frozenset())
        self.board.took_probes(self._done(found), {place.pid for place in seen.probes})

    def _home(self, url: str) -> Home:
        name = self._named(url)
        container = Container(runtime="containerd", id="3f2a" * 16, name="vllm", pod=f"{name}-0", namespace="models")
        return Home(container=container, logs=(str(self.log(name)),), kills=HostKills(group=1, count=0))

    async def _read(self, source: Source) -> None:
        watch = source.watch
        if watch.may_ask:
            name = watch.facts.name
            outcome = await run("endpoint", name, source.reader.read, deadline_seconds=5, clock=self._clock)
            self.board.took_server(watch, outcome)
        if source.model is not None and watch.facts.name not in self._modelled:
            self._modelled.add(watch.facts.name)
            self.board.took_model(watch, self._done(source.model()))
        if source.log is not None and watch.logs:
            try:
                self.board.took_log(watch, self._done(source.log.read(watch.logs)))
            except CollectorError as error:
                self.board.took_log(watch, self._done(None, error.fault()))

    def _device_passes(self) -> Passes:
        if self._passes is None:
            driver = SimulatedDriver(self._state_file)
            driver.start()
            self._passes = Passes(
                driver,
                announce=lambda _: None,
                clock=self._clock,
                processes_interval_seconds=5.0,
                watch_events=lambda *_: True,
            )
        return self._passes

    def _endpoint(self, spec: ServerSpec) -> Endpoint:
        answer = httpx.MockTransport(partial(self._answer, self._named(spec.url)))
        return Endpoint(spec.url, paths=engine_of(spec.engine).paths, deadline_seconds=5, transport=answer)

    def _answer(self, name: str, request: httpx.Request) -> httpx.Response:
        page = self.pages[name]
        if page is None:
            raise httpx.ConnectError("refused") from ConnectionRefusedError()
        documents = {
            "/metrics": page,
            "/version": json.dumps(self._simulation.version(name)),
            "/v1/models": json.dumps(self._simulation.models(name)),
        }
        return httpx.Response(200, stream=httpx.ByteStream(documents[request.url.path].encode()))

    def _done(self, value: object, fault: Fault | None = None) -> Outcome:  # type: ignore[type-arg]
        return Outcome(value=value, fault=fault, duration_seconds=0.002, at=self.now)

    def _named(self, url: str) -> str:
        port = httpx.URL(url).port
        assert port is not None
        return self._names[port]
