"""The flight recorder in the whole program: recorded, killed, kept by request, replayed and looked into."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from agent.app import replayed_board
from agent.recorder.chunks import RecordingFile
from agent.recorder.player import Player
from agent.recorder.records import Frozen, Record, Ticked
from tests.browser import chromium
from tests.collectors.replay import reply
from tests.node import LOG, Node, recorded_node
from tests.program import Program, finished, running
from tests.real import require

KEY = "sk-not-for-anybodys-eyes-1234567890"


class Recorded:
    """A node, the settings of an agent that records there, and where it does."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.state = node.folder / "state"
        key = node.folder / "key"
        key.write_text(KEY)
        text = node.config.read_text().replace("name: chat", f"name: chat, api_key_file: '{key}'")
        node.config.write_text(f"{text}state_directory: '{self.state}'\nintervals: {{settle: 0.6}}\n")
        self.arguments = ("run", "--config", str(node.config), "--listen", "127.0.0.1:0")

    def running(self) -> AbstractContextManager[Program]:
        return running(*self.arguments, environment=self.node.environment)

    @property
    def segments(self) -> list[Path]:
        return sorted((self.state / "recorder" / "ring").glob("*"))

    @property
    def bundles(self) -> list[Path]:
        return sorted((self.state / "recorder" / "bundles").glob("*.vramscope"))

    def records(self) -> list[Record]:
        return [one for path in self.segments for one in RecordingFile(path).records()]

    def ticks(self) -> int:
        return sum(isinstance(one, Ticked) for one in self.records()) if self.segments else 0


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    with recorded_node(tmp_path) as node:
        yield Recorded(node)


def reads(program: Program) -> bool:
    return 'component="cuda_graphs"' in program.metrics() and 'component="kv_used"' in program.metrics()


