"""The file of a probe: always whole, only where it is its own to write, and swept when its process is gone."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import vramscope_probe

from tests.probe.conftest import Begin
from tests.probe.programs import run
from tests.probe.said import REPORTING, Said, awaited, decoded, files, of_pid, said

HOST = """
import torch.cuda
torch.cuda.init(torch.cuda.statistics(active=5, reserved=9))
vramscope_probe.start()
time.sleep(0.5)
print("its own work:", sum(range(1000)))
"""
WORK = "its own work: 499500\n"


def test_a_reader_sees_an_old_file_or_a_new_one(folder: Path) -> None:
    """Under a thousand replacements of two lengths, no read is torn, mixed or empty."""
    probe = vramscope_probe.Probe(str(folder))
    records: list[vramscope_probe.Record] = [(0, b"", {"reserved": 1 << 40}), (1, b"", {"reserved": 7})]
    written = threading.Event()

    def write() -> None:
        with vramscope_probe._folder(str(folder)) as handle:
            for number in range(1500):
                probe._write(handle, REPORTING, 0, records[: 1 + number % 2])
        written.set()

    writer = threading.Thread(target=write)
    writer.start()
    path = folder / probe.name
    while not path.exists():
        time.sleep(0.001)
    lengths, last = set(), -1
    while not written.is_set():
        found = decoded(path.read_bytes())
        lengths.add(len(found.devices))
        assert found.sequence >= last
        last = found.sequence
    writer.join()

    assert lengths == {1, 2}


def test_modes(folder: Path, begin: Begin) -> None:
    """The user's group may read, nobody else may do anything."""
    path = begin()
    awaited(path)

    assert (folder.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o750, 0o640)


def test_files_of_the_dead_are_swept(folder: Path, begin: Begin) -> None:
    """Of this pid namespace at once, of others when an hour old; whatever else lies there stays.

    A silent probe writes its file once: it says why as long as its process lives.
    """
    folder.mkdir(mode=0o750)
    dead = subprocess.Popen(["true"])
    dead.wait()
    gone = [of_pid(folder, dead.pid), folder / f".{of_pid(folder, dead.pid).name}", folder / "4026530001-7"]
    stay = [of_pid(folder, os.getppid()), folder / "4026530001-8", folder / "notes-1", folder / "segments"]
    for path in (*gone, *stay):
        path.write_bytes(b"old")
    hours_ago = time.time() - 2 * 3600
    for old in (gone[2], stay[0]):
        os.utime(old, (hours_ago, hours_ago))

    awaited(begin())

    assert [path.exists() for path in (*gone, *stay)] == [False] * 3 + [True] * 4


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A small tmpfs; the test is skipped where none may be mounted."""
    folder.mkdir(mode=0o750, exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"{options},mode=0750", "probe", str(folder)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("no tmpfs may be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_tmpfs(folder: Path, cuda: Any, begin: Begin) -> None:
    """The file that is there stays whole and gets old; no half one is left; the process goes on."""
    with mounted(folder, "size=16k"):
        cuda.init(cuda.statistics(reserved=9))
        path = begin()
        awaited(path, lambda one: one.state == REPORTING)
        _fill(folder / "filler")
        time.sleep(0.5)
        before = said(path)
        time.sleep(0.3)

        assert said(path) == before
        assert files(folder) == [path]
        assert run(sys.executable, HOST, folder) == WORK
        assert files(folder) == [path]


def test_no_room_for_all_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only a part could be written, or nothing, the old file stays and the new one goes."""
    probe = vramscope_probe.Probe(str(folder))
    write = os.write
    with vramscope_probe._folder(str(folder)) as handle, monkeypatch.context() as full:
        probe._write(handle, REPORTING, 0, [])
        full.setattr(os, "write", lambda handle, content: write(handle, content[:100]))
        with pytest.raises(OSError, match="no room"):
            probe._write(handle, REPORTING, 0, [])

    assert files(folder) == [folder / probe.name]
    assert said(folder / probe.name).sequence == 0


