"""What the agent itself takes, as the kernel counts it."""

import os
import time
from pathlib import Path

import psutil
import pytest

from collectors.own_process import OwnProcess


def test_it_is_what_the_kernel_says_of_this_process() -> None:
    """Memory and start as psutil reads them, and CPU time that never falls behind it."""
    known = psutil.Process()
    before = sum(known.cpu_times()[:2])

    usage = OwnProcess().usage()

    assert usage.cpu_seconds >= before - 0.02  # psutil counts in ticks
    assert usage.resident_bytes == pytest.approx(known.memory_info().rss, rel=0.1)
    assert usage.started_at == pytest.approx(known.create_time(), abs=0.02)


def test_work_is_counted() -> None:
    """CPU time goes on with what is computed between two readings."""
    own = OwnProcess()
    before, begun = own.usage().cpu_seconds, time.process_time()
    while time.process_time() - begun < 0.02:
        pass

    assert own.usage().cpu_seconds - before >= 0.02


@pytest.mark.parametrize("statm", [None, "", "1 words"])
def test_what_is_not_told_is_absent(tmp_path: Path, statm: str | None) -> None:
    """Without a process file system, or with one that makes no sense, there is CPU time alone."""
    if statm is not None:
        (tmp_path / "self").mkdir()
        (tmp_path / "self" / "statm").write_text(statm)
        (tmp_path / "stat").write_text("btime 1700000000\n")
        (tmp_path / str(os.getpid())).mkdir()
        (tmp_path / str(os.getpid()) / "stat").write_text("1 (x) S")

    usage = OwnProcess(proc=tmp_path).usage()

    assert (usage.resident_bytes, usage.started_at) == (None, None)
    assert usage.cpu_seconds > 0
