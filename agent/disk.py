"""Why a file of the agent's own can't be read or written, as one sentence with what to do."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from collectors.errors import CollectorError

REASONS = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EROFS: "read_only",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.ENOENT: "absent",
    errno.ENOTDIR: "absent",
    errno.EISDIR: "not_ours",
    errno.EINVAL: "not_ours",
    errno.EFBIG: "not_ours",
    errno.ELOOP: "not_ours",
}
_REMEDIES = {
    "full": "; make room, it is then written by itself",
    "read_only": "; set state_directory to one that can be written",
    "permission": "; set state_directory to one that the agent's user can write",
    "absent": "; make the directory, or set state_directory to another",
    "not_ours": "; move {ours} away, no vramscope made them so",
}


@contextlib.contextmanager
def translated(path: Path, what: str, *, ours: str) -> Iterator[None]:
    """Raise what the system says of a path as a ``CollectorError``.

    ``what`` could not be done with it, ``ours`` names the files that are the agent's own.
    """
    try:
        yield
    except OSError as error:
        reason = REASONS.get(error.errno or 0, "failed")
        text = error.strerror or type(error).__name__
        raise CollectorError(
            reason, f"{path}: can't {what}: {text}{_REMEDIES.get(reason, '').format(ours=ours)}"
        ) from error
