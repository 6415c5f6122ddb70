"""Files of probes: which one belongs to which process, and what it says. Everything in them is another user's word.

A file is its process's only where namespace, pid in it and start time stand in the file as the kernel says them; it
must be a regular, small file of the process's own user (or root) that nobody else can write, reached without symbolic
links, and its figures must be possible. So whoever can write one can only take his own server's figures away.
"""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from collectors.discovery.table import started_ticks
from collectors.discovery.view import ProcessView
from collectors.errors import CollectorError, Refused, Unreachable, Unreadable
from collectors.probe_layout import COUNTS, MAX_FILE_BYTES, REPORTING, SILENT, ProbeFile, parse
from collectors.readings import Fault, ProbeReading, ServerProcess

DIRECTORY = "VRAMSCOPE_PROBE_DIRECTORY"
MAX_FILES = 256
MAX_PROCESSES = 512
MAX_ANCESTORS = 8
MAX_STATUS_BYTES = 4096
GRACE_SECONDS = 2.0
INTERVALS = 3
AHEAD_SECONDS = 1.0


class Identity(Struct, frozen=True, kw_only=True):
    """What tells a process from all others of this boot; ``namespace`` is None where we may not see it."""

    namespace: int | None
    pid: int
    started_ticks: int


class Place(Struct, frozen=True, kw_only=True):
    """Where a probe's file is: ``folder`` below ``root``. Without a pid nobody knows yet whose it is."""

    root: str
    folder: str
    name: str
    owners: frozenset[int]
    pid: int | None = None
    identity: Identity | None = None

    @property
    def path(self) -> str:
        return f"{self.root.rstrip('/')}/{self.folder.strip('/')}/{self.name}"


class ProbePass(Struct, frozen=True, kw_only=True):
    """One pass over the files. ``seen`` are the processes that have one of their own.

    ``faults``: by pid, why the file of a process can't be used; ``unmatched`` is the first fault of a file that belongs
    to no process that we see.
    """

    readings: tuple[ProbeReading, ...] = ()
    seen: frozenset[int] = frozenset()
    faults: dict[int, Fault] = {}
    unmatched: Fault | None = None


class Probes(Protocol):
    """Which processes have a probe inside, and what these say."""

    def find(self, processes: Iterable[ServerProcess]) -> tuple[Place, ...]:
        """Where the files of these processes are, now; blocks, never raises."""

    def read(self, places: Iterable[Place]) -> ProbePass:
        """What these files say; blocks, never raises."""


