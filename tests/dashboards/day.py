"""A day of a simulated node as its agent tells it: two servers, and in the last hour all that can happen to them.

Nothing waits: the agent's own fleet, board and readers are moved a scrape at a time on a clock of the story.
"""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agent.board import Board
from agent.fleet import Fleet, ServerSpec, Source
from agent.processes import look
from agent.recorder.writer import Status
from collectors.errors import CollectorError
from collectors.http_text import Endpoint
from collectors.nvml.passes import Passes
from collectors.probe_files import ProbePass
from collectors.readings import Container, Fault, Home, HostKills, NodeReading, XidEvent
from collectors.registry import ENGINES
from collectors.run import Outcome, run
from collectors.simulated.driver import SimulatedDriver
from collectors.simulated.probes import SimulatedProbes
from collectors.simulated.processes import SimulatedDiscovery, SimulatedProcesses
from collectors.simulated.scenario import load_scenario
from collectors.simulated.simulation import Simulation, write_model
from collectors.simulated.state import HostState, NodeState, write_state
from collectors.simulated.story import Arrival, Crash, Length, Process, Scenario, ShortRequests, Workload

SCRAPE_SECONDS = 60
DAY_SECONDS = 86400
EVENTFUL_SECONDS = 4200  # at the end of the day, where the agent reads its sources at a rhythm nearer to its own
READ_SECONDS = 10
MIB, GIB = 2**20, 2**30
PORTS = {"reasoner": 8000, "upgraded": 8001}
ASLEEP = (DAY_SECONDS - 2100, DAY_SECONDS - 1500)
OOM = (
    "(EngineCore pid=1207) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB. GPU 0 has a total "
    "capacity of 79.18 GiB of which 320.00 MiB is free.\n"
)


class Scrape(Struct, frozen=True, kw_only=True):
    """One moment of the day: seconds since it began, and the page of the agent and of each server; None: no answer."""

    at: float
    agent: str | None
    engines: dict[str, str | None]


def story() -> Scenario:
    """Of the scenarios that come with the package: the reasoning server and the upgraded one, a GPU each.

    A third GPU has a process beside them that leaks 100 MiB an hour.
    """
    reasoning, upgrade, idle = (load_scenario(name) for name in ("reasoning", "upgrade", "idle"))
    (reasoner,), (upgraded,) = reasoning.servers, upgrade.servers
    end = DAY_SECONDS
    chains = (600, 22200, 43800, 65400)
    guests = partial(Arrival, count=6, prompt_tokens=3000, output_tokens=12000)
    return Scenario(
        driver=reasoning.driver,
        devices=reasoning.devices + upgrade.devices + idle.devices,
        servers=(
            replace(
                reasoner,
                workload=Workload(
                    short_requests=_short(1),
                    reasoning_chains=tuple(
                        Arrival(start_seconds=at, prompt_tokens=6000, output_tokens=104000)
                        for at in (*chains, end - 760)
                    ),
                    late_guests=tuple(guests(start_seconds=at) for at in (chains[2] + 660, end - 100)),
                ),
                crashes=(Crash(at_seconds=end - 2400),),
            ),
            replace(
                upgraded,
                devices=(1,),
                workload=Workload(short_requests=_short(0.5)),
                crashes=(
                    Crash(at_seconds=36000, engine_version="0.21.0"),
                    Crash(at_seconds=end - 3000, engine_version="0.32.0"),
                ),
            ),
        ),
        processes=(
            Process(device=0, start_seconds=28800, end_seconds=32400, ramp_seconds=1800, mib=30000),
            Process(device=2, start_seconds=60, end_seconds=2 * end, mib=60000),
            Process(device=2, start_seconds=end / 2, end_seconds=2 * end, ramp_seconds=57600, mib=1600),
            Process(device=0, start_seconds=end - 1500, end_seconds=end + 1500, ramp_seconds=3000, mib=60000),
        ),
    )


def _short(per_second: float) -> ShortRequests:
    return ShortRequests(
        requests_per_second=per_second,
        prompt_tokens=Length(median=400, sigma=0.5, maximum=3000),
        output_tokens=Length(median=300, sigma=0.4, maximum=1200),
    )


