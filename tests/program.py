"""The whole program as a person starts it, in a process of its own."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

START_SECONDS = 60.0
T = TypeVar("T")


class Program:
    """A running agent: its base URL, its process, and what it wrote."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.errors: list[str] = []
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        self.base = self._await_line("listening on ")
        self.client = httpx.Client(base_url=self.base, timeout=10, trust_env=False)

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path)

    def snapshot(self) -> dict[str, Any]:
        """The latest snapshot as JSON."""
        document: dict[str, Any] = self.get("/api/v1/snapshot").json()
        return document

    def metrics(self) -> str:
        return self.get("/metrics").text

    def until(self, look: Callable[[], T], *, seconds: float = 30.0) -> T:
        """What ``look`` gives once it is true; fails with the program's own words after the deadline."""
        deadline = time.monotonic() + seconds
        while not (found := self._looked(look)):
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {''.join(self.errors)}"
            assert time.monotonic() < deadline, f"not within {seconds} s; last: {found!r}; {''.join(self.errors)}"
            time.sleep(0.1)
        return found

    def _looked(self, look: Callable[[], T]) -> T:
        """What it gives; a program that has ended is said with its own words, not as a refused connection."""
        try:
            return look()
        except httpx.TransportError:
            time.sleep(0.5)
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {''.join(self.errors)}"
            raise

    def end(self) -> int:
        """Ask it to stop and give its exit code."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=20)
        self._reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return code

    def _await_line(self, start: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(start):
                return line.removeprefix(start).strip()
        self.process.wait(timeout=START_SECONDS)
        self._reader.join()
        raise AssertionError(f"ended with {self.process.returncode} before it listened: {''.join(self.errors)}")

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)


@contextmanager
def running(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = (sys.executable, "-Im", "agent"),
    folder: Path | None = None,
) -> Iterator[Program]:
    """Start the program with these arguments, wait until it listens, end it afterwards.

    Its state is thrown away then, unless its settings name a directory.
    """
    with tempfile.TemporaryDirectory(prefix="vramscope-state-") as state:
        process = subprocess.Popen(
            [*command, *arguments],
            env={**(environment or os.environ), "STATE_DIRECTORY": state},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        program = Program(process)
        try:
            yield program
        finally:
            program.end()


def finished(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = (sys.executable, "-Im", "agent"),
    folder: Path | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run the program to its end; it finds no state of others."""
    with tempfile.TemporaryDirectory(prefix="vramscope-state-") as state:
        return subprocess.run(
            [*command, *arguments],
            env={**(environment or os.environ), "STATE_DIRECTORY": state},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
