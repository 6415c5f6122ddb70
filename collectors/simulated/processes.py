"""The process table of a simulated node: the same answers as the real one, from the node state file."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from collectors.errors import Unreadable
from collectors.readings import ProcessTree, ServerProcess
from collectors.simulated.state import HostProcess, read_state


class SimulatedProcesses:
    """Reads the state file anew at every call, so that a process that ends there ends here."""

    def __init__(self, state_path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._state_path = state_path
        self._clock = clock

    def tree(self, port: int) -> ProcessTree | None:
        """The listener of a port and its descendants, or None.

        Raises:
            Unreadable: the state file is missing or malformed.
        """
        at = self._clock()
        try:
            hosts = read_state(self._state_path).host_processes
        except (OSError, ValueError) as exc:
            message = f"{self._state_path}: can't read the simulated node's state: {exc}; is the simulation running?"
            raise Unreadable("state_file", message) from exc
        listener = next((host for host in hosts if host.port == port), None)
        if listener is None:
            return None
        family = (listener, *_descendants(listener.pid, hosts))
        return ProcessTree(
            at=at,
            processes=tuple(ServerProcess(pid=one.pid, started_at=one.started_at, title=one.title) for one in family),
        )


def _descendants(pid: int, hosts: tuple[HostProcess, ...]) -> Iterator[HostProcess]:
    seen = {pid}
    waiting = [pid]
    while waiting:
        parent = waiting.pop(0)
        for host in hosts:
            if host.parent == parent and host.pid not in seen:
                seen.add(host.pid)
                waiting.append(host.pid)
                yield host
