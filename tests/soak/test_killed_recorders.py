"""``kill -9`` at any moment while a recorder writes: what was flushed is read, and every recording kept is whole."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.recorder.chunks import RecordingFile
from agent.recorder.records import Frozen, Processes
from agent.recorder.ring import MAX_BUNDLES, bundles_in

LONGEST_SECONDS = 0.3


def kill_recorders(directory: Path, *, times: int, seed: int) -> tuple[int, int]:
    """Start and kill as often as that; how many were killed within a chunk, and how many within a bundle."""
    chance = random.Random(seed)
    torn = halves = 0
    for _ in range(times):
        command = [sys.executable, "-m", "tests.soak.recording", str(directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as recorder:
            assert recorder.stdout is not None
            recorder.stdout.readline()
            time.sleep(chance.uniform(0.0, LONGEST_SECONDS))
            recorder.kill()
            said = [line for line in recorder.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        ring, bundles = directory / "recorder" / "ring", directory / "recorder" / "bundles"
        torn += check_ring(ring, at_least=int(said[-1]) if said else 0)
        halves += (bundles / "new").exists()
        for path in bundles_in(bundles):
            check_bundle(path)
        assert len(bundles_in(bundles)) <= MAX_BUNDLES
    return torn, halves


def check_ring(ring: Path, *, at_least: int) -> bool:
    """All that was said to be on the disk is there, in order; whether the last chunk was cut."""
    newest = sorted(ring.glob("*"))[-1]
    file = RecordingFile(newest)
    numbers = [int(one.name) for one in file.records() if isinstance(one, Processes)] if newest.stat().st_size else []
    if newest.stat().st_size:
        assert file.problem is None
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert numbers[-1] >= at_least
    return newest.stat().st_size == 0


def check_bundle(path: Path) -> None:
    """It can be read to its end, which says why it was kept."""
    file = RecordingFile(path)
    *_, last = file.records()
    assert file.problem is None
    assert isinstance(last, Frozen)


def test_ten_recorders_are_killed_while_they_write(tmp_path: Path) -> None:
    """No recording that was kept is ever less than whole."""
    kill_recorders(tmp_path, times=10, seed=1)

    assert bundles_in(tmp_path / "recorder" / "bundles")


@pytest.mark.soak
def test_two_hundred_recorders_are_killed_while_they_write(tmp_path: Path) -> None:
    """As often as it takes to hit the making of a bundle."""
    torn, halves = kill_recorders(tmp_path, times=200, seed=2)

    print(f"of 200, {torn} were killed within the first chunk of a segment, {halves} within a bundle", flush=True)
    assert halves
