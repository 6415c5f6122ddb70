"""How the program starts and ends where something is wrong with its streams, or a signal comes early."""

import io
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from agent import streams
from tests.program import finished, running

FULL = ("sh", "-c", 'exec "$0" -Im agent "$@" >/dev/full', sys.executable)


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--print-settings"), ("plan", "--help")])
def test_output_that_can_not_be_written_is_one_sentence(arguments: tuple[str, ...]) -> None:
    """A full disk ends a command with 1 and no traceback."""
    result = finished(*arguments, command=FULL)

    assert (result.returncode, result.stderr) == (
        1,
        "vramscope: can't write to standard output: No space left on device\n",
    )


@pytest.mark.parametrize("stdout", ["/dev/full", "&-"])
def test_the_agent_needs_no_standard_output(tmp_path: Path, stdout: str) -> None:
    """It answers all the same, and ends as always."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    settings = tmp_path / "s.yml"
    settings.write_text("discovery: false")
    shell = f'exec "$0" -Im agent run --config "$1" --listen "$2" >{stdout}'

    command = ["sh", "-c", shell, sys.executable, str(settings), address]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert answers(f"http://{address}/-/healthy")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)

    assert process.returncode == 0
    assert "Traceback" not in errors
    assert "stdout" not in errors


def answers(url: str) -> bool:
    """Whether a URL is served within some time."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            return httpx.get(url, trust_env=False).status_code in (200, 503)
        except httpx.TransportError:
            time.sleep(0.1)
    return False


def test_characters_that_a_terminal_does_not_have_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is no reason to fail."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))

    streams.prepare()
    sys.stdout.write("l\u00e4\u2603")

    assert written.getvalue() == rb"l\xe4\u2603"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_midst_of_imports_ends_it_quietly(number: signal.Signals) -> None:
    """Before anything is there to be stopped."""
    command = [sys.executable, "-X", "importtime", "-Im", "agent", "run", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.endswith("agent.errors\n"):
                break
        process.send_signal(number)
        rest = process.stderr.read()

    assert process.returncode == 128 + number
    assert "Traceback" not in rest


def test_a_reload_in_the_midst_of_imports_is_no_end(tmp_path: Path) -> None:
    """A service manager may ask for one as soon as the process is there: it waits for something to reload."""
    settings, errors = tmp_path / "s.yml", tmp_path / "errors"
    settings.write_text("discovery: false\nrecorder: {minutes: 0}")
    command = [sys.executable, "-X", "importtime", "-Im", "agent", "run", "--config", str(settings)]
    environment = {**os.environ, "STATE_DIRECTORY": str(tmp_path)}
    with (
        errors.open("wb") as log,
        subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"], env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        while process.poll() is None and "agent.errors\n" not in errors.read_text():
            time.sleep(0.001)
        process.send_signal(signal.SIGHUP)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on")
        process.send_signal(signal.SIGTERM)

    assert process.returncode == 0
    assert "settings reloaded" in errors.read_text()


def test_an_early_end_of_the_demo_leaves_no_folder(tmp_path: Path) -> None:
    """SIGTERM as soon as its temporary folder is there."""
    command = [sys.executable, "-m", "agent", "demo", "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not any(tmp_path.iterdir()):
            time.sleep(0.001)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)

    assert process.returncode in (0, 128 + signal.SIGTERM)
    assert "Traceback" not in errors
    assert not any(tmp_path.iterdir())


def test_a_stop_of_the_whole_group_says_nothing_of_the_child(tmp_path: Path) -> None:
    """A service manager sends its signal to every process of the service."""
    settings = tmp_path / "s.yml"
    settings.write_text("discovery: false")
    command = ("setsid", sys.executable, "-Im", "agent")
    with running("run", "--config", str(settings), "--listen", "127.0.0.1:0", command=command) as program:
        program.until(lambda: "build_info" in program.metrics())
        os.killpg(program.process.pid, signal.SIGTERM)
        assert program.end() == 0

    assert not [line for line in program.errors if "signal 15" in line]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_journal_that_is_followed_ends_with_the_agent(tmp_path: Path, number: int) -> None:
    """However it ends: the child of a killed agent sees that nobody reads it any more, as journalctl does."""
    program, started = tmp_path / "journalctl", tmp_path / "pid"
    program.write_text(
        f"#!/bin/sh\necho $$ > {started}.part\nmv {started}.part {started}\nwhile echo; do sleep 0.1; done\n"
    )
    program.chmod(0o755)
    settings = tmp_path / "s.yml"
    server = "{url: 'http://127.0.0.1:9', engine: vllm, log: 'journald:vllm'}"  # whose log is read before it answers
    settings.write_text(f"discovery: false\nservers: [{server}]")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    with running("run", "--config", str(settings), "--listen", "127.0.0.1:0", environment=environment) as agent:
        agent.until(started.exists)
        agent.process.send_signal(number)
        agent.process.wait(timeout=20)

    child = Path("/proc") / started.read_text().strip()
    deadline = time.monotonic() + 20
    while child.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