class ProbeFiles:
    """The real files. ``directory`` is a volume that engines in other containers write into, where settings name one.

    ``clock`` is that of readings, ``boot_clock`` the kernel's since boot, which all containers of a host share.
    """

    def __init__(
        self,
        *,
        directory: Path | None = None,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
        boot_clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._directory = directory
        self._proc = proc
        self._clock = clock
        self._boot_clock = boot_clock
        self._known: dict[ServerProcess, Place | None] = {}

    def find(self, processes: Iterable[ServerProcess]) -> tuple[Place, ...]:
        """The files that are there. What does not change in a process's life is looked up once."""
        wanted = list(processes)[:MAX_PROCESSES]
        known = {one: self._known[one] if one in self._known else self._place(one.pid) for one in wanted}
        self._known = known
        own = [place for place in known.values() if place is not None and os.path.lexists(place.path)]
        return (*own, *self._shared([place for place in known.values() if place is not None]))

    def _place(self, pid: int) -> Place | None:
        """Where the file of a process would be; None where it has ended, or we can't see enough of it."""
        try:
            status = _status(self._proc / str(pid) / "status")
            uid, pids = int(status["Uid"][1]), [int(one) for one in status.get("NSpid", [str(pid)])]
            root, namespace, folder = str(self._proc / str(pid) / "root"), None, ""
            try:
                namespace = (self._proc / str(pid) / "ns" / "pid").stat().st_ino
                folder = self._named(pid, namespace)
            except PermissionError:
                if len(pids) > 1:
                    return None
                root, namespace = "/", (self._proc / "self" / "ns" / "pid").stat().st_ino
            folder = folder or f"/dev/shm/vramscope-{self._uid_inside(pid, uid)}"  # noqa: S108 - where the probe writes
            identity = Identity(namespace=namespace, pid=pids[-1], started_ticks=started_ticks(pid, proc=self._proc))
        except (OSError, ValueError, IndexError, KeyError):
            return None
        if not folder.startswith("/") or ".." in folder.split("/"):
            return None
        name = f"{namespace}-{identity.pid}"
        return Place(root=root, folder=folder, name=name, owners=frozenset({uid, 0}), pid=pid, identity=identity)

    def _named(self, pid: int, namespace: int) -> str:
        """The directory of its environment, else of its nearest ancestor's in its namespace; empty where none is named.

        A worker that gives itself a title, as those of vLLM and SGLang do, overwrites its own environment with it.
        """
        named = ProcessView(pid, proc=self._proc).environment([DIRECTORY]).get(DIRECTORY, "")
        with contextlib.suppress(OSError, KeyError):  # an ancestor is gone, or another user's
            for _ in range(MAX_ANCESTORS):
                pid = int(_status(self._proc / str(pid) / "status")["PPid"][0])
                if named or (self._proc / str(pid) / "ns" / "pid").stat().st_ino != namespace:
                    break
                named = ProcessView(pid, proc=self._proc).environment([DIRECTORY]).get(DIRECTORY, "")
        return named

    def _uid_inside(self, pid: int, uid: int) -> int:
        """The user as the process itself sees it."""
        text = (self._proc / str(pid) / "uid_map").read_text()
        for inside, outside, count in (map(int, line.split()) for line in text.splitlines()[:MAX_FILES]):
            if outside <= uid < outside + count:
                return inside + uid - outside
        raise ValueError

    def _shared(self, places: Iterable[Place]) -> tuple[Place, ...]:
        """Files of the volume that settings name: of a process that we see, by what its place says, or of nobody."""
        if self._directory is None:
            return ()
        by_name = {place.name: place for place in places}
        try:
            with os.scandir(self._directory) as entries:
                names = [entry.name for entry, _ in zip(entries, range(MAX_FILES), strict=False)]
            owner = self._directory.stat().st_uid
        except OSError:
            return ()
        found = []
        for name in sorted(name for name in names if _is_name(name)):
            place = by_name.get(name)
            found.append(
                Place(
                    root="/",
                    folder=str(self._directory.absolute()),
                    name=name,
                    owners=place.owners if place else frozenset({owner, 0}),
                    pid=place.pid if place else None,
                    identity=place.identity if place else None,
                )
            )
        return tuple(found)

    def read(self, places: Iterable[Place]) -> ProbePass:
        """What the files say now. One that is gone, or is of another process, says nothing, and that is no fault."""
        readings: list[ProbeReading] = []
        seen: set[int] = set()
        faults: dict[int, Fault] = {}
        unmatched: Fault | None = None
        for place in places:
            try:
                found = self._read(place)
                readings += found or []
                if found is not None and place.pid is not None:
                    seen.add(place.pid)
            except CollectorError as error:
                if place.pid is None:
                    unmatched = unmatched or error.fault()
                else:
                    faults[place.pid] = error.fault()
        return ProbePass(readings=tuple(readings), seen=frozenset(seen), faults=faults, unmatched=unmatched)

    def _read(self, place: Place) -> list[ProbeReading] | None:
        """What a file says; None where there is none, or it is another's."""
        content = _content(place)
        if content is None:
            return None
        try:
            file = parse(content)
        except Unreadable as error:
            raise Unreadable(error.reason, f"{place.path}: {error}") from error
        if place.identity is not None and not _is_of(file, place.identity):
            return None
        if file.state == SILENT:
            raise Unreachable("silent", f"the probe of pid {file.pid} is silent: {file.reason or 'no reason given'}")
        age = self._age(place, file) if file.state == REPORTING else None
        return [] if age is None else list(self._readings(place, file, self._clock() - age))

    def _age(self, place: Place, file: ProbeFile) -> float | None:
        """Seconds since it was written; None for an old one of nobody, which is what a dead process leaves."""
        age = self._boot_clock() - file.written_at
        if age < -AHEAD_SECONDS:
            raise Unreadable("clock", f"{place.path}: it says that it was written {-age:.0f} s from now")
        if age > _lasts(file):
            if place.pid is None:
                return None
            raise Unreachable("stale", f"{place.path}: it was last written {age:.0f} s ago; is the process stuck?")
        return max(0.0, age)

    def _readings(self, place: Place, file: ProbeFile, at: float) -> Iterable[ProbeReading]:
        for record in file.records:
            figures = {name if name in COUNTS else f"{name}_bytes": one for name, one in record.figures.items()}
            yield ProbeReading(
                pid=place.pid,
                at=at,
                lasts_seconds=_lasts(file),
                file=place.path,
                number=record.number,
                uuid_digits=record.uuid_digits,
                torch_version=file.torch_version,
                expandable_segments=file.expandable_segments,
                backend=file.backend,
                **figures,
            )


def _lasts(file: ProbeFile) -> float:
    return INTERVALS * file.interval_seconds + GRACE_SECONDS


def _is_of(file: ProbeFile, identity: Identity) -> bool:
    return (
        file.pid == identity.pid
        and file.started_ticks == identity.started_ticks
        and identity.namespace in (None, file.namespace)
    )


def _is_name(name: str) -> bool:
    namespace, dash, pid = name.partition("-")
    return bool(dash) and namespace.isdecimal() and pid.isdecimal() and len(name) <= 32


def _status(path: Path) -> dict[str, list[str]]:
    with path.open("rb") as file:
        lines = file.read(MAX_STATUS_BYTES).decode("utf-8", "replace").splitlines()
    return {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}


def _content(place: Place) -> bytes | None:
    """The whole file, None where there is none.

    It is looked at before it is opened for reading, so that nothing but a regular file ever is.

    Raises:
        Unreadable, Refused: it can't be trusted, or we may not read it.
    """
    try:
        found = _reached(place)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise Unreadable("link", f"{place.path}: part of it is a symbolic link or no directory") from error
        raise Refused("permission", f"{place.path}: can't be reached: {error.strerror}") from error
    try:
        _check(os.fstat(found), place)
        reader = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            return os.read(reader, MAX_FILE_BYTES + 1)
        finally:
            os.close(reader)
    except OSError as error:
        raise Refused("permission", f"{place.path}: can't be read: {error.strerror}") from error
    finally:
        os.close(found)


def _reached(place: Place) -> int:
    """The file, not yet opened for reading, by way of real directories only. Raises: OSError."""
    step = os.O_PATH | os.O_CLOEXEC
    at = os.open(place.root, step | os.O_DIRECTORY)
    try:
        for part in filter(None, place.folder.split("/")):
            inner = os.open(part, step | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(place.name, step | os.O_NOFOLLOW, dir_fd=at)
    finally:
        with contextlib.suppress(OSError):
            os.close(at)


def _check(status: os.stat_result, place: Place) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise Unreadable("link", f"{place.path}: it is a symbolic link")
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("not_regular", f"{place.path}: it is not a regular file")
    if status.st_uid not in place.owners:
        raise Unreadable("owner", f"{place.path}: it belongs to user {status.st_uid}, not to its process's or root")
    if status.st_mode & 0o022:
        raise Unreadable("writable", f"{place.path}: others than its owner can write it")
    if status.st_size > MAX_FILE_BYTES:
        raise Unreadable("too_large", f"{place.path}: it has {status.st_size} bytes, more than {MAX_FILE_BYTES}")
