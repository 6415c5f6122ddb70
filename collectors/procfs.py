"""The processes behind a server's port: who listens there, all its descendants, and their titles without secrets."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from collectors.discovery.sockets import held_sockets, parse_table
from collectors.discovery.table import Process, children_of, command_line, family, words
from collectors.discovery.table import ProcessTable as Table
from collectors.errors import Refused, Unreadable
from collectors.readings import ProcessTree, ServerProcess

IN_A_ROW_SECONDS = 0.5
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

_MAX_ARGV_LENGTH = 65536
_MAX_TITLE_LENGTH = 4096
_MASK = "***"
_SECRET_WORDS = frozenset(
    {"token", "secret", "password", "passwd", "passphrase", "apikey", "key", "credential", "credentials", "auth"}
)
_ASSIGNMENT = re.compile(r"(?P<name>-{0,2}[A-Za-z][\w.-]*)=(?P<value>.*)", re.DOTALL)
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_KNOWN_SHAPES = re.compile(r"\b(?:hf_|sk-|ghp_|nvapi-)[\w-]{8,}|(?<=[Bb]earer )\S+")
_JSON_SECRET = re.compile(r"""(["'])([\w.-]+)\1(\s*:\s*)(["']).*?\4""")


class ProcessTable(Protocol):
    """Which processes serve a local port."""

    def tree(self, port: int) -> ProcessTree | None:
        """The process that listens on the port, first, and its descendants; None when nobody listens."""


class HostProcesses:
    """The real process table; blocks for some milliseconds. Ports asked for in a row are answered from one reading.

    Sockets are only scanned while the listener of a port is not known or has ended. ``table`` is one that others read
    too, on the same clock.
    """

    def __init__(
        self,
        *,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
        table: Table | None = None,
    ) -> None:
        self._proc = proc
        self._clock = clock
        self._table = table or Table(proc=proc, is_marked=lambda _: False)
        self._booted_at = boot_time(proc)
        self._processes: Mapping[int, Process] = {}
        self._children: dict[int, list[Process]] = {}
        self._listening: dict[int, set[str]] | None = None  # inodes by port, once they are needed
        self._listeners: dict[int, Process] = {}
        self._described: dict[Process, ServerProcess] = {}

    def tree(self, port: int) -> ProcessTree | None:
        """The listener of a TCP port of this host and its descendants, or None.

        Raises:
            Refused: somebody listens, but we may not see who.
            Unreadable: there is no process table.
        """
        at = self._clock()
        try:
            self._refresh(at)
            listener = self._listener(port)
        except OSError as exc:
            raise Unreadable("no_proc", f"{self._proc}: can't list processes: {exc.strerror}; is it mounted?") from exc
        if listener is None:
            return None
        processes = tuple(map(self._as_shown, family(self._children, listener)))
        return ProcessTree(at=at, processes=processes)

    def _refresh(self, at: float) -> None:
        processes = self._table.read(at, within=IN_A_ROW_SECONDS)
        if processes is self._processes:
            return
        self._processes = processes
        self._children = children_of(self._processes)
        self._listening = None
        alive = set(self._processes.values())
        self._described = {process: shown for process, shown in self._described.items() if process in alive}

    def _listener(self, port: int) -> Process | None:
        """The known one while it lives; else the oldest that holds the socket: API servers share their parent's."""
        known = self._listeners.pop(port, None)
        found = self._processes.get(known.pid) if known is not None else None
        if known is None or found is None or found.started_ticks != known.started_ticks:
            found = min(self._holders(port), key=lambda process: (process.started_ticks, process.pid), default=None)
        if found is not None:
            self._listeners[port] = found
        return found

    def _holders(self, port: int) -> list[Process]:
        """The processes that hold a socket which listens on the port."""
        if self._listening is None:
            self._listening = _listening(self._proc)
        inodes = self._listening.get(port)
        if not inodes:
            return []
        holders = [process for process in self._processes.values() if not inodes.isdisjoint(self._held(process.pid))]
        if not holders:
            raise _no_permission(port)
        return holders

    def _held(self, pid: int) -> set[str]:
        """Sockets of a process; none where we may not look, or it has ended."""
        try:
            return held_sockets(pid, proc=self._proc)
        except OSError:
            return set()

    def _as_shown(self, process: Process) -> ServerProcess:
        """Its command line, read once for every change of it; the bare name where that is hidden from us or empty."""
        shown = self._described.get(process)
        if shown is None:
            title = ""
            with contextlib.suppress(OSError):
                title = redact(words(command_line(process.pid, proc=self._proc)))
            started_at = self._booted_at + process.started_ticks / TICKS_PER_SECOND
            shown = ServerProcess(pid=process.pid, started_at=started_at, title=title or process.name)
            self._described[process] = shown
        return shown


def boot_time(proc: Path) -> float:
    """Seconds since the epoch, as psutil counts start times; 0 where it is not told."""
    try:
        lines = (proc / "stat").read_bytes().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(b"btime "))
    except (OSError, ValueError, IndexError, StopIteration):
        return 0.0


def redact(argv: Iterable[str]) -> str:
    """A command line as one string in which the values of keys, tokens, passwords and secrets are masked.

    Whole words of a name decide: ``--hf-token`` and ``API_KEY=`` are secret, ``--max-num-batched-tokens`` and
    ``--tokenizer`` are not. After a secret flag everything up to the next flag is masked (vLLM takes several keys).
    """
    masked: list[str] = []
    hiding = False
    for word in " ".join(argv)[:_MAX_ARGV_LENGTH].split():
        if word.startswith("-"):
            hiding = _is_secret(word.partition("=")[0])
        masked.append(_MASK if hiding and not word.startswith("-") else _without_value(word))
    return _scrubbed(" ".join(masked))[:_MAX_TITLE_LENGTH]


def _without_value(word: str) -> str:
    """NAME=VALUE with the value masked where the name is that of a secret; anything else as it is."""
    found = _ASSIGNMENT.fullmatch(word)
    return f"{found['name']}={_MASK}" if found and _is_secret(found["name"]) else word


def _scrubbed(text: str) -> str:
    """Secrets that show by their form: in a URL, in JSON, with the prefix of a well-known kind of token."""

    def hide(found: re.Match[str]) -> str:
        quote, name, colon, inner = found.groups()
        return f"{quote}{name}{quote}{colon}{inner}{_MASK}{inner}" if _is_secret(name) else found[0]

    return _KNOWN_SHAPES.sub(_MASK, _USER_IN_URL.sub(_MASK, _JSON_SECRET.sub(hide, text)))


def _is_secret(name: str) -> bool:
    words = re.split(r"[-_.]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    return not _SECRET_WORDS.isdisjoint(words)


def _listening(proc: Path) -> dict[int, set[str]]:
    """Inodes of the sockets that listen, by port."""
    found: dict[int, set[str]] = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), (proc / "net" / name).open("rb") as table:
            table.readline()
            for one in parse_table(table):
                found.setdefault(one.port, set()).add(one.inode)
    return found


def _no_permission(port: int) -> Refused:
    remedy = "run vramscope as root or with CAP_SYS_PTRACE, in a container also with the host's pid namespace"
    return Refused("permission", f"which process listens on port {port} is hidden from us; {remedy}")
