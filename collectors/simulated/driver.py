"""The simulated driver: answers the calls of ``collectors.nvml.driver`` from a node state file."""

import time
from pathlib import Path

from collectors.nvml import faults
from collectors.nvml.driver import V2_FALLBACK, NvmlFault, checked, merged
from collectors.simulated.state import Call, DeviceState, NodeState, read_state

HANG_POLL_SECONDS = 0.02


class SimulatedDriver:
    """As a real driver does, it keeps an index bound to one device from the first use until the next start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._state = NodeState()
        self._uuids: dict[int, str] = {}
        self._started = False

    def start(self) -> None:
        self._enter("init")
        self._uuids.clear()
        self._started = True

    def stop(self) -> None:
        self._started = False

    def driver_version(self) -> str:
        return self._now().driver_version

    def device_count(self) -> int:
        return len(self._enter("count").devices)

    def identity(self, index: int) -> tuple[str, str | None, str | None]:
        device = self._device("identity", index)
        return device.uuid, device.name, device.bus_id

    def memory(self, index: int) -> tuple[int, int, int | None]:
        try:
            device = self._device("memory_v2", index)
        except NvmlFault as fault:
            if fault.code not in V2_FALLBACK:
                raise
            device = self._device("memory", index)
            return checked(device.total_bytes, device.free_bytes, None)
        return checked(device.total_bytes, device.free_bytes, device.reserved_bytes)

    def processes(self, index: int) -> dict[int, int | None]:
        device = self._device("processes", index)
        processes = self._state.gpu_processes
        return merged((process.pid, process.used_bytes) for process in processes if process.index == device.index)

    def _device(self, call: Call, index: int) -> DeviceState:
        if index not in self._uuids:
            state = self._enter("handle", index)
            uuid = next((device.uuid for device in state.devices if device.index == index), None)
            if uuid is None:
                raise NvmlFault(faults.INVALID_ARGUMENT, f"no device {index}")
            self._uuids[index] = uuid
        self._enter(call, self._bound(index).index)
        return self._bound(index)

    def _bound(self, index: int) -> DeviceState:
        for device in self._now().devices:
            if device.uuid == self._uuids[index]:
                return device
        del self._uuids[index]
        raise NvmlFault(faults.GPU_IS_LOST, f"device {index}")

    def _enter(self, call: Call, index: int | None = None) -> NodeState:
        """What happens before a call answers: its delay, its hang, its fault."""
        if not self._started and call != "init":
            raise NvmlFault(faults.UNINITIALIZED, "not started")
        for slow, microseconds in self._now().delays:
            if slow == call:
                time.sleep(microseconds / 1e6)
        while any(hung == call and target in (None, index) for hung, target in self._now().hangs):
            time.sleep(HANG_POLL_SECONDS)
        for faulty, target, code in self._state.faults:
            if faulty == call and target in (None, index):
                raise NvmlFault(code, f"simulated in {call}")
        return self._state

    def _now(self) -> NodeState:
        """The state, read again only when the file changed."""
        try:
            status = self._path.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if stamp != self._stamp:
                self._state, self._stamp = read_state(self._path), stamp
        except OSError as error:
            raise NvmlFault(faults.DRIVER_NOT_LOADED, f"{self._path}: {error.strerror}") from None
        except ValueError as error:
            raise NvmlFault(faults.UNKNOWN, f"{self._path}: {error}") from None
        return self._state
