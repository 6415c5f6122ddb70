"""The processes behind a server's port: who listens there, all its descendants, and their titles without secrets."""

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import psutil

from collectors.discovery.sockets import parse_table
from collectors.errors import Refused
from collectors.readings import ProcessTree, ServerProcess

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
    """The real process table. Sockets are only scanned while the listener of a port is not known or has ended."""

    def __init__(self, *, proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._listeners: dict[int, psutil.Process] = {}

    def tree(self, port: int) -> ProcessTree | None:
        """The listener of a TCP port of this host and its descendants, or None.

        Raises:
            Refused: somebody listens, but we may not see who.
        """
        at = self._clock()
        try:
            listener = self._listener(port)
            if listener is None:
                return None
            family = [listener, *listener.children(recursive=True)]
        except psutil.NoSuchProcess:
            self._listeners.pop(port, None)
            return None
        except psutil.AccessDenied as exc:
            raise _no_permission(port) from exc
        processes = tuple(_described(family))
        return ProcessTree(at=at, processes=processes) if processes else None

    def _listener(self, port: int) -> psutil.Process | None:
        known = self._listeners.pop(port, None)
        listener = known if known is not None and _is_alive(known) else _find_listener(self._proc, port)
        if listener is not None:
            self._listeners[port] = listener
        return listener


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


def _find_listener(proc: Path, port: int) -> psutil.Process | None:
    """The oldest process that holds the listening socket: API servers share the one their parent opened.

    psutil's own list names one holder of a shared socket, the youngest.
    """
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(proc, port)}
    if not sockets:
        return None
    holders = [psutil.Process(pid) for pid in psutil.pids() if not sockets.isdisjoint(_open_files(proc, pid))]
    if not holders:
        raise _no_permission(port)
    return min(holders, key=lambda process: (process.create_time(), process.pid))


def _listening_inodes(proc: Path, port: int) -> Iterator[str]:
    """Inodes of the sockets that listen on a port."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), (proc / "net" / name).open("rb") as table:
            table.readline()
            yield from (one.inode for one in parse_table(table) if one.port == port)


def _open_files(proc: Path, pid: int) -> Iterator[str]:
    """What the descriptors of a process stand for; nothing where we may not look, or it has ended."""
    try:
        descriptors = list((proc / str(pid) / "fd").iterdir())
    except OSError:
        return
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            yield str(descriptor.readlink())


def _no_permission(port: int) -> Refused:
    remedy = "run vramscope as root or with CAP_SYS_PTRACE, in a container also with the host's pid namespace"
    return Refused("permission", f"which process listens on port {port} is hidden from us; {remedy}")


def _is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _described(family: list[psutil.Process]) -> Iterator[ServerProcess]:
    for process in family:
        try:
            yield ServerProcess(pid=process.pid, started_at=process.create_time(), title=_title(process))
        except psutil.NoSuchProcess:
            continue


def _title(process: psutil.Process) -> str:
    """The command line; the bare name where that is hidden from us."""
    try:
        return redact(process.cmdline()) or process.name()
    except psutil.AccessDenied:
        return process.name()
