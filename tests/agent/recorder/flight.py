"""An agent's board with a recorder, on a clock that tests move; what it writes goes to disk when tests say so."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent.app import replayed_board
from agent.board import Published
from agent.recorder.player import Player
from agent.recorder.ring import Ring
from agent.recorder.tape import Tape
from agent.recorder.writer import Writer
from agent.watch import ServerFacts
from collectors.readings import FailureKind, LogReading
from tests.agent.test_board import GIB, Bench, facts, gpu

TIMES = re.compile(rb"(?m)^.*(?:recording_start|_timestamp_seconds).*\n")
HELD = 40 * GIB


class Flight(Bench):
    """One server on one GPU unless told otherwise; ``live`` is what was published, tick by tick."""

    def __init__(
        self,
        folder: Path,
        *servers: ServerFacts,
        run: str = "one",
        minutes: float = 30,
        max_bytes: int = 64 << 20,
        pace: float = 1.0,
    ) -> None:
        super().__init__(*(servers or (facts(),)), pace=pace)
        self.pace = pace
        self.folder = folder
        self.ring = Ring(folder, minutes=minutes, max_bytes=max_bytes)
        self.writer = Writer(self.ring, clock=self.clock, wall=self.wall, max_queued=500)
        self.live: list[Published] = []
        self.begin_recording(run)

    def wall(self) -> float:
        return self.clock.now + self.wall_offset

    def begin_recording(self, run: str) -> None:
        self.tape = Tape(
            self.writer,
            watches=self.watches,
            recalled=lambda: self.board.upgrades.records,
            run=run,
            simulated=False,
            pace=self.pace,
            clock=self.clock,
            wall=self.wall,
        )
        self.board.tape = self.tape
        self.board.took_pace(memory_interval_seconds=1.0, settle_seconds=20.0)
        self.board.settings_reloaded(success=True)

    def log(self, number: int = 0, **failures: int) -> None:
        counted: dict[FailureKind, int] = {**failures}  # type: ignore[dict-item] # kinds by keyword
        reading = LogReading(at=self.clock.now, engine="vllm", failures=counted)
        self.board.took_log(self.watches[number], self.outcome(reading))

    def lives(self, seconds: int = 1, *, held: int = HELD, **fields: Any) -> None:
        """Every second a pass over the GPU, an answer of the server and a tick; all of it on the disk."""
        for _ in range(seconds):
            self.node(gpu(self.clock, used={7: held}, free=80 * GIB - held - GIB))
            self.tree(7)
            self.server(**fields)
            self.ticks()
            self.writer.flush()

    def ticks(self) -> None:
        self.live.append(self.board.tick())
        self.clock.now += 1.0

    @property
    def bundles(self) -> list[Path]:
        return sorted(self.ring.bundles.glob("*")) if self.ring.bundles.is_dir() else []

    @property
    def file(self) -> Path:
        """All segments in one file."""
        path = self.folder / "whole.vramscope"
        path.write_bytes(b"".join(one.read_bytes() for one in self.ring.segments()))
        return path


def replayed(path: Path) -> list[Published]:
    return list(Player(path, replayed_board).ticks())


def pages(published: Iterable[Published]) -> list[bytes]:
    """What was exported, without the times of the wall clock."""
    return [TIMES.sub(b"", one.metrics) for one in published]
