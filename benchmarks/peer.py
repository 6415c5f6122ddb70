"""What the agent is held against: nvitop-exporter on the same double, and a static body behind its own server."""

import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

RELEASE = "nvitop-exporter==1.7.2"
FOLDER = Path(".cache/nvitop")
START_SECONDS = 60.0


def install() -> Path | None:
    """The exporter's program in an environment of its own; None where it can't be had (no network)."""
    program = FOLDER / "bin" / "nvitop-exporter"
    if not program.exists():
        venv.create(FOLDER, with_pip=True)
        pip = [
            str(FOLDER / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            RELEASE,
        ]
        if subprocess.run(pip, check=False, capture_output=True).returncode != 0:
            return None
    return program


@contextmanager
def nvitop_exporter(program: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Its URL and pid, at an interval of a second."""
    port = _free_port()
    command = [str(program), "--bind-address=127.0.0.1", f"--port={port}", "--interval=1.0"]
    process = subprocess.Popen(command, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await_port(port, process)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait(timeout=20)


@contextmanager
def static_body(body: Path) -> Iterator[tuple[str, int]]:
    """URL and pid of the agent's HTTP server with nothing behind it but this file."""
    command = [sys.executable, "-m", "benchmarks.static_body", str(body)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.terminate()
        process.communicate(timeout=20)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, "nvitop-exporter ended"
        assert time.monotonic() < deadline, "nvitop-exporter does not listen"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
