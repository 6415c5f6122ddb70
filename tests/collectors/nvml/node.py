"""A node whose driver the tests steer, and a watch over an ``NvmlSource`` that reads it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from collectors.nvml.source import NvmlSource
from collectors.readings import DeviceReading, Fault, NodeReading
from collectors.simulated.state import DeviceState, GpuProcess, HostState, InstanceState, NodeState, write_state
from tests.double.build import environment

MIB = 2**20
WAIT_SECONDS = 20.0


def device(index: int, letter: str, *, allocated_mib: int = 20000) -> DeviceState:
    """An H100 as nvidia-smi shows it: 81559 MiB, of which 479 MiB are the driver's."""
    return DeviceState(
        index=index,
        uuid=f"GPU-{letter}",
        bus_id=f"00000000:1{letter.upper()}:00.0",
        name="NVIDIA H100 80GB HBM3",
        total_bytes=81559 * MIB,
        reserved_bytes=479 * MIB,
        allocated_bytes=allocated_mib * MIB,
    )


def process(
    pid: int, used_mib: int | None, kinds: str = "C", *, index: int = 0, gi: int | None = None, ci: int = 0
) -> GpuProcess:
    used = None if used_mib is None else used_mib * MIB
    return GpuProcess(index=index, instance=gi, compute_instance=ci, pid=pid, used_bytes=used, kinds=kinds)


def instance(gi: int, letter: str, *, index: int = 0, ci: int = 0, allocated_mib: int = 12) -> InstanceState:
    """A 1g.10gb instance of an H100: 9984 MiB, nothing reserved."""
    return InstanceState(
        index=index,
        instance=gi,
        compute_instance=ci,
        uuid=f"MIG-{letter}",
        name="NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        total_bytes=9984 * MIB,
        allocated_bytes=allocated_mib * MIB,
    )


ONE = NodeState(devices=(device(0, "a"),), gpu_processes=(process(100, 19980),))
TWO = NodeState(
    devices=(device(0, "a"), device(1, "b", allocated_mib=400)),
    gpu_processes=(process(100, 19980), process(200, 380, index=1)),
)


class Node:
    """A state file and the way to it: through the double when there is a library, else the simulated driver."""

    def __init__(self, state_file: Path, library: Path | None) -> None:
        self.state_file = state_file
        self.library = library
        self.proc = state_file.with_name("proc")

    def write(self, state: NodeState, *more: str) -> None:
        """Put the node into a state; ``more`` are lines that only the double knows.

        The host's memory is where each driver looks for it: in the state file, or under ``proc``.
        """
        if state.host is not None:
            write_host(self.proc, state.host)
        new = self.state_file.with_suffix(".more")
        write_state(new, state)
        with new.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in more)
        new.replace(self.state_file)

    @property
    def door(self) -> dict[str, Any]:
        if self.library is None:
            return {"simulated_state": self.state_file}
        return {"environment": environment(self.library, self.state_file)}

    def first_pass(self) -> NodeReading:
        async def read() -> NodeReading:
            async with self.watch() as watch:
                return await watch.reading(lambda _: True)

        return asyncio.run(read())

    def first_device(self) -> DeviceReading:
        return self.first_pass().devices[0]

    def first_fault(self) -> Fault:
        async def read() -> Fault:
            async with self.watch() as watch:
                return await watch.fault()

        return asyncio.run(read())

    @asynccontextmanager
    async def watch(self, **options: Any) -> AsyncIterator["Watch"]:
        """An ``NvmlSource`` in fast motion that runs inside the block."""
        watch = Watch()
        fast = {"memory_interval_seconds": 0.02, "processes_interval_seconds": 0.1, "retry_seconds": (0.05, 0.2)}
        source = NvmlSource(
            proc=self.proc,
            on_reading=watch.readings.put_nowait,
            on_fault=watch.faults.put_nowait,
            **{**self.door, **fast, **options},
        )
        task = asyncio.create_task(source.run())
        try:
            yield watch
            if task.done():
                task.result()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def write_host(proc: Path, host: HostState) -> None:
    """The files of /proc that tell about a host's memory, as the kernel writes them."""
    (proc / "pressure").mkdir(parents=True, exist_ok=True)
    lines = {"MemTotal": host.total_bytes, "MemFree": 2**20, "MemAvailable": host.available_bytes, "Buffers": 0}
    (proc / "meminfo").write_text("".join(f"{name + ':':16}{size // 1024:>8} kB\n" for name, size in lines.items()))
    waited = {"some": host.some_seconds, "full": host.full_seconds}
    averages = "avg10=0.00 avg60=0.12 avg300=0.05"
    text = "".join(f"{kind} {averages} total={round(seconds * 1e6)}\n" for kind, seconds in waited.items())
    (proc / "pressure" / "memory").write_text(text)


class Watch:
    """What a source handed over, in order."""

    def __init__(self) -> None:
        self.readings: asyncio.Queue[NodeReading] = asyncio.Queue()
        self.faults: asyncio.Queue[Fault] = asyncio.Queue()

    async def reading(self, wanted: Callable[[NodeReading], bool]) -> NodeReading:
        """The next pass that is as wanted; those before it are dropped."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not wanted(reading := await self.readings.get()):
                pass
            return reading

    async def fault(self) -> Fault:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.faults.get()
