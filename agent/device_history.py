"""What each device's memory was made of over the last ten minutes, for charts: a look every five seconds."""

from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any

from agent.memory.history import KEEP_SECONDS
from agent.snapshot import Device

STEP_SECONDS = 5.0

Look = tuple[float, tuple[str, ...], "array[int]"]
"""When (monotonic), which components, and their bytes in that order, of all servers together."""


class DeviceHistory:
    """Fed with the devices of each tick, of which it keeps few. Bounded: 120 looks at each device that is there."""

    def __init__(self) -> None:
        self._looked_at = float("-inf")
        self._looks: dict[str, deque[Look]] = {}

    def take(self, at: float, devices: Sequence[Device]) -> None:
        """Take the devices of a tick at a monotonic time; most ticks only cost a comparison."""
        if at < self._looked_at + STEP_SECONDS:
            return
        self._looked_at = at
        present = {device.uuid: device for device in devices}
        for uuid, looks in list(self._looks.items()):
            while looks and looks[0][0] < at - KEEP_SECONDS:
                looks.popleft()
            if not looks and uuid not in present:
                del self._looks[uuid]
        for uuid, device in present.items():
            if device.components:
                self._add(self._looks.setdefault(uuid, deque()), at, device)

    def _add(self, looks: deque[Look], at: float, device: Device) -> None:
        sums: dict[str, int] = {}
        for part in device.components:
            sums[part.component] = sums.get(part.component, 0) + part.bytes
        names = tuple(sums)
        if looks and looks[-1][1] == names:
            names = looks[-1][1]  # the same object for all looks
        looks.append((at, names, array("q", sums.values())))

    def records(self, devices: Sequence[Device], offset: float) -> list[dict[str, Any]]:
        """Of these devices, with times ``offset`` later: what was no part of a device at a time is None there."""
        return [
            {"uuid": device.uuid, "gpu": device.gpu, **_table(self._looks[device.uuid], offset)}
            for device in devices
            if device.uuid in self._looks
        ]


def _table(looks: deque[Look], offset: float) -> dict[str, Any]:
    all_names = tuple(dict.fromkeys(name for _, names, _ in looks for name in names))
    points = [(round(at + offset, 3), _filled(all_names, names, sizes)) for at, names, sizes in looks]
    return {"components": all_names, "points": points}


def _filled(all_names: tuple[str, ...], names: tuple[str, ...], sizes: "array[int]") -> Sequence[int | None]:
    if names == all_names:
        return sizes.tolist()
    known = dict(zip(names, sizes, strict=True))
    return [known.get(name) for name in all_names]
