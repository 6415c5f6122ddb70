"""The process that calls NVML: ``python -Im collectors.nvml.child``. Its parent is ``collectors.nvml.source``.

Writes lines to stdout. ``@CALL [INDEX]`` stands before each call, so that the parent knows what hung, and ``@rest
SECONDS`` before a pause; a JSON line holds one pass as ``{"reading": NodeReading}``, or ``{"fault": Fault}`` before the
process ends because no pass is possible.
Imports only the standard library and pynvml (the simulated driver on demand). Times are CLOCK_MONOTONIC, which all
processes of a host share.
"""

import argparse
import ctypes
import json
import os
import signal
import time
from collections.abc import Callable, Collection
from typing import Any

from collectors.nvml import faults
from collectors.nvml.driver import Driver, NvmlFault, PynvmlDriver

PR_SET_PDEATHSIG = 1
MOVED_BYTES = 32 * 2**20  # allocation change that makes a process list too old to explain it
WHOLE_DRIVER = (faults.UNINITIALIZED, faults.DRIVER_NOT_LOADED, faults.LIBRARY_NOT_FOUND, faults.VERSION_MISMATCH)


class Passes:
    """Reads all devices, again and again; process lists less often, since they lock every GPU of the host.

    A device is a ``DeviceReading`` as a plain dict that lives from pass to pass: its last process list stays, with its
    own time, until the next. A list is read early when the device's allocation moved, and memory right after a list.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        announce: Callable[[str], None],
        clock: Callable[[], float],
        processes_interval_seconds: float,
        skip: Collection[int] = (),
        only: int | None = None,
    ) -> None:
        self._driver = driver
        self._announce = announce
        self._clock = clock
        self._processes_interval_seconds = processes_interval_seconds
        self._skip = skip
        self._only = only
        self._devices: dict[int, dict[str, Any]] = {}
        self._listed_bytes: dict[int, int | None] = {}  # allocated when the process list was read
        self._lists_due_at = 0.0

    def read(self) -> dict[str, Any]:
        """One pass as the fields of a ``NodeReading``.

        Raises:
            NvmlFault: the driver as a whole does not answer.
        """
        now = self._clock()
        lists_due = now >= self._lists_due_at
        if lists_due:
            self._lists_due_at = now + self._processes_interval_seconds
        if lists_due or any("memory_fault" in device for device in self._devices.values()):
            self._enumerate()
        for index in self._devices:
            self._read_device(index, lists_due)
        devices = list(self._devices.values())
        return {"at": self._clock(), "driver_version": self._driver.driver_version(), "devices": devices}

    def _enumerate(self) -> None:
        """Take up new devices, drop those that went, and start afresh with one whose index now names another."""
        self._announce("count")
        before, self._devices = self._devices, {}
        for index in range(self._driver.device_count()):
            if index not in self._skip and self._only in (None, index):
                named = self._identify(index)
                known = before.get(index)
                same = known is not None and known.get("uuid") == named.get("uuid")
                self._devices[index] = {**known, **named} if known and same else named
                if not same:
                    self._listed_bytes.pop(index, None)

    def _identify(self, index: int) -> dict[str, Any]:
        self._announce(f"identity {index}")
        try:
            uuid, name, bus_id = self._driver.identity(index)
        except NvmlFault as fault:
            why = _device_fault(fault)
            return {"index": index, "memory_fault": why, "processes_fault": why}
        return {"index": index, "uuid": uuid, "name": name, "bus_id": bus_id}

    def _read_device(self, index: int, lists_due: bool) -> None:
        if "uuid" not in self._devices[index]:
            return
        self._read_part(index, "memory", self._memory)
        if lists_due or self._moved(index):
            self._read_part(index, "processes", self._processes)
            self._read_part(index, "memory", self._memory)
            self._listed_bytes[index] = self._allocated(index)

    def _read_part(self, index: int, part: str, read: Callable[[int], dict[str, Any]]) -> None:
        device = self._devices[index]
        device.pop(part, None)
        device.pop(f"{part}_fault", None)
        self._announce(f"{part} {index}")
        try:
            answer = read(index)
            device[part] = {"at": self._clock(), **answer}
        except NvmlFault as fault:
            device[f"{part}_fault"] = _device_fault(fault)

    def _memory(self, index: int) -> dict[str, Any]:
        total, free, reserved = self._driver.memory(index)
        return {"total_bytes": total, "free_bytes": free, "reserved_bytes": reserved}

    def _processes(self, index: int) -> dict[str, Any]:
        used = self._driver.processes(index)
        return {"processes": [{"pid": pid, "used_bytes": bytes_} for pid, bytes_ in sorted(used.items())]}

    def _allocated(self, index: int) -> int | None:
        memory = self._devices[index].get("memory")
        return memory and memory["total_bytes"] - memory["free_bytes"] - (memory["reserved_bytes"] or 0)

    def _moved(self, index: int) -> bool:
        now, listed = self._allocated(index), self._listed_bytes.get(index)
        return now is not None and (listed is None or abs(now - listed) >= MOVED_BYTES)


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    out = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not land between our lines

    def write(line: str) -> None:
        os.write(out, line.encode() + b"\n")

    try:
        _run(arguments, write, alive=lambda: os.getppid() == parent)
    except NvmlFault as fault:
        write(json.dumps({"fault": faults.explain(fault.code, fault.text)}))
    except BrokenPipeError:
        pass  # nobody listens any more
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="collectors.nvml.child", allow_abbrev=False)
    parser.add_argument("--memory-interval", type=float, required=True, help="seconds")
    parser.add_argument("--processes-interval", type=float, required=True, help="seconds")
    parser.add_argument("--skip", type=int, action="append", default=[], metavar="INDEX", help="leave this device out")
    parser.add_argument("--only", type=int, metavar="INDEX", help="leave all other devices out")
    parser.add_argument("--simulated", metavar="STATE_FILE", help="read a node state file instead of the driver")
    return parser.parse_args()


def _run(arguments: argparse.Namespace, write: Callable[[str], None], *, alive: Callable[[], bool]) -> None:
    """Pass after pass while the parent lives. A slow driver is asked less often: at most half of the time."""

    def announce(step: str) -> None:
        write(f"@{step}")

    driver = _driver(arguments.simulated)
    announce("init")
    driver.start()
    passes = Passes(
        driver,
        announce=announce,
        clock=time.monotonic,
        processes_interval_seconds=arguments.processes_interval,
        skip=arguments.skip,
        only=arguments.only,
    )
    while alive():
        started = time.monotonic()
        write(json.dumps({"reading": passes.read()}, separators=(",", ":")))
        took = time.monotonic() - started
        rest = max(arguments.memory_interval - took, took)
        announce(f"rest {rest:.3f}")
        time.sleep(rest)


def _driver(simulated: str | None) -> Driver:
    if simulated is None:
        return PynvmlDriver()
    from pathlib import Path

    from collectors.simulated.driver import SimulatedDriver

    return SimulatedDriver(Path(simulated))


def _device_fault(fault: NvmlFault) -> dict[str, str]:
    if fault.code in WHOLE_DRIVER:
        raise fault
    return faults.explain(fault.code, fault.text)


if __name__ == "__main__":
    raise SystemExit(main())
