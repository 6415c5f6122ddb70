"""What has been seen of an agent and how old it is: what is not current is never passed off as current."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from agent.memory.units import duration_text
from agent.snapshot import Snapshot
from agent.top.changes import Changes, Key

STILL_SECONDS = 5.0


class Shown(Struct, frozen=True, kw_only=True):
    """What there is to show: the newest snapshot, and why it is not current, None while it is.

    ``changes``: tokens per second of each pool, as they were seen change here.
    """

    source: str
    snapshot: Snapshot | None
    problem: str | None
    changes: Mapping[Key, float] = {}


class Seen:
    """Takes snapshots and failures as they come; ``clock`` is monotonic seconds."""

    def __init__(self, source: str, *, clock: Callable[[], float]) -> None:
        self.source = source
        self._clock = clock
        self._began = clock()
        self._snapshot: Snapshot | None = None
        self._changed_at = self._began
        self._spacing = 1.0
        self._failure: str | None = None
        self._changes = Changes()

    def took(self, snapshot: Snapshot) -> None:
        """Take an answer; it counts as new where its time has moved."""
        before, self._failure = self._snapshot, None
        if before is not None and before.time == snapshot.time:
            return
        if before is not None:
            self._spacing = max(0.0, snapshot.time - before.time)
        self._snapshot, self._changed_at = snapshot, self._clock()
        self._changes.add(snapshot)

    def lost(self, sentence: str) -> None:
        """Take that it did not answer, and why."""
        self._failure = sentence

    @property
    def pause_seconds(self) -> float:
        """How long to wait before it is asked again: half of the rhythm in which its figures change."""
        return min(5.0, max(1.0, self._spacing / 2))

    def shown(self) -> Shown:
        """What there is to show now."""
        changes = self._changes.per_second()
        return Shown(source=self.source, snapshot=self._snapshot, problem=self._problem(), changes=changes)

    def _problem(self) -> str | None:
        if self._snapshot is None:
            return self._failure
        age = self._clock() - self._changed_at
        if self._failure is not None:
            return f"NOT CURRENT, {duration_text(age)} old: {self._failure}"
        still = self._snapshot.recording is None and age > max(STILL_SECONDS, 3 * min(self._spacing, 60.0))
        return f"NOT CURRENT: it answers, but its figures stand still for {duration_text(age)}" if still else None
