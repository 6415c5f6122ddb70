"""Hot figures, back to back in one process that has the double as its driver: ``python -m benchmarks.hot CONFIG``.

A turn is what the agent and its child do in a second: a pass over the devices as the child makes and the agent reads
it, every server asked and read, everything attributed and rendered. CPU seconds, of this process alone.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pynvml

from agent.app import Agent
from agent.settings import load_settings
from benchmarks.node import COUNT
from collectors.nvml.binding import PynvmlDriver
from collectors.nvml.passes import Passes
from collectors.nvml.step import Step
from collectors.readings import NodeReading
from collectors.run import Outcome, run

NEVER = 1e9
SAMPLES = 2000
TURNS = 100
LOOKS = 20
T = TypeVar("T")


class Timings(msgspec.Struct, kw_only=True):
    """CPU seconds by action; ``bare``, ``sample`` and ``line`` are of all devices together."""

    bare: list[float]
    sample: list[float]
    line: list[float]
    bare_lists: list[float]
    turns: list[float] = []
    devices: list[float] = []
    servers: list[float] = []
    ticks: list[float] = []
    looks: list[float] = []


class Line(msgspec.Struct, frozen=True):
    reading: NodeReading


def main() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0) as parent:
        assert parent.stdin is not None
        write = parent.stdin.write
        timings = samples(write)
        asyncio.run(whole_turns(Path(sys.argv[1]), write, timings))
    print(json.dumps(msgspec.to_builtins(timings)))


def samples(write: Callable[[bytes], object]) -> Timings:
    """The driver's bare calls through pynvml, and a pass of the child over the same devices."""
    driver = PynvmlDriver(Path("/proc"))
    driver.start()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(COUNT)]

    def bare() -> None:
        for handle in handles:
            pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)

    def bare_lists() -> None:
        for handle in handles:
            pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle)

    reader = passes(driver, processes_interval_seconds=NEVER)
    reader.read()
    return Timings(
        bare=timed(bare, SAMPLES),
        sample=timed(reader.read, SAMPLES),
        line=timed(lambda: write(as_line(reader.read())), SAMPLES),
        bare_lists=timed(bare_lists, SAMPLES),
    )


def passes(driver: PynvmlDriver, *, processes_interval_seconds: float) -> Passes:
    """Passes as the child makes them: each call announced, each answer checked, peaks kept."""
    step = Step.make()
    return Passes(
        driver,
        announce=lambda entered: step.enter(entered, time.monotonic()),
        clock=time.monotonic,
        processes_interval_seconds=processes_interval_seconds,
    )


def as_line(node: dict[str, Any]) -> bytes:
    return json.dumps({"reading": node}, separators=(",", ":")).encode() + b"\n"


async def whole_turns(config: Path, write: Callable[[bytes], object], timings: Timings) -> None:
    """Turns of the agent as wired, with models read and processes known, as after a minute."""
    agent = Agent(load_settings(config))
    driver = PynvmlDriver(Path("/proc"))
    driver.start()
    reader = passes(driver, processes_interval_seconds=5.0)
    decoder = msgspec.json.Decoder(Line)
    sources = list(agent.fleet.sources.values())

    async def devices() -> None:
        line = as_line(reader.read())
        write(line)
        agent.board.took_node(decoder.decode(line).reading)

    async def servers() -> None:
        for source in sources:
            name = source.watch.facts.name
            outcome = await run("endpoint", name, source.reader.read, deadline_seconds=3.0, clock=time.monotonic)
            agent.board.took_server(source.watch, outcome)

    async def tick() -> None:
        _ = agent.board.tick().metrics_gzip

    async def look() -> None:
        agent.poller._take(done(agent._look()))

    for source in sources:
        assert source.model is not None
        agent.board.took_model(source.watch, done(source.model()))
    timings.looks = [await cpu_seconds(look) for _ in range(LOOKS)]
    for _ in range(TURNS):
        parts = [await cpu_seconds(part) for part in (devices, servers, tick)]
        for spent, part in zip((timings.devices, timings.servers, timings.ticks), parts, strict=True):
            spent.append(part)
        timings.turns.append(sum(parts))
    for source in sources:
        await source.close()


async def cpu_seconds(action: Callable[[], Awaitable[None]]) -> float:
    started = time.process_time()
    await action()
    return time.process_time() - started


def timed(action: Callable[[], object], count: int) -> list[float]:
    durations = []
    for _ in range(count):
        started = time.process_time()
        action()
        durations.append(time.process_time() - started)
    return durations


def done(value: T) -> Outcome[T]:
    return Outcome(value=value, fault=None, duration_seconds=0.0, at=time.monotonic())


if __name__ == "__main__":
    main()
