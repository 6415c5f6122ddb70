"""Who holds how much on which simulated device. The driver's own share is set apart, so what fits is real room."""

from collections.abc import Iterator, Sequence
from random import Random

from collectors.simulated.sizing import MIB
from collectors.simulated.state import DeviceState, GpuProcess
from collectors.simulated.story import Device

RELEASE_SECONDS = 2.0  # a dead process keeps its place in the driver's list, and its memory, for so long


class DeviceMemory:
    """The devices of a node and the processes on them; all sizes are bytes, multiples of 2 MiB."""

    def __init__(self, devices: Sequence[Device], random: Random) -> None:
        self._devices = devices
        self._residual = [random.randrange(16, 39, 2) * MIB for _ in devices]
        self._held: dict[tuple[int, int], int] = {}  # (device, pid)
        self._dying: list[tuple[float, int]] = []

    def claim(self, device: int, pid: int, size: int) -> bool:
        """Let a process hold ``size`` bytes on a device; False, and nothing changes, if there is no room for it."""
        if size > self.room(device, pid):
            return False
        self._held[device, pid] = size
        return True

    def room(self, device: int, pid: int) -> int:
        """The most that a process could hold on a device, what it holds already included."""
        spec = self._devices[device]
        others = sum(size for (index, holder), size in self._held.items() if index == device and holder != pid)
        return (spec.total_mib - spec.reserved_mib) * MIB - self._residual[device] - others

    def held(self, device: int, pid: int) -> int:
        """What a process holds on a device."""
        return self._held.get((device, pid), 0)

    def bury(self, pid: int, now: float) -> None:
        """A process died at ``now``: the driver takes its memory back a little later."""
        self._dying.append((now + RELEASE_SECONDS, pid))

    def clean_up(self, now: float) -> None:
        """Take back what processes held that have been dead long enough."""
        gone = {pid for at, pid in self._dying if at <= now}
        if gone:
            self._dying = [(at, pid) for at, pid in self._dying if at > now]
            self._held = {key: size for key, size in self._held.items() if key[1] not in gone}

    def devices(self) -> Iterator[DeviceState]:
        """Each device as its driver sees it: allocated is the sum over processes and the driver's own share."""
        for index, device in enumerate(self._devices):
            held = sum(size for (where, _), size in self._held.items() if where == index)
            yield DeviceState(
                index=index,
                uuid=device.uuid,
                bus_id=f"00000000:{0x1B + index:02X}:00.0",
                name=device.name,
                total_bytes=device.total_mib * MIB,
                reserved_bytes=device.reserved_mib * MIB,
                allocated_bytes=held + self._residual[index] if held else 0,
            )

    def processes(self) -> Iterator[GpuProcess]:
        """Each process on each device, in the order in which they came."""
        return (GpuProcess(index=index, pid=pid, used_bytes=size) for (index, pid), size in self._held.items())
