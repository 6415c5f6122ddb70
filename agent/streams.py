"""Standard output and error as the commands need them, whatever they were started with."""

import errno
import io
import os
import sys
from typing import TextIO

UNWRITABLE = (errno.EBADF, errno.EIO, errno.ENOSPC, errno.EPIPE, errno.EFBIG, errno.EDQUOT)
"""What a write to a stream that is full, closed or gone fails with."""


def prepare() -> None:
    """Escape characters that a stream's encoding lacks; one that was closed swallows what it gets."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _nowhere())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def give_up_stdout() -> None:
    """Forget what could not be written; the interpreter would try again at its end, and complain."""
    sys.stdout = _nowhere()


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - for the rest of the process
