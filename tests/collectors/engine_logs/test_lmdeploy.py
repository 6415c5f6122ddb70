"""LMDeploy's log: the bytes of TurboMind's pool, where it says them exactly."""

import pytest

from collectors.engine_logs.lmdeploy import FORMAT
from tests.collectors.engine_logs.lines import MIB, only, read

START = "2026-09-30 14:36:50,000 - lmdeploy - INFO - async_engine.py:130 - input backend=turbomind, backend_config=x"
BUDGET = "[TM][INFO][0930.14:37:15.641964][turbomind.cc:319] Object cache budget: 55634.70 MB from"


@pytest.mark.parametrize("rest", ["free 63488.19 MB and ratio 0.876", "cacheable 63488.19 MB and ratio 0.876"])
def test_the_pool_of_turbomind(rest: str) -> None:
    """Its MB are MiB; behind a bar that was drawn over and over in the same line."""
    bar = "".join(f"Loading: {number}%|{'#' * 100}\r" for number in range(100))

    reading = read(FORMAT, START, bar + f"{BUDGET} {rest}", "INFO:     Application startup complete.")

    assert (only(reading), reading.ready) == ({"kv_pool_bytes": round(55634.70 * MIB)}, True)


def test_blocks_in_whole_mib_are_no_size() -> None:
    """As before 0.15: 6 MB may be 6.9."""
    reading = read(
        FORMAT,
        START,
        "[TM][INFO] [BlockManager] block_size = 6 MB",
        "[TM][INFO] [BlockManager] max_block_count = 1274",
    )

    assert reading.ranks == ()