class Day:
    """The node, its files in ``folder``, and its agent; ``began`` is the wall clock at its first second."""

    def __init__(self, folder: Path, *, began: float) -> None:
        self.now = 0.0
        self._folder = folder
        scenario = story()
        self._simulation = Simulation(scenario, seed=8, ports=PORTS, stamp=lambda seconds: began + seconds)
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
        self._board = Board(
            self._fleet.watches, memory_interval_seconds=1.0, clock=self._clock, wall=lambda: began + self.now
        )
        self._passes: Passes | None = None
        self._modelled: set[str] = set()
        self._pages: dict[str, str | None] = {}
        self._board.settings_reloaded(success=True)

    def scrapes(self) -> Iterator[Scrape]:
        """Every scrape of the day, in order."""
        with asyncio.Runner() as runner:
            for _ in range(DAY_SECONDS // SCRAPE_SECONDS):
                eventful = DAY_SECONDS - self.now <= EVENTFUL_SECONDS
                step = READ_SECONDS if eventful else SCRAPE_SECONDS
                for _ in range(SCRAPE_SECONDS // step):
                    page = runner.run(self._after(step))
                away = 10800 <= self.now < 11100  # as while its host is started again
                yield Scrape(at=self.now, agent=None if away else page, engines=self._pages)

    async def _after(self, seconds: int) -> str:
        """The agent's page once it has read everything, so many seconds later."""
        self.now += seconds
        self._simulation.advance(seconds)
        self._pages = {name: self._page(name) for name in PORTS}
        write_state(self._state_file, self._state())
        self._happen()
        self._look()
        for source in list(self._fleet.sources.values()):
            await self._read(source)
        self._board.took_node(self._node())
        self._board.took_recorder(Status(seconds=0.01, bundles=int(self.now > DAY_SECONDS - 2400)))
        return self._board.tick().metrics.decode()

    def _clock(self) -> float:
        return self.now

    def _state(self) -> NodeState:
        """What the driver says: as simulated, with hosts and cells, and without the memory of the one that sleeps."""
        left = DAY_SECONDS - self.now
        state = replace(
            self._simulation.state(),
            host=HostState(
                total_bytes=512 * GIB,
                available_bytes=int((300 - self.now / 1000) * GIB),
                some_seconds=self.now / 500,
                full_seconds=self.now / 5000,
            ),
            ecc={0: 0, 1: int(left < 1800), 2: 0},
            remap={0: (False, False), 1: (left < 1800, False), 2: (False, False)},
        )
        return _slept(state, 1) if self._sleeps("upgraded") else state

    def _sleeps(self, server: str) -> bool:
        return server == "upgraded" and ASLEEP[0] <= self.now < ASLEEP[1]

    def _happen(self) -> None:
        """What happens beside the simulation, at its scrape."""
        left = DAY_SECONDS - self.now
        if left == 2400:
            with (self._folder / "reasoner.log").open("a", encoding="utf-8") as log:
                log.write(OOM)
        if left in (2700, 2580):
            self._board.settings_reloaded(success=left == 2580)
        if left == 1200:  # what it writes to is replaced by something that can't be read
            (self._folder / "upgraded.log").unlink()
            (self._folder / "upgraded.log").mkdir()

    def _look(self) -> None:
        """As the poller takes a look at the process table; all servers here are found, none is configured."""
        seen = look(self._tree, self._discovery, {}, probes=self._probes)
        self._board.took_processes(self._done(seen))
        self._fleet.found(seen.found)
        for watch in self._fleet.watches:
            watch.take_home(self._home(watch.facts.url) if watch.tree else None)
        found = self._probes.read(seen.probes) if seen.probes else ProbePass(readings=(), seen=frozenset())
        self._board.took_probes(self._done(found), {place.pid for place in seen.probes})

    def _home(self, url: str) -> Home:
        name = _named(url)
        container = Container(runtime="containerd", id="3f2a" * 16, name="vllm", pod=f"{name}-0", namespace="models")
        return Home(container=container, logs=(str(self._folder / f"{name}.log"),), kills=HostKills(group=1, count=0))

    async def _read(self, source: Source) -> None:
        watch = source.watch
        if watch.may_ask:
            name = watch.facts.name
            outcome = await run("endpoint", name, source.reader.read, deadline_seconds=5, clock=self._clock)
            self._board.took_server(watch, outcome)
        if source.model is not None and watch.facts.name not in self._modelled:
            self._modelled.add(watch.facts.name)
            self._board.took_model(watch, self._done(source.model()))
        if source.log is not None and watch.logs:
            try:
                self._board.took_log(watch, self._done(source.log.read(watch.logs)))
            except CollectorError as error:
                self._board.took_log(watch, self._done(None, error.fault()))

    def _node(self) -> NodeReading:
        """A pass over the devices, in which an Xid error is told at its moment."""
        reading = msgspec.convert(self._device_passes().read(), NodeReading)
        uuid = reading.devices[1].uuid
        if self.now != DAY_SECONDS - 1800 or uuid is None:
            return reading
        return replace(reading, xids=(XidEvent(uuid=uuid, xid=94),))

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
        answer = httpx.MockTransport(partial(self._answer, _named(spec.url)))
        return Endpoint(spec.url, paths=ENGINES[spec.engine].paths, deadline_seconds=5, transport=answer)

    def _answer(self, name: str, request: httpx.Request) -> httpx.Response:
        page = self._pages[name]
        if page is None:
            raise httpx.ConnectError("refused") from ConnectionRefusedError()
        documents = {
            "/metrics": page,
            "/version": json.dumps(self._simulation.version(name)),
            "/v1/models": json.dumps(self._simulation.models(name)),
        }
        return httpx.Response(200, stream=httpx.ByteStream(documents[request.url.path].encode()))

    def _page(self, name: str) -> str | None:
        page = self._simulation.metrics_text(name)
        if page is None or not self._sleeps(name):
            return page
        return page.replace('sleep_state="awake"} 1.0', 'sleep_state="awake"} 0.0').replace(
            'sleep_state="weights_offloaded"} 0.0', 'sleep_state="weights_offloaded"} 1.0'
        )

    def _done(self, value: object, fault: Fault | None = None) -> Outcome:  # type: ignore[type-arg]
        return Outcome(value=value, fault=fault, duration_seconds=0.002, at=self.now)


def _named(url: str) -> str:
    port = httpx.URL(url).port
    return next(name for name, known in PORTS.items() if known == port)


def _slept(state: NodeState, index: int) -> NodeState:
    """The device's processes hold their context alone."""
    kept = 518 * MIB
    given_back = sum(
        max(0, (process.used_bytes or 0) - kept) for process in state.gpu_processes if process.index == index
    )
    return replace(
        state,
        gpu_processes=tuple(
            replace(process, used_bytes=min(kept, process.used_bytes or 0)) if process.index == index else process
            for process in state.gpu_processes
        ),
        devices=tuple(
            replace(device, allocated_bytes=device.allocated_bytes - given_back) if device.index == index else device
            for device in state.devices
        ),
    )
