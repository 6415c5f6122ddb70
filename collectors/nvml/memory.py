"""How much memory a device has, whichever call tells: v2, v1, or the host's figures where the device shares its memory.

A device's memory is the host's (unified: GB10, Jetson) where both calls are not supported, or the total is 0 or within
2 % of MemTotal and there is no BAR1. A total alone proves nothing: an 80 GB card may sit in an 80 GB host, and a card
that is just starting may answer 0. What once answered as a card stays one.
"""

from typing import Protocol

from collectors.nvml import faults
from collectors.nvml.driver import HostFigures, Memory, MemoryKind, NvmlFault, Place

V2_FALLBACK = (
    faults.NOT_SUPPORTED,
    faults.FUNCTION_NOT_FOUND,
    faults.ARGUMENT_VERSION_MISMATCH,
    faults.DEPRECATED,
    faults.UNKNOWN,  # WSL drivers answer so to v2 alone
)
NEAR = 0.02


class MemoryCalls(Protocol):
    """What a driver must answer; each may raise ``NvmlFault``."""

    def memory_v2(self, place: Place) -> tuple[int, int, int | None]:
        """Total, free and reserved."""
        ...

    def memory_v1(self, place: Place) -> tuple[int, int, int | None]:
        """Total and free; reserved is inside what is used."""
        ...

    def has_bar1(self, place: Place) -> bool:
        """False only where the driver says so: a call that fails otherwise tells nothing."""
        ...

    def host(self) -> HostFigures: ...


class MemoryReader:
    """Reads devices, and remembers which of them have memory of their own."""

    def __init__(self, calls: MemoryCalls) -> None:
        self._calls = calls
        self._kinds: dict[Place, MemoryKind] = {}

    def read(self, place: Place, *, mig: bool) -> Memory:
        """``mig``: the place is a MIG GPU instance, or a GPU in MIG mode.

        Raises:
            NvmlFault: no answer, or one that contradicts itself.
        """
        kind = self._kinds.get(place) or ("mig" if mig else None)
        try:
            total, free, reserved = self._own(place)
        except NvmlFault as fault:
            if kind is not None or fault.code != faults.NOT_SUPPORTED:
                raise
            return self._shared()
        if kind is None and self._is_the_hosts(place, total):
            return self._shared()
        memory = Memory(*checked(total, free, reserved), kind or "device")
        self._kinds[place] = memory.kind
        return memory

    def forget(self, place: Place) -> None:
        """Another device may stand at this place."""
        self._kinds.pop(place, None)

    def _own(self, place: Place) -> tuple[int, int, int | None]:
        try:
            return self._calls.memory_v2(place)
        except NvmlFault as fault:
            if fault.code not in V2_FALLBACK:
                raise
            return self._calls.memory_v1(place)

    def _shared(self) -> Memory:
        host = self._calls.host()
        return Memory(*checked(host.total, host.available, None), "unified")

    def _is_the_hosts(self, place: Place, total_bytes: int) -> bool:
        try:
            host_bytes = self._calls.host().total
        except NvmlFault:
            return False
        near = total_bytes == 0 or abs(total_bytes - host_bytes) <= NEAR * host_bytes
        return near and not self._calls.has_bar1(place)


def checked(total_bytes: int, free_bytes: int, reserved_bytes: int | None) -> tuple[int, int, int | None]:
    """The same figures, once they hold together.

    Raises:
        NvmlFault: nothing at all, or free and reserved exceed the total.
    """
    if total_bytes <= 0 or free_bytes < 0 or free_bytes + (reserved_bytes or 0) > total_bytes:
        text = f"total {total_bytes}, free {free_bytes}, reserved {reserved_bytes} bytes"
        raise NvmlFault(faults.INCONSISTENT, text)
    return total_bytes, free_bytes, reserved_bytes
