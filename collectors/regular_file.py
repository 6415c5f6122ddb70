"""Reading a file that somebody else may have named or put there: never a pipe, a device, or more than was asked for."""

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, *, max_bytes: int) -> bytes:
    """A whole regular file.

    Raises:
        OSError: not there, not permitted, not a path, not a regular file, or larger.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:
        raise OSError(errno.EINVAL, "no path, for it has a NUL") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it has more than {max_bytes} bytes", str(path))
    return content
