"""Following what a systemd unit, or a container, writes to the journal: a child ``journalctl --follow`` and its pipe.

The child sleeps until the journal grows, and follows rotation, vacuuming and restarts of the unit. Nothing here waits
for it longer than a moment: a child that hangs says nothing, one that ends is started again from the last line on. A
line is ``SECONDS.MICROSECONDS IDENTIFIER[PID]: TEXT``; what begins otherwise is journalctl's own word.
Source: systemd, ``journalctl(1)``; ``/run/systemd/units`` of ``src/core/unit.c``.
"""

import contextlib
import fcntl
import os
import re
import select
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from collectors.engine_logs.tail import BACK_BYTES, Lines
from collectors.errors import Absent, CollectorError, Refused, Unreadable

PREFIX = "journald:"
RETRY_SECONDS = 30.0
RECENT_LINES = 20_000
"""What is read first of a unit whose start is not known, or where the start is too far behind."""
_FLAGS = ("--follow", "--no-pager", "--all", "--no-hostname", "--output=short-unix")
_CHUNKS = 128
_CHUNK_BYTES = 64 * 1024
_PIPE_BYTES = 1 << 20
_PAUSE_MILLISECONDS = 20
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,255}")
_CONTAINER = re.compile(r"CONTAINER_(?:NAME|ID|ID_FULL|TAG)=[A-Za-z0-9][\w./:@-]{0,254}")
_SUFFIX = re.compile(r"\.(?:service|scope|slice|socket|mount|swap|timer|path|target|device|automount)$")
_TIME = re.compile(rb"^(\d{1,12})\.(\d{6}) ", re.MULTILINE)
_OWN = re.compile(rb"^[A-Z].*", re.MULTILINE)
_HIDDEN = (b"not seeing messages from other users", b"insufficient permissions")


class Journal(Struct, frozen=True, kw_only=True):
    """Where journals are read: the program, and systemd's links to the current run of each unit."""

    command: tuple[str, ...] = ("journalctl",)
    units: Path = Path("/run/systemd/units")

    def started_at(self, unit: str) -> float | None:
        """When the current run of a system unit began, by the wall clock; None where it does not run or is not seen."""
        try:
            return os.lstat(self.units / f"invocation:{unit}").st_mtime
        except OSError:
            return None


def matches_of(name: str) -> tuple[str, ...]:
    """What to ask the journal for: a unit of the system or of a user, or ``CONTAINER_NAME=...`` and the like.

    Raises:
        ValueError: the name of neither.
    """
    if _CONTAINER.fullmatch(name):
        return (name,)
    if not _UNIT.fullmatch(name) or name.startswith("-"):
        raise ValueError("expected a unit such as journald:vllm.service, or journald:CONTAINER_NAME=vllm")
    unit = unit_of(name)
    return (f"_SYSTEMD_UNIT={unit}", "+", f"_SYSTEMD_USER_UNIT={unit}")


def unit_of(name: str) -> str:
    """A unit with its suffix, which may be left out of a service's name."""
    return name if _SUFFIX.search(name) else f"{name}.service"


