"""The probe itself inside a program, and the agent's reader beside it: they agree on layout, place and identity."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import vramscope_probe

from collectors import probe_layout
from collectors.probe_files import ProbeFiles, ProbePass
from collectors.readings import ServerProcess
from tests.probe.programs import popen

ENGINE = """
import torch.cuda
torch.cuda.init(torch.cuda.statistics(allocated=5 << 30, active=6 << 30, reserved=9 << 30, peak=1 << 30))
vramscope_probe.start()
until(lambda: state() == 1)
print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def pid(tmp_path: Path) -> Iterator[int]:
    with popen(sys.executable, ENGINE, tmp_path / "probe") as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


def awaited(read: Callable[[], ProbePass], wanted: Callable[[ProbePass], bool]) -> ProbePass:
    deadline = time.monotonic() + 20
    while not wanted(found := read()):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def test_layouts_are_the_same() -> None:
    """Header, record, names and their order."""
    assert vramscope_probe.HEADER.format == probe_layout.HEADER.format
    assert vramscope_probe.RECORD.format == probe_layout.RECORD.format
    assert tuple(vramscope_probe.FIELDS) == probe_layout.FIELDS
    assert vramscope_probe.LAYOUT == probe_layout.LAYOUT


def test_a_program_with_a_probe_is_read(pid: int) -> None:
    """By its pid alone: the directory is that of its environment; its end takes the figures away."""
    reader = ProbeFiles()
    process = ServerProcess(pid=pid, started_at=1.0, title="python program.py")

    places = reader.find([process])
    found = awaited(lambda: reader.read(places), lambda one: bool(one.readings))

    (one,) = found.readings
    assert (one.pid, one.active_bytes, one.active_peak_bytes) == (pid, 6 << 30, 7 << 30)
    assert (one.reserved_bytes, one.private_pools_bytes, one.ooms) == (9 << 30, 0, 1)
    assert one.uuid_digits == "6f1c3d528a0b4c7e9d2100aa11bb22cc"
    assert time.monotonic() - one.at < 5
    os.kill(pid, 9)
    awaited(lambda: reader.read(places), lambda one: not one.readings)
