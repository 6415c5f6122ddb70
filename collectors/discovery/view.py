"""The files of a process under the names the process itself uses: through its root, its directory and its environment.

All of it may belong to another user, and lie behind another mount namespace: every read is bounded, of regular files
only, and symbolic links are followed inside the root of the process, as they are for the process.
"""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from collectors.regular_file import read_regular

MAX_ENVIRONMENT_BYTES = 256 * 1024
MAX_LINKS = 40
ROOT = Path("/")


class ProcessView:
    """One process. Methods raise ``PermissionError`` where we may not look and other ``OSError`` where nothing is."""

    def __init__(self, pid: int, *, proc: Path = Path("/proc")) -> None:
        self.pid = pid
        self._own = proc / "self"
        self._folder = proc / str(pid)

    def has_own(self, namespace: str) -> bool:
        """Whether its ``net``, ``mnt`` or ``pid`` namespace is another than ours."""
        theirs, ours = ((folder / "ns" / namespace).stat() for folder in (self._folder, self._own))
        return (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino)

    def path(self, name: str) -> Path:
        """Where we find what it calls ``name``; relative names start at its working directory."""
        if "\0" in name:
            raise OSError(errno.EINVAL, "a path with a NUL")
        if not name.startswith("/"):
            name = f"{(self._folder / 'cwd').readlink()}/{name}"
        return within(self._root(), name)

    def read(self, name: str, *, max_bytes: int) -> bytes:
        """The content of a file that it names."""
        return read_regular(self.path(name), max_bytes=max_bytes)

    def environment(self, names: Iterable[str]) -> dict[str, str]:
        """These variables as it was started with; whatever else is in there is not kept."""
        wanted = {os.fsencode(name): name for name in names}
        with (self._folder / "environ").open("rb") as file:
            pairs = [entry.partition(b"=") for entry in file.read(MAX_ENVIRONMENT_BYTES).split(b"\0")]
        return {wanted[name]: os.fsdecode(value) for name, _, value in pairs if name in wanted and value}

    def program(self) -> Path:
        """The executable it runs, by its own name for it."""
        return (self._folder / "exe").readlink()

    def owner(self) -> int:
        """Its user."""
        return self._folder.stat().st_uid

    def _root(self) -> Path:
        """Its root as we reach it: through the namespace it is in, unless that is ours."""
        link = (self._folder / "root").readlink()
        is_ours = not self.has_own("mnt") and link.is_absolute()
        return link if is_ours else self._folder / "root"


def within(root: Path, name: str) -> Path:
    """``name`` below ``root`` with its symbolic links resolved as if ``root`` were /; parts that do not exist stay."""
    if root == ROOT:
        return Path(name)
    done: list[str] = []
    waiting = [part for part in reversed(name.split("/")) if part not in ("", ".")]
    links = 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            del done[-1:]
            continue
        try:
            target = os.readlink(root.joinpath(*done, part))  # noqa: PTH115 - a Path would lose a trailing "/."
        except OSError:
            done.append(part)
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        done = [] if target.startswith("/") else done
        waiting += [part for part in reversed(target.split("/")) if part not in ("", ".")]
    return root.joinpath(*done)
