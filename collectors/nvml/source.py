"""Readings of all GPUs through a child process that can be lost: a driver call that hangs can't be cancelled.

A child that stays silent is replaced by one that leaves out the device it hung on. That device is watched: fresh
processes of its own try it, with back-off, and when one gets an answer the child is replaced once more.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from collectors.nvml import faults
from collectors.nvml.process import Child
from collectors.readings import DeviceReading, Fault, NodeReading, XidEvent

STUCK_LIMIT = 3  # killed children that a driver call may hold before no further one is sent into it
FRESH_PROCESS_HEALS = ("gpu_lost", "reset_required", "not_ready", "gpu_not_found", "invalid_state")


class _Outage:
    """A GPU that is out, with all devices on it: left out of the child's passes when a call hung.

    ``watcher`` ends when it is back.
    """

    def __init__(self, fault: Fault, *, skipped: bool, watcher: asyncio.Task[None]) -> None:
        self.fault = fault
        self.skipped = skipped
        self.watcher = watcher


class NvmlSource:
    """Hands over every pass, and a fault whenever there can be none; ``retry_seconds`` is the back-off, first to last.

    ``proc`` is where the host's memory figures are, which a GPU without memory of its own shares. Must run in a thread
    that lives as long as the source: the child ends with the thread that started it.
    """

    def __init__(
        self,
        *,
        on_reading: Callable[[NodeReading], None],
        on_fault: Callable[[Fault], None],
        memory_interval_seconds: float = 1.0,
        processes_interval_seconds: float = 5.0,
        deadline_seconds: float = 5.0,
        simulated_state: Path | None = None,
        proc: Path = Path("/proc"),
        environment: Mapping[str, str] | None = None,
        retry_seconds: tuple[float, float] = (1.0, 60.0),
    ) -> None:
        self._on_reading = on_reading
        self._on_fault = on_fault
        self._deadline_seconds = deadline_seconds
        self._environment = environment
        self._first_pause, self._last_pause = retry_seconds
        self._pause = self._first_pause
        self._arguments = [f"--memory-interval={memory_interval_seconds}"]
        self._arguments += [f"--processes-interval={processes_interval_seconds}", f"--proc={proc}"]
        self._arguments += [f"--simulated={simulated_state}"] if simulated_state else []
        self._known: dict[int, list[DeviceReading]] = {}  # by GPU index
        self._xids: list[XidEvent] = []
        self._outages: dict[int, _Outage] = {}
        self._stuck: list[tuple[int | None, Child]] = []
        self._one_watcher_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """Read until cancelled; the child is ended then."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                fault = await self._serve()
                if fault is None:
                    continue
                self._on_fault(fault)
                await asyncio.sleep(self._pause)
                self._pause = min(self._pause * 2, self._last_pause)

    async def _serve(self) -> Fault | None:
        """Hand over the passes of one child until it ends; None: the next can start at once."""
        self._outages = {index: outage for index, outage in self._outages.items() if not outage.watcher.done()}
        if self._held_by(None) >= STUCK_LIMIT:
            return _timeout(f"{STUCK_LIMIT} processes are still held by it")
        skip = [f"--skip={index}" for index, outage in self._outages.items() if outage.skipped]
        try:
            child = await self._start(*skip)
        except OSError as error:
            return Fault(**faults.explain(faults.CHILD_DIED, f"not started: {error.strerror}"))
        try:
            while not any(outage.watcher.done() for outage in self._outages.values()):
                message = await child.next()
                if isinstance(message, Fault):
                    return message
                if isinstance(message, XidEvent):
                    self._xids.append(message)
                else:
                    self._take(message)
        except TimeoutError:
            return self._hung(child)
        finally:
            await child.stop()
        return None

    async def _start(self, *arguments: str) -> Child:
        return await Child.start(
            [*self._arguments, *arguments],
            environment=self._environment,
            deadline_seconds=self._deadline_seconds,
        )

    def _take(self, reading: NodeReading) -> None:
        self._pause = self._first_pause
        for index, devices in groupby(reading.devices, key=lambda device: device.index):
            self._note(index, list(devices))
        skipped = [
            DeviceReading(index=index, memory_fault=outage.fault, processes_fault=outage.fault)
            for index, outage in self._outages.items()
            if outage.skipped
        ]
        everything = sorted((*reading.devices, *skipped), key=lambda device: (device.index, device.instance or 0))
        xids, self._xids = tuple(self._xids), []
        self._on_reading(replace(reading, devices=tuple(self._named(everything)), xids=xids))

    def _note(self, index: int, devices: Sequence[DeviceReading]) -> None:
        """Remember the devices of a GPU by their names, and when one goes out or is back."""
        named = [device for device in devices if device.uuid is not None]
        if named:
            self._known[index] = named
        outage = self._outages.get(index)
        faults_ = [device.memory_fault for device in devices if device.memory_fault is not None]
        grave = next((fault for fault in faults_ if fault.reason in FRESH_PROCESS_HEALS), None)
        if grave is not None and outage is None:
            self._set_aside(index, grave, skipped=False)
        elif not faults_ and outage is not None:
            self._outages.pop(index).watcher.cancel()

    def _named(self, devices: Sequence[DeviceReading]) -> Iterator[DeviceReading]:
        """Those that do not tell their names, under the names they had, unless another device bears those now."""
        taken = {device.uuid for device in devices}
        for device in devices:
            known = self._known.get(device.index, []) if device.uuid is None else []
            same = [
                replace(one, memory=None, processes=None, health=None, **_outcome(device))
                for one in known
                if one.uuid not in taken and device.instance in (None, one.instance)
            ]
            yield from same or [device]

    def _hung(self, child: Child) -> Fault | None:
        self._stuck.append((child.index, child))
        fault = _timeout(f"during {child.call}, {self._deadline_seconds:g} s")
        if child.index is None:
            return fault
        if outage := self._outages.get(child.index):
            outage.watcher.cancel()
        self._set_aside(child.index, fault, skipped=True)
        return None

    def _set_aside(self, index: int, fault: Fault, *, skipped: bool) -> None:
        watcher = self._tasks.create_task(self._watch(index, skipped=skipped))
        self._outages[index] = _Outage(fault, skipped=skipped, watcher=watcher)

    async def _watch(self, index: int, *, skipped: bool) -> None:
        """Return once a process of its own gets an answer of the device."""
        pause = self._first_pause
        while True:
            await asyncio.sleep(pause)
            async with self._one_watcher_at_a_time:
                if self._held_by(index) < STUCK_LIMIT and await self._answers(index, any_answer=skipped):
                    return
            pause = min(pause * 2, self._last_pause)

    async def _answers(self, index: int, *, any_answer: bool) -> bool:
        try:
            child = await self._start(f"--only={index}")
        except OSError:
            return False
        try:
            message = await child.next()
        except TimeoutError:
            self._stuck.append((index, child))
            return False
        finally:
            await child.stop()
        return isinstance(message, NodeReading) and (any_answer or all(device.memory for device in message.devices))

    def _held_by(self, index: int | None) -> int:
        """How many killed children still sit in a call on this device; None: in a call about the driver as a whole."""
        self._stuck = [(where, child) for where, child in self._stuck if child.alive]
        return sum(where == index for where, _ in self._stuck)


def _outcome(device: DeviceReading) -> dict[str, Fault | float | None]:
    return {
        "memory_fault": device.memory_fault,
        "processes_fault": device.processes_fault,
        "memory_duration_seconds": device.memory_duration_seconds,
        "processes_duration_seconds": device.processes_duration_seconds,
    }


def _timeout(detail: str) -> Fault:
    return Fault(**faults.explain(faults.TIMEOUT, detail))
