"""The state file: what is remembered of servers' runs over restarts of the agent. It blocks; threads call it.

A write goes to a second file that then takes the first one's place, both synced to the disk, so whatever ends the agent
at whatever moment leaves the old or the new state, whole. The directory belongs to one agent at a time, by a lock that
ends with its process. What is in the file that can't be used is never written over.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from agent.disk import translated
from agent.folder_lock import FILE_MODE, FolderLock, sync_folder
from agent.memory.upgrades import Record
from agent.upgrades import MAX_SERVERS
from collectors.errors import Unreadable
from collectors.regular_file import read_regular

SCHEMA = "vramscope.upgrades/"
VERSION = 1
MAX_BYTES = 32 << 20
MAX_ASIDE = 8
OURS = "upgrades.json and lock"


class _Tag(Struct, frozen=True, kw_only=True):
    schema: str


class _Document(Struct, frozen=True, kw_only=True):
    schema: str
    servers: Annotated[dict[str, Record], Meta(max_length=MAX_SERVERS)]


class StateFile:
    """``upgrades.json`` in a directory that is made where it is missing. ``write`` puts bytes into an open file."""

    def __init__(self, directory: Path, *, write: Callable[[int, bytes], None] | None = None) -> None:
        self._directory = directory
        self._write_all = write or _write_all
        self._lock = FolderLock(directory)

    @property
    def path(self) -> Path:
        return self._directory / "upgrades.json"

    def look(self) -> dict[str, Record]:
        """What is in the file, for one who is not its owner: no lock is taken and nothing is written.

        Raises:
            CollectorError: it can't be read or used; one sentence.
        """
        with translated(self.path, "read it", ours=OURS):
            content = self._content()
        return {} if content is None else self._decoded(content)

    def read(self) -> dict[str, Record]:
        """What is in the file, from now on this agent's own; what can't be used is kept aside under another name.

        Raises:
            CollectorError: it can't be read or used, or another agent has it; one sentence.
        """
        with translated(self.path, "read it", ours=OURS):
            self._lock.hold()
            content = self._content()
        try:
            return {} if content is None else self._decoded(content)
        except Unreadable as error:
            if error.reason != "malformed":
                raise
            with translated(self.path, "keep it aside", ours=OURS):
                aside = self._put_aside()
            raise Unreadable("malformed", f"{error}; it is kept as {aside}, and earlier runs are not known") from error

    def write(self, servers: Mapping[str, Record]) -> None:
        """Let this be what the file says.

        Raises:
            CollectorError: it can't be written; the file is as it was.
        """
        content = msgspec.json.format(
            msgspec.json.encode(_Document(schema=f"{SCHEMA}{VERSION}", servers=dict(servers))), indent=1
        )
        with translated(self.path, "write it", ours=OURS):
            self._lock.hold()
            self._replace(content + b"\n")

    def close(self) -> None:
        """Let another agent have the directory."""
        self._lock.release()

    def _content(self) -> bytes | None:
        try:
            return read_regular(self.path, max_bytes=MAX_BYTES)
        except FileNotFoundError:
            return None

    def _decoded(self, content: bytes) -> dict[str, Record]:
        try:
            schema = msgspec.json.decode(content, type=_Tag).schema
            version = schema.removeprefix(SCHEMA)
            if schema.startswith(SCHEMA) and version.isascii() and version.isdigit() and int(version[:9]) > VERSION:
                newer = f"{SCHEMA}{version[:9]}"
                message = f"{self.path}: written by a newer vramscope ({newer}); use that, or move the file away"
                raise Unreadable("newer_schema", message)
            if schema != f"{SCHEMA}{VERSION}":
                raise Unreadable("malformed", f"{self.path}: expected schema {SCHEMA}{VERSION}, got another")
            return msgspec.json.decode(content, type=_Document).servers
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unreadable("malformed", f"{self.path}: not a state that vramscope wrote") from error

    def _put_aside(self) -> Path:
        """Rename the file; never over another that was put aside before."""
        for number in range(1, MAX_ASIDE + 1):
            aside = self.path.with_name(f"upgrades.json.unusable-{number}")
            if not os.path.lexists(aside):
                self.path.rename(aside)
                return aside
        raise OSError(errno.EEXIST, f"{MAX_ASIDE} files were kept aside before; remove them")

    def _replace(self, content: bytes) -> None:
        new = self.path.with_name("upgrades.json.new")
        with contextlib.suppress(FileNotFoundError):
            new.unlink()  # of one that was killed
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(new, flags, FILE_MODE)
            try:
                os.fchmod(descriptor, FILE_MODE)
                self._write_all(descriptor, content)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            new.rename(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        sync_folder(self._directory)


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
