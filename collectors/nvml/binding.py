"""The driver of this host through pynvml (nvidia-ml-py). Lives in the child process only."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from collectors.host_memory import read_meminfo, read_pressure
from collectors.nvml import faults
from collectors.nvml.driver import Health, HostFigures, Identity, Memory, NvmlFault, Place, merged, misreads_processes
from collectors.nvml.memory import MemoryReader

PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
MEMORY = "nvmlDeviceGetMemoryInfo"
LIST_RETRIES = 3
STALE = (faults.INVALID_ARGUMENT, faults.UNINITIALIZED, faults.GPU_IS_LOST)
EMPTY_SLOT = (faults.NOT_FOUND, faults.INVALID_ARGUMENT)
GRAVE = (*faults.WHOLE_DRIVER, faults.GPU_IS_LOST)
ADDRESSING = {1: "HMM", 2: "ATS"}
ECC_UNCORRECTED, ROW_REMAP_PENDING, ROW_REMAP_FAILURE = 4, 144, 145  # field ids: DBE volatile total, remapped rows
UNSIGNED_FIELDS = {1: "uiVal", 2: "ulVal", 3: "ullVal", 6: "usVal"}
XID = 8  # event type


class PynvmlDriver:
    """The driver of this host. ``proc`` is where the host's own memory figures are."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._version = ""
        self._handles: dict[Place, list[Any]] = {}  # of a MIG GPU instance: one for each of its compute instances
        self._in_mig_mode: set[int] = set()
        self._refused: set[tuple[Place, str, tuple[object, ...]]] = set()  # not supported, until the next start
        self._memory = MemoryReader(self)

    def start(self) -> None:
        _call("nvmlInit")
        self._version = str(_call("nvmlSystemGetDriverVersion"))

    def stop(self) -> None:
        self._handles.clear()
        _call("nvmlShutdown")

    def driver_version(self) -> str:
        return self._version

    def device_count(self) -> int:
        """GPUs, those included that deny access to us."""
        return int(_call("nvmlDeviceGetCount"))

    def places(self, index: int) -> list[Place]:
        gpu = Place(index)
        known = [place for place in self._handles if place.gpu == index and place != gpu]
        try:
            current_mode, _ = self._ask(gpu, "nvmlDeviceGetMigMode")
        except NvmlFault as fault:
            if fault.code in faults.WHOLE_DRIVER:
                raise
            return sorted(known) or [gpu]
        for place in known:
            del self._handles[place]
        self._in_mig_mode.discard(index)
        if not current_mode:
            return [gpu]
        self._in_mig_mode.add(index)
        instances = self._instances(gpu)
        self._handles |= instances
        return sorted(instances) or [gpu]

    def _instances(self, gpu: Place) -> dict[Place, list[Any]]:
        """Handles by GPU instance, compute instances in order; slots are sparse."""
        found: dict[Place, list[tuple[int, Any]]] = {}
        (handle,) = self._open(gpu)
        for slot in range(self._ask(gpu, "nvmlDeviceGetMaxMigDeviceCount")):
            try:
                device = _call("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot)
                place = Place(gpu.gpu, _call("nvmlDeviceGetGpuInstanceId", device))
                found.setdefault(place, []).append((_call("nvmlDeviceGetComputeInstanceId", device), device))
            except NvmlFault as fault:
                if fault.code not in EMPTY_SLOT:
                    raise
        return {
            place: [device for _, device in sorted(devices, key=lambda one: one[0])] for place, devices in found.items()
        }

    def identity(self, place: Place) -> Identity:
        gpu = Place(place.gpu)
        uuid = str(self._ask(place, "nvmlDeviceGetUUID"))
        pci = self._if_told(gpu, "nvmlDeviceGetPciInfo")
        return Identity(
            uuid=uuid,
            name=self._if_told(place, "nvmlDeviceGetName"),
            bus_id=pci and pci.busId,
            parent_uuid=None if place == gpu else self._if_told(gpu, "nvmlDeviceGetUUID"),
            in_mig_mode=place.gpu in self._in_mig_mode,
            numa_node=self._if_told(gpu, "nvmlDeviceGetNumaNodeId"),
            addressing=ADDRESSING.get(self._if_told(gpu, "nvmlDeviceGetAddressingMode") or 0),
        )

    def memory(self, place: Place) -> Memory:
        return self._memory.read(place, mig=place.gpu in self._in_mig_mode)

    def memory_v2(self, place: Place) -> tuple[int, int, int | None]:
        v2 = self._ask(place, MEMORY, pynvml.nvmlMemory_v2)
        return v2.total, v2.free, v2.reserved

    def memory_v1(self, place: Place) -> tuple[int, int, int | None]:
        v1 = self._ask(place, MEMORY)
        return v1.total, v1.free, None

    def has_bar1(self, place: Place) -> bool:
        try:
            self._ask(place, "nvmlDeviceGetBAR1MemoryInfo")
        except NvmlFault as fault:
            if fault.code in GRAVE:
                raise
            return fault.code != faults.NOT_SUPPORTED
        return True

    def host(self) -> HostFigures:
        try:
            return HostFigures(*read_meminfo(self._proc), read_pressure(self._proc))
        except (OSError, ValueError) as error:
            raise NvmlFault(faults.HOST_FIGURES, f"{self._proc / 'meminfo'}: {error}") from None

    def processes(self, place: Place) -> dict[int, int | None]:
        if misreads_processes(self._version):
            raise NvmlFault(faults.PROCESS_STRUCTS, f"this is {self._version}")
        lists, missing = [], []
        for name in PROCESS_LISTS:
            for number in range(len(self._open(place))):
                try:
                    lists.append(self._process_list(place, name, number))
                except NvmlFault as fault:
                    if fault.code not in (faults.NOT_SUPPORTED, faults.FUNCTION_NOT_FOUND):
                        raise
                    missing.append(fault)
        if not lists:
            raise missing[0]
        return merged(entry for entries in lists for entry in entries)

    def _process_list(self, place: Place, name: str, number: int) -> list[tuple[int, int | None]]:
        """One list, which may outgrow its buffer between the call for its size and the call for its content."""
        for tries_left in reversed(range(1 + LIST_RETRIES)):
            try:
                return [(entry.pid, entry.usedGpuMemory) for entry in self._ask(place, name, number=number)]
            except NvmlFault as fault:
                if fault.code != faults.INSUFFICIENT_SIZE or not tries_left:
                    raise
        raise AssertionError

    def health(self, index: int) -> Health:
        ids = (ECC_UNCORRECTED, ROW_REMAP_PENDING, ROW_REMAP_FAILURE)
        values = self._ask(Place(index), "nvmlDeviceGetFieldValues", ids)
        ecc, pending, failure = (_unsigned(value) for value in values)
        return Health(
            ecc_uncorrected=ecc,
            row_remap_pending=None if pending is None else pending != 0,
            row_remap_failure=None if failure is None else failure != 0,
        )

    def events(self, index: int) -> Callable[[float], int | None]:
        gpu = Place(index)
        if not self._ask(gpu, "nvmlDeviceGetSupportedEventTypes") & XID:
            raise NvmlFault(faults.NOT_SUPPORTED, "no Xid events")
        events = _call("nvmlEventSetCreate")
        _call("nvmlDeviceRegisterEvents", self._open(gpu)[0], XID, events)

        def wait(seconds: float) -> int | None:
            try:
                return int(_call("nvmlEventSetWait", events, round(seconds * 1000)).eventData)
            except NvmlFault as fault:
                if fault.code != faults.TIMEOUT:
                    raise
                return None

        return wait

    def _open(self, place: Place) -> list[Any]:
        """The handles of a place, fetched anew after an answer that said they have gone stale."""
        if place not in self._handles:
            if place.instance is not None:
                raise NvmlFault(faults.INVALID_ARGUMENT, f"no GPU instance {place}")
            self._handles[place] = [_call("nvmlDeviceGetHandleByIndex", place.gpu)]
        return self._handles[place]

    def _ask(self, place: Place, function: str, *arguments: object, number: int = 0) -> Any:
        if self._refused and (place, function, arguments) in self._refused:
            raise NvmlFault(faults.NOT_SUPPORTED, function)
        try:
            return _call(function, self._open(place)[number], *arguments)
        except NvmlFault as fault:
            if fault.code == faults.NOT_SUPPORTED and function != MEMORY:  # a card that only starts may answer later
                self._refused.add((place, function, arguments))
            elif fault.code in STALE:
                self._forget(place)
            raise

    def _if_told(self, place: Place, function: str) -> Any:
        """The answer, or None where there is none: whatever fails with one fact, the others go on without it."""
        try:
            return self._ask(place, function)
        except NvmlFault as fault:
            if fault.code in GRAVE:
                raise
            return None

    def _forget(self, place: Place) -> None:
        self._handles.pop(place, None)
        self._memory.forget(place)
        self._refused = {entry for entry in self._refused if entry[0] != place}


def _unsigned(value: Any) -> int | None:
    """A field's value: each has a return code of its own, and a union that ``valueType`` tells how to read."""
    member = UNSIGNED_FIELDS.get(value.valueType)
    return int(getattr(value.value, member)) if member and value.nvmlReturn == pynvml.NVML_SUCCESS else None


def _call(function: str, *arguments: object) -> Any:
    """One call of pynvml with its exceptions translated (its errors can't be hashed or compared with None)."""
    try:
        return getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlFault(int(error.value), str(error)) from None
    except (AttributeError, pynvml.NVMLLibraryMismatchError):  # not in this release of pynvml, not in this driver
        raise NvmlFault(faults.FUNCTION_NOT_FOUND, function) from None
    except UnicodeDecodeError as error:
        raise NvmlFault(faults.INCONSISTENT, f"{function}: {error}") from None
