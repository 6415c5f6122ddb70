"""One look at the process table: which servers are there, and the processes behind each configured port. It blocks."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from collectors.discovery.host import Discovery
from collectors.errors import CollectorError
from collectors.home import Homes
from collectors.probe_files import Place, Probes
from collectors.procfs import ProcessTable
from collectors.readings import DeviceReading, Fault, FoundServer, Home, NodeReading, ProcessTree

MAX_NAME = 64


class Look(Struct, frozen=True, kw_only=True):
    """What one look saw. ``trees`` and ``faults`` are by name of the configured servers that discovery did not find."""

    found: tuple[FoundServer, ...]
    trees: dict[str, ProcessTree | None] = {}
    faults: dict[str, Fault] = {}
    homes: dict[int, Home] = {}  # by the pid of a server's first process
    probes: tuple[Place, ...] = ()  # files that probes inside their processes write


def look(
    table: ProcessTable,
    discovery: Discovery | None,
    ports: Mapping[str, int],
    *,
    homes: Homes | None = None,
    probes: Probes | None = None,
) -> Look:
    """Scan for servers, then find who listens on each of these ports that no found server has.

    Raises:
        CollectorError: the process table as a whole can't be read.
    """
    found = discovery.scan() if discovery else ()
    here = [one for one in found if one.network_pid is None]
    held = {one.port for one in here if one.listening}
    claimed = {one.port for one in here}
    contested: set[int] = set()
    trees: dict[str, ProcessTree | None] = {}
    faults: dict[str, Fault] = {}
    for name, port in ports.items():
        if port in held:
            continue
        try:
            tree = table.tree(port)
        except CollectorError as error:
            faults[name] = error.fault()
            continue
        if tree is not None or port not in claimed:
            trees[name] = tree
        if tree is not None:
            contested.add(port)
    believed = tuple(one for one in found if not _pretends(one, contested))
    seen = [tree for tree in (*trees.values(), *(one.tree for one in believed)) if tree is not None]
    places = homes.of([tree.processes[0] for tree in seen]) if homes else {}
    files = probes.find(process for tree in seen for process in tree.processes) if probes else ()
    return Look(found=believed, trees=trees, faults=faults, homes=places, probes=files)


def _pretends(found: FoundServer, contested: set[int]) -> bool:
    """Whether it only names the port of a configured server on which another process listens."""
    return found.network_pid is None and not found.listening and found.port in contested


def with_names(node: NodeReading, name_of: Callable[[int], str]) -> NodeReading:
    """A pass in which the processes have the names that the last look at the process table found."""
    return replace(node, devices=tuple(_named(device, name_of) for device in node.devices))


def _named(device: DeviceReading, name_of: Callable[[int], str]) -> DeviceReading:
    if device.processes is None:
        return device
    named = tuple(replace(one, name=name_of(one.pid)[:MAX_NAME]) for one in device.processes.processes)
    return replace(device, processes=replace(device.processes, processes=named))
