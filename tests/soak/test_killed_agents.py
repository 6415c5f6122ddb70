"""``kill -9`` at any moment: the state file is one of those that were written, whole, and the next agent reads it."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.state_file import StateFile
from tests.soak.restless import number_of

LONGEST_SECONDS = 0.25  # of writing, before it is killed: some ten states


def kill_agents(directory: Path, *, times: int, seed: int) -> tuple[int, int]:
    """Start and kill as often as that; the last state, and how many were killed within a write."""
    chance = random.Random(seed)
    known, torn = 0, 0
    for _ in range(times):
        command = [sys.executable, "-m", "tests.soak.restless", str(directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as agent:
            assert agent.stdout is not None
            assert int(agent.stdout.readline()) == known
            time.sleep(chance.uniform(0.0, LONGEST_SECONDS))
            agent.kill()
        left = {path.name for path in directory.iterdir()}
        assert left <= {"lock", "upgrades.json", "upgrades.json.new"}
        torn += "upgrades.json.new" in left
        after = number_of(StateFile(directory).look())
        assert after >= known
        known = after
    return known, torn


def test_ten_agents_are_killed_while_they_write(tmp_path: Path) -> None:
    """Each begins with what the one before had written last."""
    known, _ = kill_agents(tmp_path, times=10, seed=1)

    assert known > 10


@pytest.mark.soak
def test_two_hundred_agents_are_killed_while_they_write(tmp_path: Path) -> None:
    """As often as it takes to hit every step of a write."""
    known, torn = kill_agents(tmp_path, times=200, seed=2)

    print(f"{known} states, {torn} of 200 killed between two files", flush=True)
    assert known > 200
    assert torn
