"""The writer: nobody waits for it, and what the disk does is said and harmless."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.recorder.chunks import RecordingFile
from agent.recorder.records import Frozen, Processes, Record, Start
from agent.recorder.ring import REQUEST, Ring, write_all
from agent.recorder.writer import Writer
from collectors.readings import Fault

START = Start(at=0.0, wall=1e9, run="r", version="0", simulated=False, state=())


def record(number: int) -> Processes:
    return Processes(at=float(number), name=str(number), seconds=0.0)


def writer_of(
    folder: Path, write: Callable[[int, bytes], None] | None = None, *, max_queued: int = 50, max_bytes: int = 1 << 20
) -> Writer:
    ring = Ring(folder, minutes=30, max_bytes=max_bytes, write=write)
    return Writer(ring, clock=lambda: 7.0, wall=lambda: 1e9, max_queued=max_queued, flush_seconds=0.01)


def on_disk(folder: Path) -> list[Record]:
    return [one for path in Ring(folder, minutes=1, max_bytes=9).segments() for one in RecordingFile(path).records()]


class Disk:
    """A disk that fails while ``error`` is set, and hangs while ``hangs``."""

    def __init__(self) -> None:
        self.error: int | None = None
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.reached = threading.Event()

    def write(self, descriptor: int, content: bytes) -> None:
        self.reached.set()
        assert self.goes_on.wait(20)
        if self.error is not None:
            os.write(descriptor, content[:3])
            raise OSError(self.error, os.strerror(self.error))
        write_all(descriptor, content)


def test_what_is_put_is_written(tmp_path: Path) -> None:
    """By its thread, which writes the rest when it is closed."""
    writer = writer_of(tmp_path)
    writer.start()
    for one in (START, record(1), record(2)):
        assert writer.put(one)
    writer.close()

    assert on_disk(tmp_path) == [START, record(1), record(2)]
    assert (writer.status.fault, writer.status.dropped) == (None, 0)


def test_a_disk_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """Putting goes on without waiting, up to the bound; what is refused is counted and said, until it has caught up."""
    disk = Disk()
    disk.goes_on.clear()
    writer = writer_of(tmp_path, disk.write)
    writer.start()
    writer.put(START)
    assert disk.reached.wait(20)
    taken = [writer.put(record(number)) for number in range(80)]

    assert taken == [True] * 50 + [False] * 30
    assert not writer.has_room
    for _ in range(30):
        writer.drop()
    disk.goes_on.set()
    writer.close()
    assert on_disk(tmp_path) == [START, *map(record, range(50))]
    assert writer.status.dropped == 30
    assert writer.has_room


def test_dropped_readings_are_a_fault_of_that_moment(tmp_path: Path) -> None:
    """Said once they are counted, and over with the next flush without."""
    writer = writer_of(tmp_path)
    writer.put(START)
    writer.flush()
    writer.drop()
    writer.flush()
    fault = writer.status.fault
    writer.flush()

    assert fault is not None
    assert (fault.reason, writer.status.fault) == ("dropped", None)


FAULTS = {
    errno.ENOSPC: ("full", "No space left on device; make room, it is then written by itself"),
    errno.EROFS: ("read_only", "Read-only file system; set state_directory to one that can be written"),
    errno.EACCES: ("permission", "Permission denied; set state_directory to one that the agent's user can write"),
    errno.EIO: ("failed", "Input/output error"),
}


@pytest.mark.parametrize("error", FAULTS, ids=errno.errorcode.get)
def test_a_disk_that_fails_is_said_and_harmless(error: int, tmp_path: Path) -> None:
    """Until a beginning gets through: what comes before is no use to a reader, and is counted."""
    disk = Disk()
    writer = writer_of(tmp_path, disk.write)
    for one in (START, record(1)):
        writer.put(one)
    writer.flush()
    disk.error = error
    writer.put(record(2))
    writer.flush()
    faults, waits = [writer.status.fault], [writer.needs_start]
    disk.error = None
    for more in ((record(3),), (START, record(4))):
        for one in more:
            writer.put(one)
        writer.flush()
        faults.append(writer.status.fault)
        waits.append(writer.needs_start)

    reason, said = FAULTS[error]
    fault = Fault(reason=reason, message=f"{tmp_path}/recorder: can't record in it: {said}")
    assert faults == [fault, fault, None]
    assert waits == [True, True, False]
    assert on_disk(tmp_path) == [START, record(1), START, record(4)]
    assert writer.status.dropped == 2


def test_a_folder_that_is_taken_away_is_made_again(tmp_path: Path) -> None:
    """With the next beginning; one whose place is a file is said as that."""
    folder = tmp_path / "state"
    writer = writer_of(folder)
    writer.put(START)
    writer.flush()
    (folder / "recorder").rename(tmp_path / "away")
    writer.put(START)
    writer.flush()
    assert on_disk(folder) == [START]
    (folder / "recorder").rename(tmp_path / "away too")
    (folder / "recorder").write_text("a file")
    writer.put(START)
    writer.flush()

    assert writer.status.fault is not None
    assert writer.status.fault.reason == "absent"


def test_what_is_asked_for_by_a_file(tmp_path: Path) -> None:
    """A bundle, and the file is gone; also when it could not be made."""
    disk = Disk()
    writer = writer_of(tmp_path, disk.write)
    for one in (START, record(1)):
        writer.put(one)
    (tmp_path / "recorder").mkdir()
    request = tmp_path / "recorder" / REQUEST
    request.touch()
    writer.flush()

    (bundle,) = (tmp_path / "recorder" / "bundles").iterdir()
    assert not request.exists()
    kept = list(RecordingFile(bundle).records())
    assert kept == [START, record(1), Frozen(at=7.0, wall=1e9, reason="asked")]
    disk.error = errno.ENOSPC
    request.touch()
    writer.flush()
    assert not request.exists()
    assert len(list(bundle.parent.iterdir())) == 1
    assert writer.status.fault is not None


@pytest.mark.parametrize(
    "unfit", [Processes(at=2.0, name="\udc80", seconds=0.0), Processes(at=1 << 70, name="x", seconds=0.0)]
)
def test_a_record_that_can_not_be_written_costs_itself(unfit: Processes, tmp_path: Path) -> None:
    """The others of that second are there; it is counted, and the disk is not blamed."""
    writer = writer_of(tmp_path)
    for one in (START, record(1), unfit, record(3)):
        writer.put(one)
    writer.flush()

    assert on_disk(tmp_path) == [START, record(1), record(3)]
    fault = writer.status.fault
    assert (writer.status.dropped, fault is not None and "what its format can't" in fault.message) == (1, True)


def test_a_bug_is_said_and_the_thread_lives(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it is, the next flush is tried."""

    def broken(descriptor: int, content: bytes) -> None:
        raise ZeroDivisionError

    writer = writer_of(tmp_path, broken)
    writer.put(START)
    writer.flush()

    assert writer.status.fault is not None
    assert writer.status.fault.reason == "bug"
    assert "please report it" in caplog.text
