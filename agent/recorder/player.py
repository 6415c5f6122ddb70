"""A recording through the same pipeline as live readings, as fast as one likes or at the pace of then."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from agent.board import Board, Published
from agent.recorder.chunks import RecordingError, RecordingFile
from agent.recorder.records import Frozen, Start
from agent.recorder.stage import Stage
from agent.snapshot import Recording
from agent.watch import ServerWatch

LONGEST_PAUSE_SECONDS = 5.0
"""Of a replay, where a recording has a gap."""


class MakeBoard(Protocol):
    """Makes the board of a run of an agent, as the wiring does."""

    def __call__(
        self,
        start: Start,
        watches: Sequence[ServerWatch],
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        recording: Recording,
    ) -> Board: ...


class Player:
    """Plays one file. ``frozen`` says what it was kept for, as far as it was played."""

    def __init__(self, path: Path, make_board: MakeBoard, *, speed: float | None = None) -> None:
        self.file = RecordingFile(path)
        self.frozen: list[Frozen] = []
        self._make_board = make_board
        self._speed = speed
        self._started_at: float | None = None
        self._stage = Stage(self._board_of)
        self._published = self._all()
        self._first: Published | None = None

    def _board_of(
        self, start: Start, watches: Sequence[ServerWatch], *, clock: Callable[[], float], wall: Callable[[], float]
    ) -> Board:
        if self._started_at is None:
            self._started_at = start.wall
        recording = Recording(file=self.file.name, started_at=self._started_at, speed=self._speed)
        return self._make_board(start, watches, clock=clock, wall=wall, recording=recording)

    def _all(self) -> Iterator[Published]:
        for record in self.file.records():
            if isinstance(record, Frozen):
                self.frozen.append(record)
                continue
            try:
                published = self._stage.take(record)
            except Exception as error:  # whatever a made-up reading breaks, it is the file's fault
                said = str(error) if type(error) is ValueError else type(error).__name__
                raise RecordingError(f"{self.file.path}: it has readings that make no sense: {said}") from error
            if published is not None:
                yield published

    def open(self) -> None:
        """Play up to the first tick, so that there is something to show.

        Raises:
            RecordingError: it can't be read, is no recording, or ends before.
        """
        if self._first is None:
            self._first = next(self._published, None)
        if self._first is None:
            raise RecordingError(f"{self.file.path}: it ends within its first second")

    def ticks(self) -> Iterator[Published]:
        """What every tick published, in order; once.

        Raises:
            RecordingError: see ``open``; or its readings make no sense.
        """
        self.open()
        if self._first is not None:
            yield self._first
        yield from self._published

    async def play(self) -> None:
        """Publish at the pace of the recording times ``speed``; gaps of more than some seconds are cut short.

        Raises:
            RecordingError: see ``ticks``.
        """
        due, last = time.monotonic(), None
        for published in self.ticks():
            now = published.snapshot.time
            due += 0.0 if last is None else min(max(0.0, now - last), LONGEST_PAUSE_SECONDS) / (self._speed or 1.0)
            last = now
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    # What readers ask: the board of the run that is being played

    @property
    def board(self) -> Board:
        """Raises: RecordingError, as ``open`` does."""
        self.open()
        if self._stage.board is None:
            raise RecordingError(f"{self.file.path}: it ends within its first second")
        return self._stage.board

    @property
    def metrics(self) -> bytes:
        return self.board.metrics

    @property
    def metrics_gzip(self) -> bytes:
        return self.board.metrics_gzip

    @property
    def snapshot_json(self) -> bytes:
        return self.board.snapshot_json

    def history_json(self) -> bytes:
        return self.board.history_json()

    def not_ready(self) -> str | None:
        return self.board.not_ready()

    def not_healthy(self) -> str | None:
        return self.board.not_healthy()