def test_a_directory_that_is_read_only(folder: Path) -> None:
    """Nothing is written, nothing is lost."""
    with mounted(folder, "ro,size=16k"):
        assert run(sys.executable, HOST, folder) == WORK
        assert files(folder) == []


def test_a_directory_that_cannot_be_made(folder: Path) -> None:
    """Its parent is missing, or a file."""
    assert run(sys.executable, HOST, folder, VRAMSCOPE_PROBE_DIRECTORY=str(folder / "a" / "b")) == WORK
    folder.write_text("a file")
    assert run(sys.executable, HOST, folder) == WORK
    assert folder.read_text() == "a file"


def test_a_directory_of_another_user(folder: Path) -> None:
    """Is not written to."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    folder.mkdir(mode=0o755)
    os.chown(folder, 65534, 65534)

    assert run(sys.executable, HOST, folder) == WORK
    assert files(folder) == []


@pytest.mark.parametrize("mode", [0o770, 0o757, 0o1777])
def test_a_directory_that_others_can_write_to(folder: Path, mode: int) -> None:
    """Could be made to hold anything: it is not used."""
    folder.mkdir()
    folder.chmod(mode)

    assert run(sys.executable, HOST, folder) == WORK
    assert files(folder) == []


@pytest.mark.parametrize("given", ["", "/", "/."])
def test_a_directory_that_is_a_link(folder: Path, given: str) -> None:
    """Is not followed, however it is spelled: what it leads to is not ours to write."""
    (folder.parent / "target").mkdir(mode=0o750)
    folder.symlink_to(folder.parent / "target")

    assert run(sys.executable, HOST, folder, VRAMSCOPE_PROBE_DIRECTORY=f"{folder}{given}") == WORK
    assert files(folder.parent / "target") == []


def test_a_link_in_its_place_is_replaced_and_not_followed(folder: Path, begin: Begin, tmp_path: Path) -> None:
    """Neither under the file's name nor under that of the new one."""
    folder.mkdir(mode=0o750)
    other = tmp_path / "other"
    other.write_text("not ours")
    for path in (of_pid(folder, os.getpid()), folder / f".{of_pid(folder, os.getpid()).name}"):
        path.symlink_to(other)

    path = begin()
    deadline = time.monotonic() + 20
    while path.is_symlink():
        assert time.monotonic() < deadline
        time.sleep(0.02)

    assert awaited(path).pid == os.getpid()
    assert other.read_text() == "not ours"


def test_a_directory_that_is_taken_away_is_made_again(folder: Path, cuda: Any, begin: Begin) -> None:
    """As cleaners of temporary files do."""
    cuda.init(cuda.statistics(reserved=9))
    path = begin()
    awaited(path, lambda one: one.state == REPORTING)
    folder.rename(folder.with_name("elsewhere"))

    assert awaited(path).state == REPORTING


def test_the_wall_clock_does_not_matter(folder: Path, cuda: Any, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set years ahead or back: the file goes on, its time is that of the clock that counts since boot."""
    cuda.init(cuda.statistics(reserved=9))
    path = begin()
    for wall in (4e9, 0.0):
        monkeypatch.setattr(time, "time", partial(float, wall))
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        sequence = awaited(path).sequence

        found = awaited_after(path, sequence + 1)

        assert before < found.written_ns <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def test_the_process_is_named_by_what_stands_in_proc(begin: Begin) -> None:
    """Namespace, pid and start, so that a pid used again is told apart."""
    found = awaited(begin())

    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    assert (found.pid, found.started_ticks) == (os.getpid(), int(stat[19]))
    assert found.namespace == Path("/proc/self/ns/pid").stat().st_ino


def awaited_after(path: Path, sequence: int) -> Said:
    return awaited(path, lambda one: one.sequence > sequence)


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)
