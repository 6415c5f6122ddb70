"""The process table of a simulated node: the same answers as the real one, from the node state file."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from collectors.discovery.command import ReadCommand
from collectors.errors import Unreadable
from collectors.procfs import redact
from collectors.readings import FoundServer, ProcessTree, ServerProcess
from collectors.simulated.state import HostProcess, read_state

NAME_LENGTH = 15


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
        hosts = _hosts(self._state_path)
        listener = next((host for host in hosts if host.port == port), None)
        return None if listener is None else _tree(listener, hosts, at)


class SimulatedDiscovery:
    """The servers of the state file, found by the command lines in it; their relative paths begin at its directory."""

    def __init__(
        self, state_path: Path, engines: Mapping[str, ReadCommand], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._state_path = state_path
        self._engines = engines
        self._clock = clock
        self._names: dict[int, str] = {}

    def scan(self) -> tuple[FoundServer, ...]:
        """The servers now, in the order of the file.

        Raises:
            Unreadable: the state file is missing or malformed.
        """
        at = self._clock()
        hosts = _hosts(self._state_path)
        pids = {host.pid for host in hosts}
        self._names = {host.pid: Path(host.title.split(" ")[0]).name[:NAME_LENGTH] for host in hosts}
        roots = [host for host in hosts if host.parent not in pids]
        found = (self._found(root, _tree(root, hosts, at)) for root in roots)
        return tuple(server for server in found if server is not None)

    def name(self, pid: int) -> str:
        """The program in its title, cut as Linux cuts names."""
        return self._names.get(pid, "")

    def _found(self, root: HostProcess, tree: ProcessTree) -> FoundServer | None:
        for name, engine in self._engines.items():
            command = engine.read(root.title.split(" "), self._read)
            if command is None:
                continue
            titles = (process.title for process in tree.processes)
            held = {one for title in titles if engine.model_of and (one := engine.model_of(title))}
            named = held.pop() if len(held) == 1 else command.model
            model = self._state_path.parent / named if named else None
            return FoundServer(
                engine=name,
                tree=tree,
                started_at=root.started_at,
                listening=root.port is not None,
                host=command.host,
                port=root.port or command.port,
                url=f"http://127.0.0.1:{root.port}" if root.port else None,
                arguments=command.arguments,
                model=str(model) if model is not None and model.exists() else None,
                served_name=command.served_name,
                notes=command.notes,
            )
        return None

    def _read(self, name: str) -> bytes:
        return (self._state_path.parent / name).read_bytes()


def _hosts(state_path: Path) -> tuple[HostProcess, ...]:
    try:
        return read_state(state_path).host_processes
    except (OSError, ValueError) as exc:
        message = f"{state_path}: can't read the simulated node's state: {exc}; is the simulation running?"
        raise Unreadable("state_file", message) from exc


def _tree(root: HostProcess, hosts: tuple[HostProcess, ...], at: float) -> ProcessTree:
    family = (root, *_descendants(root.pid, hosts))
    processes = (ServerProcess(pid=one.pid, started_at=one.started_at, title=redact([one.title])) for one in family)
    return ProcessTree(at=at, processes=tuple(processes))


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
