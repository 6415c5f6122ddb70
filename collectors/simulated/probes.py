"""The probes of a simulated node: what allocators of its processes say, from the node state file."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from collectors.errors import Unreadable
from collectors.probe_files import Place, ProbePass
from collectors.readings import ProbeReading, ServerProcess
from collectors.simulated.state import AllocatorState, NodeState, read_state

LASTS_SECONDS = 5.0


class SimulatedProbes:
    """Reads the state file anew at every call."""

    def __init__(self, state_path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._state_path = state_path
        self._clock = clock

    def find(self, processes: Iterable[ServerProcess]) -> tuple[Place, ...]:
        """A place for each of these processes that has a probe; they are all in the one file."""
        pids = {process.pid for process in processes} & {one.pid for one in self._state().allocators}
        folder, name = str(self._state_path.parent), self._state_path.name
        return tuple(Place(root="/", folder=folder, name=name, owners=frozenset(), pid=pid) for pid in sorted(pids))

    def read(self, places: Iterable[Place]) -> ProbePass:
        """What their allocators hold now."""
        state = self._state()
        digits = {device.index: device.uuid.removeprefix("GPU-").replace("-", "") for device in state.devices}
        wanted = {place.pid for place in places}
        found = [one for one in state.allocators if one.pid in wanted]
        readings = tuple(self._reading(one, digits.get(one.index)) for one in found)
        return ProbePass(readings=readings, seen=frozenset(one.pid for one in found))

    def _reading(self, state: AllocatorState, digits: str | None) -> ProbeReading:
        return ProbeReading(
            pid=state.pid,
            at=self._clock(),
            lasts_seconds=LASTS_SECONDS,
            file=str(self._state_path),
            number=state.index,
            uuid_digits=digits,
            expandable_segments=False,
            backend="native",
            allocated_bytes=state.active_bytes,
            active_bytes=state.active_bytes,
            active_peak_bytes=state.active_peak_bytes,
            reserved_bytes=state.reserved_bytes,
            private_pools_bytes=state.private_pools_bytes,
            alloc_retries=0,
            ooms=0,
        )

    def _state(self) -> NodeState:
        try:
            return read_state(self._state_path)
        except (OSError, ValueError) as exc:
            message = f"{self._state_path}: can't read the simulated node's state: {exc}; is the simulation running?"
            raise Unreadable("state_file", message) from exc
