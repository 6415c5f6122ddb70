"""A day of a simulated node as its agent tells it: two servers, and in the last hour all that can happen to them."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from agent.processes import with_names
from collectors.readings import NodeReading, XidEvent
from collectors.simulated.scenario import load_scenario
from collectors.simulated.state import HostState, NodeState
from collectors.simulated.story import Arrival, Crash, Length, Process, Scenario, ShortRequests, Workload
from tests.dashboards.node import GIB, Node

SCRAPE_SECONDS = 60
DAY_SECONDS = 86400
EVENTFUL_SECONDS = 4200  # at the end of the day, where the agent reads its sources at a rhythm nearer to its own
READ_SECONDS = 10
MIB = 2**20
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
                crashes=(Crash(at_seconds=end - 2395),),
            ),
            replace(
                upgraded,
                devices=(1,),
                workload=Workload(
                    short_requests=_short(0.5),
                    reasoning_chains=(Arrival(start_seconds=end - 1300, prompt_tokens=20000, output_tokens=100000),),
                ),
                crashes=(
                    Crash(at_seconds=36005, engine_version="0.21.0"),
                    Crash(at_seconds=end - 2995, engine_version="0.19.1"),  # the upgrade is taken back
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


class Day(Node):
    """The node of that story, its files in ``folder``; ``began`` is the wall clock at its first second."""

    def __init__(self, folder: Path, *, began: float) -> None:
        super().__init__(folder, story(), ports=PORTS, began=began)

    def scrapes(self) -> Iterator[Scrape]:
        """Every scrape of the day, in order."""
        with asyncio.Runner() as runner:
            for _ in range(DAY_SECONDS // SCRAPE_SECONDS):
                eventful = DAY_SECONDS - self.now <= EVENTFUL_SECONDS
                step = READ_SECONDS if eventful else SCRAPE_SECONDS
                for _ in range(SCRAPE_SECONDS // step):
                    page = runner.run(self.after(step))
                away = 10800 <= self.now < 11100  # as while its host is started again
                yield Scrape(at=self.now, agent=None if away else page, engines=self.pages)

    def state(self) -> NodeState:
        """What the driver says: as simulated, with hosts and cells, and without the memory of the one that sleeps."""
        left = DAY_SECONDS - self.now
        state = replace(
            super().state(),
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

    def happen(self) -> None:
        """What happens beside the simulation, at its scrape."""
        left = DAY_SECONDS - self.now
        if left == 2400:
            with self.log("reasoner").open("a", encoding="utf-8") as log:
                log.write(OOM)
        if left in (2700, 2580):
            self.board.settings_reloaded(success=left == 2580)
        if left == 1200:  # what it writes to is replaced by something that can't be read
            self.log("upgraded").unlink()
            self.log("upgraded").mkdir()

    def reading(self) -> NodeReading:
        """A pass over the devices as ``--per-process`` makes them, in which an Xid error is told at its moment."""
        reading = with_names(super().reading(), self._discovery.name)
        uuid = reading.devices[1].uuid
        if self.now != DAY_SECONDS - 1800 or uuid is None:
            return reading
        return replace(reading, xids=(XidEvent(uuid=uuid, xid=94),))

    def page(self, name: str) -> str | None:
        page = super().page(name)
        if page is None or not self._sleeps(name):
            return page
        return page.replace('sleep_state="awake"} 1.0', 'sleep_state="awake"} 0.0').replace(
            'sleep_state="weights_offloaded"} 0.0', 'sleep_state="weights_offloaded"} 1.0'
        )

    def bundles(self) -> int:
        """One, of the lack of memory."""
        return int(self.now > DAY_SECONDS - 2400)


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
