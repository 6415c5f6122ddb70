"""The node as the demo runs it: files, addresses and a story that does not depend on the machine's pace."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import httpx
import pytest

from collectors.simulated.node import SimulatedNode
from collectors.simulated.scenario import load_scenario
from collectors.simulated.simulation import Simulation
from collectors.simulated.state import read_state


def clock_of(*, tick: float) -> Callable[[], float]:
    """A clock that shows ``tick`` seconds more at each look, so that a test need not wait."""
    times: Iterator[float] = (number * tick for number in count())
    return lambda: next(times)


def node(directory: Path, *, tick: float, name: str = "reasoning", seed: int = 3) -> SimulatedNode:
    return SimulatedNode(
        load_scenario(name), seed=seed, speed=10, directory=directory, clock=clock_of(tick=tick), wall=lambda: 5000.0
    )


def test_start_tells_where_everything_is(tmp_path: Path) -> None:
    """The state file, each server's address, its model's directory and what its endpoints don't tell."""

    async def test() -> None:
        subject = node(tmp_path / "demo", tick=1, name="eight")
        await subject.start()
        try:
            (server,) = subject.servers
            assert server.name == "large"
            assert server.url.startswith("http://127.0.0.1:")
            assert (server.model / "config.json").is_file()
            assert server.arguments == {"tensor-parallel-size": 8, "max-num-seqs": 1024}
            assert len(read_state(subject.state_path).devices) == 8
        finally:
            await subject.stop()
        assert subject.servers == ()

    asyncio.run(test())


@pytest.mark.parametrize("tick", [1.3, 11.0])
def test_the_story_does_not_depend_on_the_pace_of_the_machine(tmp_path: Path, tick: float) -> None:
    """Looked at often or seldom: after 150 simulated seconds the state is that of the bare simulation."""

    async def test() -> None:
        subject = node(tmp_path, tick=tick)
        await subject.start()
        try:
            await subject.run(150)
            (server,) = subject.servers
            bare = Simulation(
                load_scenario("reasoning"),
                seed=3,
                ports={server.name: int(server.url.rpartition(":")[2])},
                stamp=lambda seconds: 5000.0 + seconds / 10,
            )
            bare.advance(150)
            assert subject.simulation.time == 150
            assert subject.simulation.state() == bare.state()
            shown = read_state(subject.state_path)
            assert shown.devices == bare.state().devices
            assert shown.gpu_processes == bare.state().gpu_processes
            async with httpx.AsyncClient() as client:
                assert (await client.get(f"{server.url}/metrics")).text == bare.metrics_text(server.name)
        finally:
            await subject.stop()

    asyncio.run(test())


def test_the_state_file_is_written_only_when_something_changed(tmp_path: Path) -> None:
    """While the pool fills nothing changes on the device, and the file stays as it is."""

    async def test() -> None:
        subject = node(tmp_path, tick=5, name="eight")
        await subject.start()
        try:
            await subject.run(200)
            before = subject.state_path.stat()
            await subject.run(100)
            after = subject.state_path.stat()
            assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
            assert subject.simulation.time == 300
        finally:
            await subject.stop()

    asyncio.run(test())


def test_stopping_twice_or_before_the_start_is_no_error(tmp_path: Path) -> None:
    """Whoever cleans up need not know how far it came."""

    async def test() -> None:
        subject = node(tmp_path, tick=1)
        await subject.stop()
        await subject.start()
        await subject.stop()
        await subject.stop()

    asyncio.run(test())
