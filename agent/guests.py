"""Memory of no server on a device, less what may still turn out to be a server's own. Pure.

The driver shows a process before the process table was looked at, and for a while after it ended: where a server starts
or has just died, what is there only since then may be its own.
"""

from collections import deque
from collections.abc import Mapping

from agent.snapshot import Device

COMPONENTS = ("other_processes", "hidden")
ENDING_SECONDS = 15.0
"""A process that was killed may take so long until the driver has its memory back."""


class Guests:
    """One device between looks; times are of the same clock."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=64)

    def take(self, device: Device, *, now: float, looked_at: float, is_changing: bool) -> Mapping[str, int]:
        """Bytes by component; while it ``is_changing``, those that stay for some seconds and were looked for since.

        ``looked_at``: when the newest look at all processes began. ``is_changing``: a server that lives here starts or
        has ended.
        """
        parts = {part.component: part.bytes for part in device.components if part.component in COMPONENTS}
        self._seen.append((now, parts))
        settled = min(looked_at, now - ENDING_SECONDS)
        while len(self._seen) > 1 and self._seen[1][0] <= settled:
            self._seen.popleft()
        if not is_changing:
            return parts
        if self._seen[0][0] > settled:
            return {}
        return {name: min(seen.get(name, 0) for _, seen in self._seen) for name in parts}
