"""Inference servers among the processes of this host: found by command line, believed by the socket they hold.

A URL is only made of a socket that a process of the found server itself listens on. What we may not see or do ends in
a note that names the missing privilege, never in an error.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from collectors.discovery.command import ReadCommand, ServerCommand
from collectors.discovery.model import Found, find_model
from collectors.discovery.place import find_place
from collectors.discovery.sockets import SocketTables
from collectors.discovery.table import Process, ProcessTable, children_of, command_line, family, started_ticks, words
from collectors.discovery.version import package_version
from collectors.discovery.view import ProcessView
from collectors.errors import Unreadable
from collectors.netns import can_enter
from collectors.procfs import TICKS_PER_SECOND, boot_time, redact
from collectors.readings import FoundServer, ProcessTree, ServerProcess

MAX_SETTINGS_BYTES = 64 * 1024
MAX_SERVERS = 256  # anybody may start processes that look like one
MAX_PROCESSES = 1024  # of one server
_NO_FLAGS = "its flags are not known: it has overwritten its command line, and no process above it shows them"


class Discovery(Protocol):
    """Finds servers that nobody has configured."""

    def scan(self) -> tuple[FoundServer, ...]:
        """The servers now, oldest first. Raises: CollectorError."""

    def name(self, pid: int) -> str:
        """What a process was called when the process table was last read; empty where it is not known."""


class _Candidate(Struct, frozen=True, kw_only=True):
    """A process whose command line is that of an engine's server; ``command`` None: it only looked like it."""

    process: Process
    engine: str = ""
    command: ServerCommand | None = None


class _Facts(Struct, frozen=True, kw_only=True):
    """What hardly changes in the life of a server."""

    version: str | None
    model: Found


class HostDiscovery:
    """The real process table; blocks for some milliseconds, so call ``scan`` in a thread, one at a time."""

    def __init__(
        self,
        engines: Mapping[str, ReadCommand],
        *,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
        may_enter: Callable[[int], bool] = can_enter,
    ) -> None:
        self._engines = engines
        self._proc = proc
        self._clock = clock
        self._may_enter = may_enter
        self._marks = tuple(mark for engine in engines.values() for mark in engine.marks)
        self.table = ProcessTable(proc=proc, is_marked=self._is_marked)
        self._booted_at = boot_time(proc)
        self._candidates: dict[int, _Candidate] = {}
        self._facts: dict[tuple[int, int, str | None], _Facts] = {}

    def scan(self) -> tuple[FoundServer, ...]:
        """The servers now, oldest first, at most ``MAX_SERVERS``; never raises over a single process.

        Raises:
            Unreadable: there is no process table.
        """
        at = self._clock()
        try:
            processes = self.table.read(at)
        except OSError as exc:
            raise Unreadable("no_proc", f"{self._proc}: can't list processes: {exc.strerror}; is it mounted?") from exc
        self._candidates = {
            pid: self._candidate(process)
            for pid, process in processes.items()
            if process.command is not None or pid in self._candidates
        }
        parts = {name: engine.parts for name, engine in self._engines.items()}
        roots = list(islice(_roots(self._candidates, processes, parts), MAX_SERVERS))
        children = children_of(processes) if roots else {}
        pids = frozenset(root.process.pid for root in roots)
        tables = SocketTables(proc=self._proc)
        found = [self._found(root, family(children, root.process, without=pids), tables, at) for root in roots]
        alive = {(root.process.pid, root.process.started_ticks) for root in roots}
        self._facts = {key: facts for key, facts in self._facts.items() if key[:2] in alive}
        return _distinct(server for server in found if server is not None)

    def name(self, pid: int) -> str:
        """What the system calls a process: up to 15 characters, without its arguments."""
        return self.table.name(pid)

    def _is_marked(self, command: bytes) -> bool:
        return any(mark in command for mark in self._marks)

    def _candidate(self, process: Process) -> _Candidate:
        """What its command line says; what it said before where the same program has only changed its title."""
        known = self._candidates.get(process.pid)
        same = known is not None and known.process.started_ticks == process.started_ticks
        if known is not None and same and _shows_same(known.process, process):
            return known
        new = self._read(process)
        is_title = new.command is None or new.command.named_by_title
        if known is not None and same and is_title and process.program > 1 and process.program == known.process.program:
            return replace(known, process=process)
        return new

    def _read(self, process: Process) -> _Candidate:
        argv = words(process.command or b"")
        read = partial(ProcessView(process.pid, proc=self._proc).read, max_bytes=MAX_SETTINGS_BYTES)
        for name, engine in self._engines.items():
            command = engine.read(argv, read)
            if command is not None and (given := self._environment(process.pid, engine.variables)):
                command = engine.read([*given, *argv], read)
            if command is not None:
                return _Candidate(process=process, engine=name, command=command)
        return _Candidate(process=process)

    def _environment(self, pid: int, variables: Sequence[str]) -> list[str]:
        """What of these variables a process was started with; nothing where that is hidden from us."""
        if not variables:
            return []
        with contextlib.suppress(OSError):
            found = ProcessView(pid, proc=self._proc).environment(variables)
            return [f"{name}={value}" for name, value in found.items()]
        return []

    def _found(
        self, root: _Candidate, members: Sequence[Process], tables: SocketTables, at: float
    ) -> FoundServer | None:
        processes = tuple(self._described(members))
        command = root.command
        if command is None or not processes or processes[0].pid != root.process.pid:
            return None  # it ended just now
        command = self._with_model(root.engine, command, processes)
        pids = [process.pid for process in processes]
        place = find_place(command, pids, tables=tables, proc=self._proc, may_enter=self._may_enter)
        facts = self._facts_of(root, command)
        notes = (*command.notes, *place.notes, *((facts.model.note,) if facts.model.note else ()))
        return FoundServer(
            engine=root.engine,
            tree=ProcessTree(at=at, processes=processes),
            started_at=processes[0].started_at,
            listening=place.listening,
            host=place.host,
            port=place.port,
            url=place.url,
            arguments=command.arguments,
            version=facts.version,
            model=facts.model.path,
            served_name=command.served_name,
            network_pid=place.network_pid,
            notes=(_NO_FLAGS, *notes) if command.named_by_title else notes,
        )

    def _with_model(self, engine: str, command: ServerCommand, processes: Sequence[ServerProcess]) -> ServerCommand:
        """With the model that its processes hold, where they hold one."""
        model_of = self._engines[engine].model_of
        if model_of is None:
            return command
        models = {model for process in processes if (model := model_of(process.title))}
        return replace(command, model=models.pop() if len(models) == 1 else None)

    def _described(self, members: Sequence[Process]) -> Iterator[ServerProcess]:
        """Those that still are what the table says, with the titles they have now."""
        for process in members[:MAX_PROCESSES]:
            try:
                if started_ticks(process.pid, proc=self._proc) != process.started_ticks:
                    continue
                title = redact(words(command_line(process.pid, proc=self._proc))) or process.name
            except (OSError, ValueError, IndexError):
                continue
            started_at = self._booted_at + process.started_ticks / TICKS_PER_SECOND
            yield ServerProcess(pid=process.pid, started_at=started_at, title=title)

    def _facts_of(self, root: _Candidate, command: ServerCommand) -> _Facts:
        """Version and model, looked up once; a model that was not there again, since it may be downloading."""
        key = (root.process.pid, root.process.started_ticks, command.model)
        known = self._facts.get(key)
        if known is not None and known.model.note is None:
            return known
        view = ProcessView(root.process.pid, proc=self._proc)
        package = self._engines[root.engine].package
        looked_up = package_version(package, command.programs, view) if package and known is None else None
        version = known.version if known is not None else looked_up
        self._facts[key] = _Facts(version=version, model=find_model(command, view))
        return self._facts[key]


