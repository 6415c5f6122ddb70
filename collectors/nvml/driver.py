"""The door to NVML as the agent uses it: its calls, what they give, and how they fail. Standard library only.

Behind it are ``binding.PynvmlDriver`` and ``collectors.simulated.driver.SimulatedDriver``. Bytes are ``int``.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Protocol

MemoryKind = Literal["device", "unified", "mig"]


class NvmlFault(Exception):
    """A call that did not answer: ``code`` of nvml.h or of ``faults``, ``text`` a detail for people."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


class Place(NamedTuple):
    """Where the driver finds a device: the GPU at index ``gpu``, or the MIG GPU instance of that id on it."""

    gpu: int
    instance: int | None = None

    def __str__(self) -> str:
        return str(self.gpu) if self.instance is None else f"{self.gpu}:{self.instance}"


class Identity(NamedTuple):
    """What a device is; what it does not have or tell is None.

    ``numa_node``: the operating system uses the device's memory as this NUMA node; ``addressing`` is HMM or ATS.
    """

    uuid: str
    name: str | None = None
    bus_id: str | None = None
    parent_uuid: str | None = None
    in_mig_mode: bool = False
    numa_node: int | None = None
    addressing: str | None = None


class Memory(NamedTuple):
    """Total = reserved + allocated + free. ``reserved`` is None where only the old (v1) call answers, or the host."""

    total: int
    free: int
    reserved: int | None
    kind: MemoryKind


class HostFigures(NamedTuple):
    """The host's memory, and the seconds since boot that tasks waited for it, by kind (some, full)."""

    total: int
    available: int
    pressure_seconds: dict[str, float]


class Health(NamedTuple):
    """What a GPU says about its memory cells; a feature it does not have is None."""

    ecc_uncorrected: int | None = None
    row_remap_pending: bool | None = None
    row_remap_failure: bool | None = None


class Driver(Protocol):
    """The calls the agent makes. Every one but ``stop`` may raise ``NvmlFault``."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def driver_version(self) -> str: ...

    def device_count(self) -> int: ...

    def places(self, index: int) -> list[Place]:
        """The devices at an index: the GPU itself, or its MIG GPU instances where it has any."""
        ...

    def identity(self, place: Place) -> Identity: ...

    def memory(self, place: Place) -> Memory: ...

    def processes(self, place: Place) -> dict[int, int | None]:
        """Bytes by pid over all lists; None where the driver hides them."""
        ...

    def host(self) -> HostFigures: ...

    def health(self, index: int) -> Health: ...

    def events(self, index: int) -> Callable[[float], int | None]:
        """Register for a GPU's Xid events. The answer waits up to so many seconds for the next; None: there was none.

        It may be called in another thread.
        """
        ...


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
