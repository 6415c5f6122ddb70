"""Following a file that somebody else writes: what was appended since the last look, through rotation, bounded.

A file that was renamed away is read to its end before the one that took its name; one that was cut short
(``copytruncate``) from its new beginning. Only regular files are read, and never beyond the size they have.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

CHUNK_BYTES = 256 * 1024
BACK_BYTES = 32 * 2**20
"""How far behind the end of a file a start is looked for."""
RECENT_BYTES = 2**20
"""What is read of the end of a file in which no start is found there."""
MAX_LINE_BYTES = 4096
MAX_SIBLINGS = 4096


class Lines:
    """Pieces of text as blocks of whole lines. ``rest`` is the beginning of a line whose end did not come yet."""

    def __init__(self) -> None:
        self.rest = b""

    def add(self, data: bytes) -> Iterator[bytes]:
        """Up to the last line break; a line that does not end is given up piece by piece."""
        data = self.rest + data
        end = data.rfind(b"\n") + 1
        if not end and len(data) > MAX_LINE_BYTES:
            end = len(data)
        self.rest = data[end:]
        if end:
            yield data[:end]


class Tail:
    """One path; no file is kept open between two reads. ``starts``: marks of lines, from the newest of which on the
    file is read at first."""

    def __init__(self, path: Path, *, starts: tuple[bytes, ...]) -> None:
        self.path = path
        self._starts = starts
        self._identity: tuple[int, int] | None = None
        self._position = 0
        self._lines = Lines()

    def close(self) -> None:
        """Nothing is held between two reads."""

    def read(self) -> Iterator[bytes]:
        """Blocks of whole lines that are new. Raises: OSError."""
        with _opened(self.path) as (descriptor, status):
            identity = (status.st_dev, status.st_ino)
            if self._identity is None:
                self._position = _newest(descriptor, status.st_size, self._starts)
            elif self._identity != identity:
                yield from self._left_behind()
            self._identity = identity
            yield from self._appended(descriptor)

    def _left_behind(self) -> Iterator[bytes]:
        """What was written to the file before it was renamed, if it is still beside the new one."""
        renamed = _with_inode(self.path.parent, self._identity)
        if renamed is not None:
            with contextlib.suppress(OSError), _opened(renamed) as (descriptor, _):
                yield from self._appended(descriptor)
        if self._lines.rest:
            yield self._lines.rest
        self._position, self._lines.rest = 0, b""

    def _appended(self, descriptor: int) -> Iterator[bytes]:
        size = os.fstat(descriptor).st_size
        if size < self._position:
            self._position, self._lines.rest = 0, b""
        if size - self._position > BACK_BYTES:  # it grows faster than it is read
            self._position, self._lines.rest = size - BACK_BYTES, b""
        while self._position < size:
            data = os.pread(descriptor, min(CHUNK_BYTES, size - self._position), self._position)
            if not data:
                return
            self._position += len(data)
            yield from self._lines.add(data)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    """Descriptor and status of a regular file. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield descriptor, status
    finally:
        os.close(descriptor)


def _with_inode(folder: Path, identity: tuple[int, int] | None) -> Path | None:
    """The file of a folder that has this device and inode."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, MAX_SIBLINGS):
            if identity is not None and entry.inode() == identity[1]:
                status = entry.stat()
                return Path(entry.path) if (status.st_dev, status.st_ino) == identity else None
    return None


def _newest(descriptor: int, size: int, starts: tuple[bytes, ...]) -> int:
    """Where the line of the newest start begins; without one near the end, a bit before the end."""
    longest = max(map(len, starts), default=0)
    end, behind = size, b""
    while end > max(0, size - BACK_BYTES):
        begin = max(0, end - CHUNK_BYTES)
        data = os.pread(descriptor, end - begin, begin) + behind
        found = max((data.rfind(mark) for mark in starts), default=-1)
        if found >= 0:
            return begin + data.rfind(b"\n", 0, found) + 1
        behind = data[:longest]
        end = begin
    return 0 if size <= RECENT_BYTES else size - RECENT_BYTES


def marked_lines(block: bytes, marks: tuple[bytes, ...]) -> list[bytes]:
    """The lines of a block that hold one of the marks, in order, each at most ``MAX_LINE_BYTES`` long."""
    found: dict[int, bytes] = {}
    for mark in marks:
        at = block.find(mark)
        while at >= 0:
            start = block.rfind(b"\n", 0, at) + 1
            start = max(start, block.rfind(b"\r", start, at) + 1)  # behind a bar that moved
            end = block.find(b"\n", at)
            end = len(block) if end < 0 else end
            found[start] = block[start : min(end, start + MAX_LINE_BYTES)]
            at = block.find(mark, end)
    return [line for _, line in sorted(found.items())]