def _roots(
    candidates: Mapping[int, _Candidate], processes: Mapping[int, Process], parts: Mapping[str, frozenset[str]]
) -> Iterator[_Candidate]:
    """The candidates that a server begins with, oldest first; the others are part of one above them.

    A copy that was forked, and a process known by its title alone, belong to the server above. A supervisor counts for
    itself only until its servers are there.
    """
    supervisors: set[int] = set()
    roots: dict[int, _Candidate] = {}
    for one in sorted(candidates.values(), key=lambda one: (one.process.started_ticks, one.process.pid)):
        if one.command is None:
            continue
        above = _above(one, candidates, processes, parts)
        if above is None or above.command is None:
            roots[one.process.pid] = one
        elif one.command.named_by_title:
            command = _supervised(above.command, one.command)
            if command is not None:
                supervisors.add(above.process.pid)
                roots[one.process.pid] = replace(one, command=command)
        elif one.engine not in parts[above.engine] and one.command != above.command:
            roots[one.process.pid] = one
    yield from (root for pid, root in roots.items() if pid not in supervisors)


def _above(
    one: _Candidate,
    candidates: Mapping[int, _Candidate],
    processes: Mapping[int, Process],
    parts: Mapping[str, frozenset[str]],
) -> _Candidate | None:
    """The nearest ancestor that is a candidate of the same engine, or of one whose parts are of this engine."""
    seen = set()
    process = processes.get(one.process.parent)
    while process is not None and process.pid not in seen:
        seen.add(process.pid)
        candidate = candidates.get(process.pid)
        kinds = {candidate.engine, *parts[candidate.engine]} if candidate and candidate.command else set()
        if one.engine in kinds:
            return candidate
        process = processes.get(process.parent)
    return None


def _shows_same(before: Process, now: Process) -> bool:
    return (before.signature, before.command) == (now.signature, now.command)


def _supervised(above: ServerCommand, titled: ServerCommand) -> ServerCommand | None:
    """The command of one rank below a supervisor."""
    if not above.supervises or titled.rank is None or above.rank is None or above.port is None:
        return None
    return replace(above, supervises=False, port=above.port + titled.rank - above.rank)


def _distinct(servers: Iterable[FoundServer]) -> tuple[FoundServer, ...]:
    """Of several that answer at one place, as processes without their common parent do, the oldest."""
    kept: dict[object, FoundServer] = {}
    for server in servers:
        place = (server.url, server.network_pid) if server.url else server.tree.processes[0].pid
        kept.setdefault(place, server)
    return tuple(kept.values())