def postmortem(path: Path) -> dict[str, object]:
    done = finished("postmortem", str(path), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document: dict[str, object] = json.loads(done.stdout)
    return document


def without_times(text: str) -> list[str]:
    """Without what is of the program that serves it and its moments, not of the node."""
    own = re.compile(r"_timestamp_seconds|recorder_|recording_|^(# \w+ )?process_")
    return [line for line in text.splitlines() if not own.search(line)]


def test_a_recording_that_is_asked_for(recorded: Recorded) -> None:
    """`record` says the bundle's path; nobody but the agent's group may read it, and no key is in it."""
    with recorded.running() as program:
        program.until(lambda: reads(program))
        program.until(lambda: recorded.ticks() > 3)
        done = finished("record", "--state-directory", str(recorded.state), "--json")
        program.until(lambda: "vramscope_recorder_bundles_total 1" in program.metrics())
        assert 'collector_success{collector="recorder",target=""} 1' in program.metrics()

    assert (done.returncode, done.stderr) == (0, "")
    (path,) = recorded.bundles
    assert json.loads(done.stdout) == {"schema": "vramscope.record/1", "file": str(path)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    *records, last = RecordingFile(path).records()
    assert isinstance(last, Frozen)
    assert last.reason == "asked"
    assert "chat" in repr(records)
    assert KEY not in repr(records)


def test_an_agent_that_is_killed_leaves_its_last_second(recorded: Recorded) -> None:
    """`record` makes a bundle of what it left; another agent goes on behind it."""
    with recorded.running() as program:
        program.until(lambda: reads(program))
        program.until(lambda: recorded.ticks() > 3)
        ticks = recorded.ticks()
        program.process.send_signal(signal.SIGKILL)
        program.process.wait(20)
    path = Path(finished("record", "--config", str(recorded.node.config)).stdout.strip())
    with recorded.running() as program:
        program.until(lambda: len(recorded.segments) == 2)
        program.until(lambda: recorded.ticks() > ticks)

    document = postmortem(path)
    assert isinstance(document["ticks"], int)
    assert document["ticks"] >= ticks
    assert document["problem"] is None


def test_a_server_that_dies_is_kept_by_itself(recorded: Recorded) -> None:
    """Memory runs out by its log, the agent is stopped before the aftermath is over: the bundle is there."""
    with recorded.running() as program:
        program.until(lambda: reads(program))
        recorded.node.log.write_text(LOG)
        with recorded.node.log.open("a") as log:
            log.write("(EngineCore pid=2) ERROR 11-29 16:48:00 torch.OutOfMemoryError: CUDA out of memory. Tried to ")
            log.write("allocate 2.00 GiB. GPU 0 has a total capacity of 79.19 GiB of which 1.00 GiB is free.\n")
        program.until(lambda: 'oom_events_total{kind="cuda_oom",server="chat"} 1' in program.metrics())

    (path,) = recorded.bundles
    assert "-oom-chat" in path.name
    text = finished("postmortem", str(path)).stdout
    assert text.startswith("chat: its log says cuda oom.")


@pytest.fixture
def bundle(recorded: Recorded) -> tuple[Path, str]:
    """A whole recording, and what the agent exported at the end of it."""
    with recorded.running() as program:
        program.until(lambda: reads(program))
        recorded.node.replay.answers["/version"] = reply('{"version":"0.32.1"}', content_type="application/json")
        program.until(lambda: recorded.ticks() > 3)
        text = program.metrics()
    path = recorded.node.folder / "all.vramscope"
    path.write_bytes(b"".join(one.read_bytes() for one in recorded.segments))
    return path, text


def test_replayed_it_is_as_it_was(bundle: tuple[Path, str], tmp_path: Path) -> None:
    """Byte by byte; metrics, JSON, text and page say that it is a recording, and of when."""
    path, live = bundle
    pages = [without_times(one.metrics.decode()) for one in Player(path, replayed_board).ticks()]
    assert without_times(live) in pages

    arguments = ("replay", str(path), "--speed", "100", "--listen", "127.0.0.1:0")
    with running(*arguments) as program:
        program.until(lambda: without_times(program.metrics()) == pages[-1])
        assert re.search(r"^vramscope_recording_start_timestamp_seconds \d", program.metrics(), re.M)
        snapshot = program.snapshot()
        assert (snapshot["recording"]["file"], snapshot["recording"]["speed"]) == ("all.vramscope", 100.0)
        assert program.get("/-/ready").status_code == 200
        assert program.get("/api/v1/history").json()["pools"]
        past = program.get("/api/v1/history?recorded").json()
        assert all(one["points"] for one in past["pools"])
        assert [len(one["used"]) > 0 for one in past["devices"]] == [True] * len(program.snapshot()["devices"])
        text = finished("snapshot", "--url", program.base).stdout
        assert re.match(r"recording all.vramscope at \S+ \S+ UTC, not this host now", text)
        with chromium(require("chromium"), tmp_path) as browser:
            page = browser.open(program.base)
            page.wait_until("document.querySelector('[data-recording]')", seconds=30)
            said = page.evaluate("document.querySelector('[data-recording]').textContent")
            assert said.startswith("recording of ")
            page.wait_until("!document.getElementById('banner').hidden", seconds=30)
            banner = page.evaluate("document.getElementById('banner').textContent")
            page.screenshot(tmp_path / "replay.png")
            assert "The recording is over" in banner
            assert page.problems() == []


def test_postmortem_as_html(bundle: tuple[Path, str], tmp_path: Path) -> None:
    """One file; the terminal has one line, which says what was written and what it says."""
    path, _ = bundle
    out = tmp_path / "out.html"
    done = finished("postmortem", str(path), "--html", str(out))

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(f"wrote {out}: ")
    assert done.stderr.count("\n") == 1
    assert "<svg" in out.read_text()


def test_the_recorder_can_be_off(recorded: Recorded) -> None:
    """No file, no metric."""
    recorded.node.config.write_text(recorded.node.config.read_text() + "recorder: {minutes: 0}\n")
    with recorded.running() as program:
        program.until(lambda: reads(program))
        assert "recorder" not in program.metrics()

    assert not (recorded.state / "recorder").exists()


def test_a_folder_that_can_not_be_written_costs_the_recording_alone(recorded: Recorded) -> None:
    """It is said by its collector; all else goes on."""
    recorded.state.mkdir()
    (recorded.state / "recorder").write_text("a file")
    with recorded.running() as program:
        program.until(lambda: reads(program))
        program.until(lambda: 'collector_success{collector="recorder",target=""} 0' in program.metrics())
        program.until(lambda: 'failures_total{collector="recorder",reason="absent"' in program.metrics())
        assert 'collector_success{collector="state",target=""} 1' in program.metrics()


def test_a_disk_that_is_full_is_said(recorded: Recorded) -> None:
    """By a limit on the size of files, which the system tells as another fault than a full disk, with the same end."""
    code = "import resource, signal, os, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); os.execv(sys.executable, [sys.executable, '-Im', "
    code += "'agent', *sys.argv[1:]])"
    command = (sys.executable, "-Ic", code)
    with running(*recorded.arguments, environment=recorded.node.environment, command=command) as program:
        program.until(lambda: reads(program))
        program.until(lambda: 'collector_success{collector="recorder",target=""} 0' in program.metrics())
        program.until(lambda: not re.search(r"recorder_dropped_readings_total 0$", program.metrics(), re.M))


@pytest.mark.parametrize("command", ["replay", "postmortem"])
def test_what_is_no_recording_is_one_sentence(command: str, tmp_path: Path) -> None:
    """Exit code 2; the file's name and what is wrong with it."""
    path = tmp_path / "f"
    expected = {
        b"text": "no recording of vramscope",
        b"VRSC\x02" + bytes(12): "a recording of format 2, written by a newer vramscope; this one reads format 1",
    }
    for content, said in expected.items():
        path.write_bytes(content)
        done = finished(command, str(path))
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"vramscope: {path}: {said}\n")


def test_wrong_usage_is_one_sentence(tmp_path: Path) -> None:
    """Exit codes 1 and 2, and what to do."""
    nothing = finished("record", "--state-directory", str(tmp_path))
    both = finished("postmortem", "x", "--json", "--html", "y")

    assert (nothing.returncode, nothing.stderr.partition("; ")[0]) == (
        1,
        f"vramscope: {tmp_path}/recorder: nothing was recorded here",
    )
    assert (both.returncode, both.stderr) == (2, "vramscope: --json and --html exclude each other; give one\n")


def test_memory_of_a_hostile_file_is_bounded(tmp_path: Path) -> None:
    """A chunk that unpacks to far more than it says ends in a sentence, in less memory than that would take."""
    packed = zlib.compress(bytes(384 << 20), 1)
    sizes = len(packed).to_bytes(4, "little") + (2 << 20).to_bytes(4, "little")
    path = tmp_path / "bomb"
    path.write_bytes(b"VRSC\x01" + sizes + zlib.crc32(packed).to_bytes(4, "little") + packed)
    done = subprocess.run(
        ["sh", "-c", f"ulimit -v 400000; exec {sys.executable} -Im agent postmortem {path}"],
        capture_output=True,
        text=True,
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
        check=False,
    )

    said = f"vramscope: {path}: damaged at byte 0: a chunk is not as long as it says\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
