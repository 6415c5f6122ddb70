"""The process table, read cheaply again and again: what does not change in a process's life is read once.

A process is the same one while its pid and start time are; its command line is read again when it has started another
program (its code lies elsewhere) or another name or place of its command line shows that it has a new title. One that
has not changed for a while is looked at in every fourth pass only. Source: Linux, Documentation/filesystems/proc.rst,
table 1-4.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

MAX_COMMAND_BYTES = 64 * 1024
_MAX_STAT_BYTES = 4096
SETTLED_PASSES = 12
PARTS = 4
_KERNEL_THREAD = 0x00200000
_STATE, _PARENT, _FLAGS, _STARTED, _CODE, _ARGUMENTS = 0, 1, 6, 19, 23, 45  # fields behind the name, from 0
_HIDDEN = b"0"


class Process(Struct, frozen=True, kw_only=True):
    """One process. ``started_ticks`` counts from boot; ``program`` differs when it runs another program; 1: hidden.

    ``command``: its command line with NULs, only where it has one of the marks that were asked for. ``since``: the pass
    in which it was first seen like this.
    """

    pid: int
    parent: int
    started_ticks: int
    name: str
    program: int
    command: bytes | None = None
    signature: tuple[bytes, ...] = ()
    since: int = 0

    def __repr__(self) -> str:
        return f"Process(pid={self.pid}, name={self.name!r})"  # a command line may hold a key


class ProcessTable:
    """All processes of a ``/proc`` but dead ones."""

    def __init__(self, *, proc: Path = Path("/proc"), is_marked: Callable[[bytes], bool]) -> None:
        self._proc = str(proc)
        self._is_marked = is_marked
        self._known: dict[int, Process] = {}
        self._pass = 0
        self._read_at = float("-inf")

    def read(self, at: float = 0.0, *, within: float = 0.0) -> Mapping[int, Process]:
        """The processes now, by pid; those of the last reading, the same object, where that is ``within`` so long ago.

        Raises:
            OSError: there is no process table.
        """
        if 0 <= at - self._read_at < within:
            return self._known
        self._pass += 1
        self._read_at = at
        self._known = {process.pid: process for process in self._processes()}
        return self._known

    def name(self, pid: int) -> str:
        """What the last reading says that a process is called; empty where it is not known."""
        known = self._known.get(pid)
        return known.name if known is not None else ""

    def _processes(self) -> Iterator[Process]:
        for name in os.listdir(self._proc):  # noqa: PTH208 - thousands of them: no Path for each
            if not name.isdecimal():
                continue
            pid = int(name)
            known = self._known.get(pid)
            if known is not None and self._may_skip(known):
                yield known
                continue
            try:
                process = self._process(pid, known)
            except (OSError, ValueError, IndexError):
                continue  # it ended meanwhile
            if process is not None:
                yield process

    def _may_skip(self, known: Process) -> bool:
        is_settled = known.command is None and self._pass - known.since >= SETTLED_PASSES
        return is_settled and (known.pid + self._pass) % PARTS != 0

    def _process(self, pid: int, known: Process | None) -> Process | None:
        line = _read(f"{self._proc}/{pid}/stat", _MAX_STAT_BYTES)
        opening, closing = line.index(b"("), line.rindex(b")")
        fields = line[closing + 2 :].split()
        if fields[_STATE] in (b"Z", b"X"):
            return None
        signature = (line[opening + 1 : closing], fields[_STARTED], fields[_CODE], fields[_ARGUMENTS])
        parent = int(fields[_PARENT])
        is_of_kernel = bool(int(fields[_FLAGS]) & _KERNEL_THREAD)
        is_told = signature[-1] != _HIDDEN or is_of_kernel
        if known is not None and known.signature == signature and is_told:
            return known if known.parent == parent else replace(known, parent=parent)
        command = b"" if is_of_kernel else _read(f"{self._proc}/{pid}/cmdline", MAX_COMMAND_BYTES)
        return Process(
            pid=pid,
            parent=parent,
            started_ticks=int(fields[_STARTED]),
            name=signature[0].decode("utf-8", "replace"),
            program=int(fields[_CODE]),
            command=command if self._is_marked(command) else None,
            signature=signature,
            since=known.since if known is not None and known.signature == signature else self._pass,
        )


def words(command: bytes) -> list[str]:
    """A command line as its words; an overwritten one is a single title behind which NULs stand."""
    text = command.rstrip(b"\0").decode("utf-8", "replace")
    return text.split("\0") if text else []


def command_line(pid: int, *, proc: Path) -> bytes:
    """The command line of a process as it is now. Raises: OSError."""
    return _read(f"{proc}/{pid}/cmdline", MAX_COMMAND_BYTES)


def started_ticks(pid: int, *, proc: Path = Path("/proc")) -> int:
    """When a process started, in ticks after boot; with its pid this tells it from all others. Raises: OSError."""
    line = _read(f"{proc}/{pid}/stat", _MAX_STAT_BYTES)
    return int(line[line.rindex(b")") + 2 :].split()[_STARTED])


def children_of(processes: Mapping[int, Process]) -> dict[int, list[Process]]:
    """The children of each process."""
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    return children


def family(
    children: Mapping[int, Sequence[Process]], root: Process, *, without: frozenset[int] = frozenset()
) -> list[Process]:
    """A process and its descendants by generation, oldest first, leaving out those in ``without`` and theirs."""
    found = [root]
    seen = {root.pid, *without}
    for process in found:  # grows while it is walked
        born = [child for child in children.get(process.pid, ()) if child.pid not in seen]
        seen.update(child.pid for child in born)
        found += sorted(born, key=lambda child: (child.started_ticks, child.pid))
    return found


def _read(path: str, max_bytes: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, 4096)
        while len(content) % 4096 == 0 and 0 < len(content) < max_bytes and (more := os.read(descriptor, 4096)):
            content += more
        return content[:max_bytes]
    finally:
        os.close(descriptor)
