"""A directory that belongs to one agent at a time, by a lock that ends with its process."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from collectors.errors import Refused

FILE_MODE, FOLDER_MODE = 0o640, 0o750


class FolderLock:
    """The file ``lock`` in a directory that is made where it is missing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock: int | None = None

    def hold(self) -> None:
        """Take the lock, anew where the directory was taken away meanwhile.

        Raises:
            Refused: another agent has it.
            OSError: the directory can't be made or written.
        """
        try:
            self._directory.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error
        path = self._directory / "lock"
        if self._lock is not None:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._lock), path.stat()):
                    return
            self.release()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            message = f"{self._directory}: another agent has this directory; set state_directory to one of its own"
            raise Refused("locked", message) from error
        self._lock = descriptor

    def release(self) -> None:
        """Let another agent have the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sync_folder(directory: Path) -> None:
    """Let the names in a directory be on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
