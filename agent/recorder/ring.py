"""The recorder's folder: a ring of segments, each a minute, and the bundles that were frozen out of it. It blocks.

A segment is only ever added to, so whatever ends the agent costs at most the chunk being written; a bundle gets its
name once all of it is on the disk. Half of the bytes allowed is for the ring, half for bundles: a quarter of that for
those of risks, which come often where a server is always at its limit, so that they never push out one of an incident.
"""

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from agent.folder_lock import FILE_MODE, FOLDER_MODE, FolderLock, sync_folder
from agent.recorder.chunks import pack, whole_bytes
from agent.recorder.records import RISK, Frozen, Reason

FOLDER = "recorder"
OURS = "ring, bundles, request and lock"
SUFFIX = ".vramscope"
REQUEST = "request"
SEGMENT_SECONDS = 60.0
MAX_BUNDLES = 16
MAX_RISK_BUNDLES = 4
COPY_BYTES = 1 << 18
_MAX_SUBJECT = 60
_EXCLUSIVE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Ring:
    """``recorder`` in a state directory; ``minutes`` and ``max_bytes`` bound it. ``write`` fills an open file.

    Raises (all methods): OSError as the disk says, Refused while another agent has the folder.
    """

    def __init__(
        self,
        state_directory: Path,
        *,
        minutes: float,
        max_bytes: int,
        write: Callable[[int, bytes], None] | None = None,
    ) -> None:
        self.folder = state_directory / FOLDER
        self.bundles = self.folder / "bundles"
        self._segments = self.folder / "ring"
        self._minutes = minutes
        self._half = max_bytes // 2
        self._write = write or write_all
        self._lock = FolderLock(self.folder)
        self._open: int | None = None
        self._first: int | None = None  # of this agent's segments
        self._size = 0
        self._sizes: dict[Path, int] = {}

    def begin(self) -> None:
        """Begin a segment; the oldest ones go where there are too many."""
        self.end()
        self._lock.hold()
        self._segments.mkdir(mode=FOLDER_MODE, exist_ok=True)
        known = self.segments()
        self._sizes = {path: path.stat().st_size for path in known}
        number = 1 + max((int(path.stem) for path in known), default=0)
        path = self._segments / f"{number:010}{SUFFIX}"
        self._open = os.open(path, _EXCLUSIVE, FILE_MODE)
        self._first = number if self._first is None else self._first
        self._size = 0
        self._trim()

    def add(self, chunk: bytes) -> None:
        """Append a chunk; where that fails, the segment is as it was, and ended."""
        if self._open is None:
            raise RuntimeError("no segment was begun")
        try:
            if os.fstat(self._open).st_nlink == 0:  # somebody has cleared the folder, and nothing would tell
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            self._write(self._open, chunk)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._open, self._size)
            self.end()
            raise
        self._size += len(chunk)
        if self._size + sum(self._sizes.values()) > self._half:
            self._trim()

    def end(self) -> None:
        """End the segment, if one was begun."""
        if self._open is not None:
            descriptor, self._open = self._open, None
            try:
                with contextlib.suppress(OSError):
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        """End the segment and let another agent have the folder."""
        self.end()
        self._lock.release()

    def hold(self) -> None:
        """Be the one whose folder this is."""
        self._lock.hold()

    @property
    def is_full(self) -> bool:
        """Whether the segment alone is half of what the ring may have, so that another should begin."""
        return self._size > self._half // 2

    def segments(self) -> list[Path]:
        """Those in the ring, oldest first."""
        return _numbered(self._segments)

    def _trim(self) -> None:
        """Let the oldest go: those above the minutes, each of a minute, then those above the bytes."""
        oldest = list(self._sizes)
        keep = max(1, round(self._minutes * 60 / SEGMENT_SECONDS))
        while oldest and (len(oldest) > keep or self._size + sum(self._sizes.values()) > self._half):
            path = oldest.pop(0)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            del self._sizes[path]

    def freeze(self, frozen: Frozen) -> Path:
        """Put all whole chunks of the ring into one bundle that says why; the oldest bundles go above the limits."""
        self._lock.hold()
        self.bundles.mkdir(mode=FOLDER_MODE, exist_ok=True)
        new = self.bundles / "new"
        with contextlib.suppress(FileNotFoundError):
            new.unlink()  # of one that was killed
        descriptor = os.open(new, _EXCLUSIVE, FILE_MODE)
        try:
            try:
                _copy(self._recent(frozen.wall), descriptor, room=self._room(frozen.reason))
                self._write(descriptor, pack([frozen])[0])
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._make_room(new.stat().st_size, frozen.reason)
            path = self._name(frozen)
            new.rename(path)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        sync_folder(self.bundles)
        return path

    def _recent(self, wall: float) -> Iterable[Path]:
        """All of this agent's, and those of earlier ones that ended within the minutes that are kept."""
        for path in self.segments():
            if self._first is None or int(path.stem) >= self._first:
                yield path
                continue
            with contextlib.suppress(FileNotFoundError):
                if abs(wall - path.stat().st_mtime) <= self._minutes * 60 + SEGMENT_SECONDS:
                    yield path

    def _name(self, frozen: Frozen) -> Path:
        when = datetime.fromtimestamp(frozen.wall, UTC).strftime("%Y%m%dT%H%M%SZ")
        subject = re.sub(r"[^A-Za-z0-9._-]+", "-", frozen.subject)[:_MAX_SUBJECT].strip("-.")
        stem = "-".join(part for part in (when, frozen.reason, subject) if part)
        path = self.bundles / f"{stem}{SUFFIX}"
        number = 1
        while path.exists():
            number += 1
            path = self.bundles / f"{stem}-{number}{SUFFIX}"
        return path

    def _room(self, reason: Reason) -> int:
        return self._half // 4 if reason == RISK else self._half - self._half // 4

    def _make_room(self, size: int, reason: Reason) -> None:
        """Let the oldest bundles of its sort go that are too many beside one of this size."""
        most = MAX_RISK_BUNDLES if reason == RISK else MAX_BUNDLES
        alike = [path for path in bundles_in(self.bundles) if _is_risk(path) == (reason == RISK)]
        for number, path in enumerate(reversed(alike), start=2):
            size += path.stat().st_size
            if number > most or size > self._room(reason):
                path.unlink()

    # A request by somebody who may write in this folder

    @property
    def is_asked(self) -> bool:
        """Whether somebody asks for a bundle: by a file that only who may write here can make."""
        return os.path.lexists(self.folder / REQUEST)

    def answered(self) -> None:
        """What was asked for is done, or can't be."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / REQUEST).unlink()


def bundles_in(folder: Path) -> list[Path]:
    """Bundles, oldest first."""
    found = [path for path in folder.glob(f"*{SUFFIX}") if path.is_file()]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))


def _is_risk(bundle: Path) -> bool:
    return bundle.stem.split("-")[1:2] == [RISK]


def _numbered(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob(f"*{SUFFIX}")) if path.stem.isdecimal() and path.stem.isascii()]


def _copy(segments: Iterable[Path], bundle: int, *, room: int) -> None:
    """The newest whole chunks that there is room for, a segment at a time."""
    with contextlib.ExitStack() as stack:
        files: list[tuple[BinaryIO, int]] = []
        for path in segments:
            with contextlib.suppress(FileNotFoundError):
                file: BinaryIO = stack.enter_context(path.open("rb"))
                files.append((file, whole_bytes(file)))
        for file, size in _newest(files, room):
            file.seek(0)
            _copy_bytes(file, bundle, size)


def _newest(files: Sequence[tuple[BinaryIO, int]], room: int) -> list[tuple[BinaryIO, int]]:
    kept: list[tuple[BinaryIO, int]] = []
    for file, size in reversed(files):
        room -= size
        if room < 0 and kept:
            break
        kept.append((file, size))
    return kept[::-1]


def _copy_bytes(source: BinaryIO, target: int, size: int) -> None:
    while size:
        block = source.read(min(size, COPY_BYTES))
        if not block:
            return
        write_all(target, block)
        size -= len(block)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of it."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
