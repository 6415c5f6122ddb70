"""The simulated driver: answers the calls of ``collectors.nvml.driver`` from a node state file."""

import time
from collections.abc import Callable
from pathlib import Path

from collectors.nvml import faults
from collectors.nvml.driver import Health, HostFigures, Identity, Memory, NvmlFault, Place, merged
from collectors.nvml.memory import MemoryReader
from collectors.simulated.state import Call, DeviceState, InstanceState, NodeState, read_state

POLL_SECONDS = 0.02


class SimulatedDriver:
    """As a real driver does, it keeps an index bound to one device from the first use until the next start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._state = NodeState()
        self._uuids: dict[int, str] = {}
        self._memory = MemoryReader(self)
        self._started = False

    def start(self) -> None:
        self._enter("init")
        self._uuids.clear()
        self._memory = MemoryReader(self)
        self._started = True

    def stop(self) -> None:
        self._started = False

    def driver_version(self) -> str:
        return self._now().driver_version

    def device_count(self) -> int:
        return len(self._enter("count").devices)

    def places(self, index: int) -> list[Place]:
        try:
            gpu = self._device("mig", index)
        except NvmlFault as fault:
            if fault.code in faults.WHOLE_DRIVER:
                raise
            return [Place(index)]
        instances = {one.instance for one in self._state.instances if one.index == gpu.index}
        if instances:
            self._enter("slot", gpu.index)
        return [Place(index, instance) for instance in sorted(instances)] or [Place(index)]

    def identity(self, place: Place) -> Identity:
        gpu = self._device("identity", place.gpu)
        device = self._at(place, gpu)
        return Identity(
            uuid=device.uuid,
            name=device.name,
            bus_id=gpu.bus_id,
            parent_uuid=None if device is gpu else gpu.uuid,
            in_mig_mode=self._in_mig_mode(place),
            numa_node=self._state.numa.get(gpu.index),
            addressing="ATS" if gpu.index in self._state.numa else None,
        )

    def memory(self, place: Place) -> Memory:
        return self._memory.read(place, mig=self._in_mig_mode(place))

    def memory_v2(self, place: Place) -> tuple[int, int, int | None]:
        device = self._at(place, self._device("memory_v2", place.gpu))
        return device.total_bytes, device.free_bytes, device.reserved_bytes if isinstance(device, DeviceState) else 0

    def memory_v1(self, place: Place) -> tuple[int, int, int | None]:
        device = self._at(place, self._device("memory", place.gpu))
        return device.total_bytes, device.free_bytes, None

    def has_bar1(self, place: Place) -> bool:
        try:
            self._device("bar1", place.gpu)
        except NvmlFault as fault:
            return fault.code != faults.NOT_SUPPORTED
        return True

    def host(self) -> HostFigures:
        host = self._now().host
        if host is None:
            raise NvmlFault(faults.HOST_FIGURES, f"{self._path}: no line host")
        pressure = {"some": host.some_seconds, "full": host.full_seconds}
        return HostFigures(host.total_bytes, host.available_bytes, pressure)

    def processes(self, place: Place) -> dict[int, int | None]:
        device = self._device("processes", place.gpu)
        return merged(
            (process.pid, process.used_bytes)
            for process in self._state.gpu_processes
            if (process.index, process.instance) == (device.index, place.instance)
        )

    def health(self, index: int) -> Health:
        gpu = self._device("health", index).index
        pending, failure = self._state.remap.get(gpu, (None, None))
        return Health(ecc_uncorrected=self._state.ecc.get(gpu), row_remap_pending=pending, row_remap_failure=failure)

    def events(self, index: int) -> Callable[[float], int | None]:
        gpu = self._device("events", index).index
        delivered = len(self._xids(gpu))

        def wait(seconds: float) -> int | None:
            nonlocal delivered
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                xids = self._xids(gpu)
                if len(xids) > delivered:
                    delivered += 1
                    return xids[delivered - 1]
                delivered = len(xids)
                time.sleep(POLL_SECONDS)
            return None

        return wait

    def _xids(self, gpu: int) -> list[int]:
        return [number for index, number in self._now().xids if index == gpu]

    def _in_mig_mode(self, place: Place) -> bool:
        return place.gpu in {*self._state.mig_mode, *(one.index for one in self._state.instances)}

    def _at(self, place: Place, gpu: DeviceState) -> DeviceState | InstanceState:
        if place.instance is None:
            return gpu
        for one in sorted(self._state.instances, key=lambda one: one.compute_instance):
            if (one.index, one.instance) == (gpu.index, place.instance):
                return one
        raise NvmlFault(faults.INVALID_ARGUMENT, f"no GPU instance {place}")

    def _device(self, call: Call, index: int) -> DeviceState:
        if index not in self._uuids:
            state = self._enter("handle", index)
            uuid = next((device.uuid for device in state.devices if device.index == index), None)
            if uuid is None:
                raise NvmlFault(faults.INVALID_ARGUMENT, f"no device {index}")
            self._uuids[index] = uuid
            self._memory.forget(Place(index))
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
            time.sleep(POLL_SECONDS)
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
