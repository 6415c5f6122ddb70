"""A real terminal for a program: tmux, with a server of its own, looked at and typed into by a test."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.real import require


class Terminal:
    """One window with a program in it."""

    def __init__(self, program: str, folder: Path) -> None:
        self._tmux = [program, "-S", str(folder / "tmux"), "-f", os.devnull]

    def start(self, command: list[str], *, width: int, height: int, environment: Mapping[str, str]) -> None:
        """Run a command; the window says its exit code when it has ended."""
        sets = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
        clean = " ".join(f"-u {name}" for name in ("NO_COLOR", "COLORTERM", "COLUMNS", "LINES"))
        line = f"env {clean} {' '.join(sets)} {shlex.join(command)}; echo ended with $?; sleep 600"
        self._run("new-session", "-d", "-x", str(width), "-y", str(height), line)

    def screen(self, *, styles: bool = False) -> str:
        """What is on it, with escape sequences for its styles if wanted."""
        return self._run("capture-pane", "-p", *(["-e"] if styles else []))

    def type(self, *keys: str) -> None:
        """Press keys, by tmux' names."""
        self._run("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def until(self, *words: str, without: str | None = None, seconds: float = 60.0) -> str:
        """The screen once it has these words, and not ``without``; fails with the screen after the deadline."""
        deadline = time.monotonic() + seconds
        while True:
            text = self.screen()
            if all(word in text for word in words) and (without is None or without not in text):
                return text
            assert time.monotonic() < deadline, f"no {words} without {without!r} on the screen:\n{text}"
            time.sleep(0.1)

    def end(self) -> None:
        """End this server of tmux and what runs in it."""
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True, timeout=20)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def terminal(
    folder: Path, *arguments: str, width: int = 80, height: int = 24, environment: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """A terminal in which ``vramscope`` runs with these arguments, until the block ends."""
    one = Terminal(require("tmux"), folder)
    command = [sys.executable, "-Im", "agent", *arguments]
    whole = {"TERM": "tmux-256color", "LC_ALL": "C.UTF-8", **(environment or {})}
    try:
        one.start(command, width=width, height=height, environment=whole)
        yield one
    finally:
        one.end()
