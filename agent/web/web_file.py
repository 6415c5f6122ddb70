"""A web config that follows its files: a renewed certificate counts for the next connection, a broken one never."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import InputError
from agent.web.web_config import WebConfig, files_of, load_web_config

WATCH_SECONDS = 1.0

State = tuple[tuple[int, int, int] | None, ...]
"""What tells one state of some files from the next: inode, size, time of change in ns; None where there is no file."""

log = logging.getLogger("vramscope")


class WebFile:
    """The web config in force: ``config``, replaced as a whole. Without a path it is that of plain HTTP.

    ``problem`` says why the files as they are now are not in force; None when they are.

    Raises:
        InputError: the file, or one that it names, can't be used.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.config = WebConfig()
        self.problem: str | None = None
        self._path: Path | None = None
        self._files: tuple[Path, ...] = ()
        self._taken: State = ()
        self._changed: State = ()
        self._lock = threading.Lock()
        self.use(path)

    @property
    def scheme(self) -> str:
        """``https`` or ``http``."""
        return "http" if self.config.tls is None else "https"

    def use(self, path: Path | None) -> None:
        """Take a file, the same or another, as it is now. It blocks.

        Raises:
            InputError: it can't be used; what was in force still is.
        """
        with self._lock:
            files, state = _look(path)
            self.config = self._load(path) if path else WebConfig()
            self._path, self._files, self._taken, self.problem = path, files, state, None

    def refresh(self) -> None:
        """Take the files when they have changed and not changed again since the last call. It blocks.

        So the two files of a renewal are taken together. What can't be used is logged once and kept out.
        """
        with self._lock:
            before = self.problem
            try:
                self._follow()
            except InputError as error:
                self.problem = error.message
            except Exception as error:  # whatever it is, what protects stays
                self.problem = f"{self._path}: it can't be used ({type(error).__name__}, a bug of vramscope)"
            if self.problem not in (None, before):
                log.warning("web config: %s; what was in force before still is", self.problem)

    def _follow(self) -> None:
        state = _state(self._files)
        if self._path is None or state == self._taken:
            return
        if state != self._changed:
            self._changed = state
            return
        self._files, self._taken = _look(self._path)
        self.config, self.problem = self._load(self._path), None
        log.info("web config: %s or a file that it names has changed, and is in force", self._path)

    def _load(self, path: Path) -> WebConfig:
        """The config of a file; one that protects nothing never takes the place of one that does."""
        config = load_web_config(path)
        if self.config.protects and not config.protects:
            raise InputError(
                f"{path}: it has neither tls_server_config nor basic_auth_users, but what is in force has; "
                "to go without, take web_config_file out of the settings and reload"
            )
        return config

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Refresh once a second while inside, in a thread of its own: a disk that hangs stops nothing else."""
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(WATCH_SECONDS):
                self.refresh()

        threading.Thread(target=watch, daemon=True, name="vramscope-web-config").start()
        try:
            yield
        finally:
            stop.set()


def _look(path: Path | None) -> tuple[tuple[Path, ...], State]:
    """The files of a web config and their state; its own is taken before it is read, so that no change is missed."""
    if path is None:
        return (), ()
    own = _state((path,))
    files = files_of(path)
    return files, own + _state(files[1:])


def _state(files: tuple[Path, ...]) -> State:
    return tuple(_stamp(path) for path in files)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):  # not there, or no path at all
        return None
    return status.st_ino, status.st_size, status.st_ctime_ns
