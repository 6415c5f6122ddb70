"""Asking for a recording: of a running agent by a file, or from what one left behind."""

import os
import tempfile
import threading
from pathlib import Path

import pytest

from agent.errors import InputError, RunError
from agent.recorder.chunks import RecordingFile
from agent.recorder.command import keep_recording
from agent.recorder.records import Frozen
from agent.recorder.ring import REQUEST
from agent.settings import RecorderSettings
from tests.agent.recorder.flight import Flight
from tests.collectors.test_procfs import as_nobody

SIZES = RecorderSettings()


@pytest.fixture
def flight(tmp_path: Path) -> Flight:
    flight = Flight(tmp_path)
    flight.lives(3)
    return flight


def test_an_agent_that_runs_is_asked(flight: Flight) -> None:
    """Its writer sees the file; the answer is the path."""
    stop = threading.Event()

    def writes() -> None:
        while not stop.wait(0.02):
            flight.writer.flush()

    agent = threading.Thread(target=writes)
    agent.start()
    try:
        path = keep_recording(flight.folder, SIZES)
    finally:
        stop.set()
        agent.join()

    assert flight.bundles == [path]
    *_, last = RecordingFile(path).records()
    assert isinstance(last, Frozen)
    assert (last.reason, last.wall) == ("asked", flight.wall())


def test_an_agent_that_does_not_answer(flight: Flight) -> None:
    """It is stopped, or its disk hangs: the request is taken back."""
    with pytest.raises(RunError) as raised:
        keep_recording(flight.folder, SIZES, answer_seconds=0.1)

    assert raised.value.message == f"{flight.ring.folder}: the agent that records here did not answer within 0.1 s"
    assert not (flight.ring.folder / REQUEST).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up privileges")
def test_a_folder_that_may_not_be_looked_at() -> None:
    """It is one sentence, wherever in the path the permission ends, and not an empty folder."""

    def asked() -> str:
        with pytest.raises(InputError) as raised:
            keep_recording(Path(name), SIZES)
        return raised.value.message

    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "recorder" / "ring").mkdir(parents=True)
        outside = as_nobody(asked)
        Path(name).chmod(0o755)
        (Path(name) / "recorder").chmod(0o700)
        inside = as_nobody(asked)

    assert outside == inside
    assert outside.startswith(f"{name}/recorder: can't look for what was recorded here: Permission denied; run it as ")


def test_where_no_agent_runs(flight: Flight) -> None:
    """Everything that one left is kept, and the folder is free again."""
    flight.ring.close()
    path = keep_recording(flight.folder, SIZES, wall=lambda: 2e9)
    again = keep_recording(flight.folder, SIZES, wall=lambda: 2e9)

    *records, last = RecordingFile(path).records()
    assert records == list(RecordingFile(flight.file).records())
    assert last == Frozen(at=0.0, wall=2e9, reason="asked")
    assert again != path


def test_where_nothing_was_recorded(tmp_path: Path) -> None:
    """One sentence, and nothing is made there."""
    with pytest.raises(RunError, match="nothing was recorded here; name the agent's directory"):
        keep_recording(tmp_path / "none", SIZES)

    assert not (tmp_path / "none").exists()


def test_where_nobody_may_write(flight: Flight) -> None:
    """One sentence of the system's; here a file is where the bundles should be."""
    flight.ring.close()
    (flight.ring.folder / "bundles").write_text("a file")
    with pytest.raises(RunError, match="can't keep a recording"):
        keep_recording(flight.folder, SIZES)
