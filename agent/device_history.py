"""What each device's memory was made of over the last ten minutes, for charts: a look every five seconds."""

from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any

from agent.memory.history import KEEP_SECONDS
from agent.snapshot import Device

STEP_SECONDS = 5.0

Key = tuple[str, str]
"""Component and server."""
Look = tuple[float, tuple[Key, ...], "array[int]"]
"""When (monotonic), which components, and their bytes in that order."""


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
        keys = tuple((part.component, part.server) for part in device.components)
        if looks and looks[-1][1] == keys:
            keys = looks[-1][1]  # the same object for all looks
        looks.append((at, keys, array("q", (part.bytes for part in device.components))))

    def records(self, devices: Sequence[Device], offset: float) -> list[dict[str, Any]]:
        """Of these devices, with times ``offset`` later: what was no part of a device at a time is None there."""
        return [
            {"uuid": device.uuid, "gpu": device.gpu, **_table(self._looks[device.uuid], offset)}
            for device in devices
            if device.uuid in self._looks
        ]


def _table(looks: deque[Look], offset: float) -> dict[str, Any]:
    keys = list(dict.fromkeys(key for _, those, _ in looks for key in those))
    points = []
    for at, those, sizes in looks:
        known = dict(zip(those, sizes, strict=True))
        points.append((at + offset, [known.get(key) for key in keys]))
    components = [{"component": component, "server": server} for component, server in keys]
    return {"components": components, "points": points}