class JournalTail:
    """One unit or container; its child lives until ``close``, and begins after the last line that was read."""

    def __init__(self, name: str, *, journal: Journal, clock: Callable[[], float]) -> None:
        self._name = name
        self._journal = journal
        self._clock = clock
        self._child: subprocess.Popen[bytes] | None = None
        self._problem: tuple[CollectorError, float] | None = None
        self._lines = Lines()
        self._last: int | None = None  # microseconds since 1970 of the newest line
        self._until: int | None = None  # lines up to then were read before
        self._unread_bytes = 0
        self._hidden = False

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None and child.stdout is not None:
            child.kill()
            child.stdout.close()
            with contextlib.suppress(subprocess.TimeoutExpired):  # in the kernel; it is reaped with the next child
                child.wait(5.0)

    def read(self) -> Iterator[bytes]:
        """Blocks of whole lines that are new.

        Raises:
            Absent: there is no journalctl.
            Refused: the journal may not be read.
            Unreadable: journalctl ended.
        """
        if self._problem is not None and self._clock() < self._problem[1]:
            raise self._problem[0]
        self._problem = None
        child = self._child or self._start(lines=None)
        for block in self._piped(child):
            if fresh := self._fresh(block):
                yield fresh
        if self._hidden and self._last is None:
            raise self._refused()
        if self._unread_bytes > BACK_BYTES:
            self.close()
            self._start(lines=RECENT_LINES)

    def _start(self, *, lines: int | None) -> subprocess.Popen[bytes]:
        """A new child; with ``lines``, from that many before the end on."""
        since = self._journal.started_at(unit_of(self._name)) if self._last is None else self._last / 1e6
        behind = ["--no-tail", f"--since=@{since:.6f}"] if since is not None else [f"--lines={RECENT_LINES}"]
        flags = [*_FLAGS, *(behind if lines is None else [f"--lines={lines}"])]
        self._until, self._unread_bytes, self._hidden, self._lines = self._last, 0, False, Lines()
        try:
            child = subprocess.Popen(  # noqa: S603 - no shell, and names were checked
                [*self._journal.command, *flags, *matches_of(self._name)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "SYSTEMD_COLORS": "0"},
                start_new_session=True,
            )
        except FileNotFoundError as exc:
            why = f"{PREFIX}{self._name}: there is no journalctl here; install it, or let the unit write to a file"
            raise self._failed(Absent("absent", why)) from exc
        except OSError as exc:
            why = f"{PREFIX}{self._name}: journalctl can't be started: {exc.strerror}"
            raise self._failed(Unreadable("unreadable", why)) from exc
        if child.stdout is not None:
            with contextlib.suppress(OSError):  # more than a user may have
                fcntl.fcntl(child.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._child = child
        return child

    def _piped(self, child: subprocess.Popen[bytes]) -> Iterator[bytes]:
        """What the pipe holds, waiting a moment for more while there is some. Raises: CollectorError at its end."""
        if child.stdout is None:
            return
        pipe = child.stdout.fileno()
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        for number in range(_CHUNKS):
            if not poll.poll(_PAUSE_MILLISECONDS if number else 0):
                self._unread_bytes = self._unread_bytes if number else 0
                return
            data = os.read(pipe, _CHUNK_BYTES)
            if not data:
                yield from self._lines.add(b"\n" if self._lines.rest else b"")
                raise self._ended(child)
            self._unread_bytes += len(data)
            yield from self._lines.add(data)

    def _fresh(self, block: bytes) -> bytes:
        """A block without the lines that another child has told already."""
        self._hidden = self._hidden or any(word in own for own in _OWN.findall(block) for word in _HIDDEN)
        times = [(int(found[1] + found[2]), found.start()) for found in _TIME.finditer(block)]
        if self._until is not None:
            begin = next((start for time, start in times if time > (self._until or 0)), None)
            if begin is None:
                return b""
            self._until, block = None, block[begin:]
        self._last = times[-1][0] if times else self._last
        return block

    def _ended(self, child: subprocess.Popen[bytes]) -> CollectorError:
        self.close()
        if self._hidden and self._last is None:
            return self._failed(self._refused())
        why = f"{PREFIX}{self._name}: journalctl ended ({_status(child)}); it is started again within"
        return self._failed(Unreadable("unreadable", f"{why} {RETRY_SECONDS:.0f} s; try `journalctl` as this user"))

    def _refused(self) -> Refused:
        return Refused(
            "permission",
            f"{PREFIX}{self._name}: the journal may not be read; add the user of vramscope to the group "
            "systemd-journal",
        )

    def _failed(self, error: CollectorError) -> CollectorError:
        self._problem = (error, self._clock() + RETRY_SECONDS)
        return error


def _status(child: subprocess.Popen[bytes]) -> str:
    code = child.returncode
    if code is None:
        return "its output closed"
    return f"signal {-code}" if code < 0 else f"status {code}"
