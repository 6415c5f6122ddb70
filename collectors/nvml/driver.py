"""The one door to NVML. Lives in the child process: nothing but the standard library and pynvml (nvidia-ml-py).

Arithmetic (bytes): total = reserved + allocated + free by the v2 call; v1 has no ``reserved`` (it is inside its used).
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import pynvml

from collectors.nvml import faults

V2_FALLBACK = (
    faults.NOT_SUPPORTED,
    faults.FUNCTION_NOT_FOUND,
    faults.ARGUMENT_VERSION_MISMATCH,
    faults.DEPRECATED,
    faults.UNKNOWN,  # WSL drivers answer so to v2 alone
)
PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
LIST_RETRIES = 3


class NvmlFault(Exception):
    """A call that did not answer: ``code`` of nvml.h or of ``faults``, ``text`` a detail for people."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


class Driver(Protocol):
    """The calls the agent makes. Every one but ``stop`` may raise ``NvmlFault``; bytes are ``int``."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def driver_version(self) -> str: ...

    def device_count(self) -> int: ...

    def identity(self, index: int) -> tuple[str, str | None, str | None]:
        """UUID, product name and PCI bus id; what a device does not have is None."""
        ...

    def memory(self, index: int) -> tuple[int, int, int | None]:
        """Total, free and reserved; reserved is None where only the v1 call answers."""
        ...

    def processes(self, index: int) -> dict[int, int | None]:
        """Bytes by pid over all lists; None where the driver hides them."""
        ...


class PynvmlDriver:
    """The driver of this host."""

    def __init__(self) -> None:
        self._version = ""
        self._handles: dict[int, Any] = {}

    def start(self) -> None:
        _call(pynvml.nvmlInit)
        self._version = str(_call(pynvml.nvmlSystemGetDriverVersion))

    def stop(self) -> None:
        self._handles.clear()
        _call(pynvml.nvmlShutdown)

    def driver_version(self) -> str:
        return self._version

    def device_count(self) -> int:
        return int(_call(pynvml.nvmlDeviceGetCount))

    def identity(self, index: int) -> tuple[str, str | None, str | None]:
        uuid = str(self._ask(index, pynvml.nvmlDeviceGetUUID))
        name = self._ask_if_supported(index, pynvml.nvmlDeviceGetName)
        pci = self._ask_if_supported(index, pynvml.nvmlDeviceGetPciInfo)
        return uuid, name, pci and pci.busId

    def memory(self, index: int) -> tuple[int, int, int | None]:
        try:
            v2 = self._ask(index, pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
        except NvmlFault as fault:
            if fault.code not in V2_FALLBACK:
                raise
            v1 = self._ask(index, pynvml.nvmlDeviceGetMemoryInfo)
            return checked(v1.total, v1.free, None)
        return checked(v2.total, v2.free, v2.reserved)

    def processes(self, index: int) -> dict[int, int | None]:
        if misreads_processes(self._version):
            raise NvmlFault(faults.PROCESS_STRUCTS, f"this is {self._version}")
        lists, missing = [], []
        for name in PROCESS_LISTS:
            try:
                lists.append(self._process_list(index, getattr(pynvml, name)))
            except NvmlFault as fault:
                if fault.code not in (faults.NOT_SUPPORTED, faults.FUNCTION_NOT_FOUND):
                    raise
                missing.append(fault)
        if not lists:
            raise missing[0]
        return merged(entry for entries in lists for entry in entries)

    def _process_list(self, index: int, function: Callable[..., Any]) -> list[tuple[int, int | None]]:
        """One list, which may outgrow its buffer between the call for its size and the call for its content."""
        for tries_left in reversed(range(1 + LIST_RETRIES)):
            try:
                return [(entry.pid, entry.usedGpuMemory) for entry in self._ask(index, function)]
            except NvmlFault as fault:
                if fault.code != faults.INSUFFICIENT_SIZE or not tries_left:
                    raise
        raise AssertionError

    def _ask(self, index: int, function: Callable[..., Any], *arguments: object) -> Any:
        """Call on a device's handle, which is fetched again after an answer that says it has gone stale."""
        try:
            if index not in self._handles:
                self._handles[index] = _call(pynvml.nvmlDeviceGetHandleByIndex, index)
            return _call(function, self._handles[index], *arguments)
        except NvmlFault as fault:
            if fault.code in (faults.INVALID_ARGUMENT, faults.UNINITIALIZED, faults.GPU_IS_LOST):
                self._handles.pop(index, None)
            raise

    def _ask_if_supported(self, index: int, function: Callable[..., Any]) -> Any:
        try:
            return self._ask(index, function)
        except NvmlFault as fault:
            if fault.code != faults.NOT_SUPPORTED:
                raise
            return None


def checked(total_bytes: int, free_bytes: int, reserved_bytes: int | None) -> tuple[int, int, int | None]:
    """The same figures, once they hold together.

    Raises:
        NvmlFault: total is 0 (some unified-memory parts say so), or free and reserved exceed it.
    """
    if total_bytes <= 0 or free_bytes < 0 or free_bytes + (reserved_bytes or 0) > total_bytes:
        text = f"total {total_bytes}, free {free_bytes}, reserved {reserved_bytes} bytes"
        raise NvmlFault(faults.INCONSISTENT, text)
    return total_bytes, free_bytes, reserved_bytes


def merged(entries: Iterable[tuple[int, int | None]]) -> dict[int, int | None]:
    """Bytes by pid: a process in several lists shows the same memory in each, so the largest figure counts, once."""
    used: dict[int, int | None] = {}
    for pid, bytes_ in entries:
        known = used.get(pid)
        used[pid] = known if bytes_ is None else max(bytes_, known or 0)
    return used


def misreads_processes(driver_version: str) -> bool:
    """Whether this driver fills 32-byte process records where 24 are read (535.43 to 535.98, nvitop's finding)."""
    major, _, rest = driver_version.partition(".")
    minor = rest.partition(".")[0]
    return major == "535" and minor.isdecimal() and 43 <= int(minor) <= 98


def _call(function: Callable[..., Any], *arguments: object) -> Any:
    """One call of pynvml with its exceptions translated (its errors can't be hashed or compared with None)."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlFault(int(error.value), str(error)) from None
    except pynvml.NVMLLibraryMismatchError:
        raise NvmlFault(faults.FUNCTION_NOT_FOUND, function.__name__) from None
    except UnicodeDecodeError as error:
        raise NvmlFault(faults.INCONSISTENT, f"{function.__name__}: {error}") from None
