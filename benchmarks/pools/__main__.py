"""``python -m benchmarks.pools [tuning|test]``: score the forecast on simulated pools.

``test`` (which no parameter was chosen by) writes ``docs/backtest.json``, from which docs/forecast.md has its tables.
``python -m benchmarks.pools write DIR`` leaves the test half as recordings, for ``vramscope backtest DIR``.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
from msgspec import Struct

from agent.backtest.recordings import SUFFIX, Recording, write_recording
from agent.backtest.report import HEADS, backtest, rows
from benchmarks.pools.episode import play
from benchmarks.pools.families import FAMILIES

FOLDER = Path(__file__).parent
RESULT = Path("docs/backtest.json")


class Split(Struct, frozen=True, kw_only=True):
    """Which seeds belong to which half; first and end of each, by steps of two."""

    tuning: tuple[int, int]
    test: tuple[int, int]


def half(name: str) -> Iterator[Recording]:
    """The recordings of a half, as ``split.json`` says."""
    split = msgspec.json.decode((FOLDER / "split.json").read_bytes(), type=Split)
    begin, end = split.tuning if name == "tuning" else split.test
    for family in FAMILIES:
        for seed in range(begin, end, 2):
            yield recording(family, seed)


def recording(family: str, seed: int) -> Recording:
    """One episode of a family."""
    name = f"{family}:{seed}"
    random = Random(name)
    episode = play(name, FAMILIES[family](random), random)
    return Recording(name=name, facts=episode.facts, signals=episode.signals)


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["write"] and len(arguments) == 2:
        folder = Path(arguments[1])
        folder.mkdir(parents=True, exist_ok=True)
        for one in half("test"):
            write_recording(folder / f"{one.name.replace(':', '-')}{SUFFIX}", one.name, one.facts, one.signals)
        return 0
    if arguments not in (["tuning"], ["test"]):
        print(__doc__, file=sys.stderr)
        return 2
    began = time.process_time()
    result = backtest(half(arguments[0]))
    for row in (HEADS, *rows(result)):
        print(" | ".join(row))
    for found in result.scores["forecast"].calibration:
        print(f"{found.horizon_seconds} s: Brier {found.brier:.4f} of {found.climatology:.4f}, {found.gain:.1%} below")
    print(f"{result.events} events, {result.hours:.0f} h, {time.process_time() - began:.0f} s of CPU")
    if arguments == ["test"]:
        RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
