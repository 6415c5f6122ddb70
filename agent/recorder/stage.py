"""The board of a recording: it is handed what the live one was, on the clocks of then."""

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from agent.board import Board, Published
from agent.memory.arguments import check
from agent.recorder.records import (
    Log,
    Model,
    Node,
    Paced,
    Probes,
    Processes,
    Recalled,
    Record,
    Reloaded,
    Server,
    Servers,
    Source,
    Start,
    Ticked,
    Watched,
)
from agent.recorder.writer import Status
from agent.snapshot import Reload
from agent.watch import ServerWatch
from collectors.readings import Fault
from collectors.registry import engine_of
from collectors.run import Outcome

MAX_SERVERS = 1024
MAX_DEVICES = 1024

T = TypeVar("T")


class MakeBoard(Protocol):
    """Makes the board of a run of an agent, as the wiring does; ``wall`` is seconds since the epoch."""

    def __call__(
        self, start: Start, watches: Sequence[ServerWatch], *, clock: Callable[[], float], wall: Callable[[], float]
    ) -> Board: ...


class Stage:
    """One run of an agent after another; ``board`` is that of the present one."""

    def __init__(self, make_board: MakeBoard) -> None:
        self.board: Board | None = None
        self._make_board = make_board
        self._run = ""
        self._watches: list[ServerWatch] = []
        self._at = 0.0
        self._offset = 0.0

    def take(self, record: Record) -> Published | None:
        """Hand one record on; what was published where it is a tick.

        Raises:
            ValueError: it can't be one of a recording that begins as it should; a record that is absurd raises others.
        """
        wall = record.wall if isinstance(record, Start | Ticked) else 0.0
        if not (math.isfinite(record.at) and math.isfinite(wall)):
            raise ValueError("a time that is none")
        if isinstance(record, Start):
            self._begin(record)
            return None
        if self.board is None:
            raise ValueError("it does not begin with the beginning of a segment")
        self._at = max(self._at, record.at)
        if isinstance(record, Ticked):
            self._offset = record.wall - record.at
            return self.board.tick()
        self._hand(self.board, record)
        return None

    def _begin(self, start: Start) -> None:
        """Go on with the same run; begin another with a board of its own."""
        if self.board is not None and self._run == start.run and not start.gap:
            return
        if self.board is None or self._run != start.run:
            self._run, self._at, self._offset, self._watches = start.run, start.at, start.wall - start.at, []
            self.board = self._make_board(start, self._watches, clock=self._clock, wall=self._wall)
        for record in sorted(start.state, key=lambda one: not isinstance(one, Servers)):
            self._hand(self.board, record)

    def _clock(self) -> float:
        return self._at

    def _wall(self) -> float:
        return self._at + self._offset

    def _hand(self, board: Board, record: Record) -> None:
        match record:
            case Node(reading=None, fault=Fault() as fault):
                board.lost_node(fault)
            case Node(reading=reading) if reading is not None:
                if len(reading.devices) > MAX_DEVICES:
                    raise ValueError(f"more than {MAX_DEVICES} devices")
                board.took_node(reading)
            case Servers():
                self._watch(record)
            case Processes():
                board.looked_for(record.name, record.fault, record.seconds)
            case Probes():
                board.took_probes(self._outcome(record.found, record), frozenset(record.asked))
            case Source(name="state"):
                board.took_state(record.fault, record.seconds)
            case Source():
                dropped, bundles = record.dropped, record.bundles
                board.took_recorder(
                    Status(fault=record.fault, seconds=record.seconds, dropped=dropped, bundles=bundles)
                )
            case Reloaded():
                board.took_reload(Reload(success=record.success, at=record.success_at))
            case Paced():
                board.took_pace(
                    memory_interval_seconds=record.memory,
                    settle_seconds=record.settle,
                    headroom_ratio=record.headroom,
                )
            case Recalled():
                board.recalled(record.servers)
            case Server() | Log() | Model():
                for watch in self._watches:
                    if watch.facts.name == record.name:
                        self._hand_to(board, watch, record)

    def _hand_to(self, board: Board, watch: ServerWatch, record: Server | Log | Model) -> None:
        match record:
            case Server():
                board.took_server(watch, self._outcome(record.reading, record))
            case Model():
                board.took_model(watch, self._outcome(record.files, record))
            case Log(lost=True):
                board.lost_log(watch)
            case Log():
                board.took_log(watch, self._outcome(record.reading, record))

    def _outcome(self, value: T | None, record: Server | Log | Model | Probes) -> Outcome[T]:
        return Outcome(value=value, fault=record.fault, duration_seconds=record.seconds, at=self._at)

    def _watch(self, servers: Servers) -> None:
        """Watch these servers as they were watched."""
        if len(servers.names) > MAX_SERVERS:
            raise ValueError(f"more than {MAX_SERVERS} servers")
        known = {watch.facts.name: watch for watch in self._watches}
        for watched in servers.changed:
            for arguments in filter(None, (watched.facts.given, watched.facts.command)):
                check(arguments)
            name, engine = watched.facts.name, engine_of(watched.facts.engine)
            watch = known.get(name)
            if watch is None or watched.anew:
                watch = ServerWatch(watched.facts, rank_of=engine.rank_of, is_one_process=engine.is_one_process)
                known[name] = watch
            _be(watch, watched)
        self._watches[:] = [known[name] for name in servers.names]


def _be(watch: ServerWatch, watched: Watched) -> None:
    """Let a server be known as it was."""
    watch.facts = watched.facts
    if watch.model is not None and not watched.has_model:
        watch.forget_model()
    watch.saw(watched.tree, hidden=watched.processes_hidden)
    watch.starts.restarts, watch.starts.awaited = watched.restarts, watched.awaited
    if watch.reading is not None and not watched.answers:
        watch.lost()
    watch.is_known = watched.is_known
    watch.is_unnamed = watched.is_unnamed
    watch.take_home(watched.home)
