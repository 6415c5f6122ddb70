"""What the board hands to the recorder as it takes it, in order, and when a recording is to be kept.

On the event loop, so it only queues: encoding and writing are another thread's. A segment begins with all that a reader
of it alone has to know; what seldom changes is queued when it does.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from agent import __version__
from agent.memory.upgrades import Record as UpgradeRecord
from agent.recorder.incidents import REASONS, incidents
from agent.recorder.records import (
    RISK,
    Frozen,
    Log,
    Model,
    Paced,
    Reason,
    Recalled,
    Record,
    Reloaded,
    Server,
    Servers,
    Start,
    State,
    Ticked,
    Watched,
)
from agent.recorder.ring import SEGMENT_SECONDS
from agent.recorder.writer import Writer
from agent.snapshot import Snapshot
from agent.watch import ServerWatch
from collectors.engine_search import ENGINE_UNKNOWN

AFTERMATH_SECONDS = 15.0
"""From what a recording is kept for until it is kept, so that it shows what came of it."""
BETWEEN_SECONDS = 300.0
"""At least between two that are kept by themselves: one of a loop of restarts is like the next."""
WARNED_SECONDS = 1800.0
"""At least between two that are kept because the risk of one server or device turned critical."""
RETRY_SECONDS = 10.0

_Seen = tuple[ServerWatch, Watched]


class Tape:
    """``watches`` is the board's list, ``recalled`` what is known of runs before; ``run`` names this agent's run."""

    def __init__(
        self,
        writer: Writer,
        *,
        watches: Sequence[ServerWatch],
        recalled: Callable[[], Mapping[str, UpgradeRecord]],
        run: str,
        simulated: bool,
        pace: float,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.writer = writer
        self._watches = watches
        self._recalled = recalled
        self._run = run
        self._simulated = simulated
        self._pace = pace
        self._clock = clock
        self._wall = wall
        self._names: tuple[str, ...] = ()
        self._seen: dict[str, _Seen] = {}
        self._models: dict[str, Model] = {}
        self._logs: dict[str, Log] = {}
        self._last: dict[type[State], State] = {}
        self._begun_at: float | None = None
        self._dropping = False
        self._snapshot: Snapshot | None = None
        self._due: Frozen | None = None
        self._kept_at = {False: float("-inf"), True: float("-inf")}  # True: those of incidents, that wait for no risk
        self._warned: dict[str, float] = {}

    def take(self, record: Record) -> None:
        """Queue what the board takes, after what changed of its servers meanwhile."""
        if self._begun_at is None:
            self._begin(record.at)
        if not isinstance(record, Server | Log) or self._has_changed(record.name):
            self._look(record.at)
        self._put(record)
        if isinstance(record, Server):
            self._expect(
                record.name,
                answers=record.reading is not None,
                is_known=True,
                is_unnamed=record.fault is not None and record.fault.reason == ENGINE_UNKNOWN,
            )
        elif isinstance(record, Model):
            self._models[record.name] = record
            self._expect(record.name, has_model=record.files is not None)
        elif isinstance(record, Log):
            self._logs[record.name] = record
        elif isinstance(record, Reloaded | Paced):
            self._last[type(record)] = record

    def _expect(self, name: str, **known: bool) -> None:
        """What a reader of the record takes for known of a server; where it is otherwise, the next look tells."""
        if name not in self._seen:
            return  # it is watched no more
        watch, watched = self._seen[name]
        if any(getattr(watched, field) != value for field, value in known.items()):
            self._seen[name] = (watch, replace(watched, **known))

    def ticked(self, snapshot: Snapshot, at: float) -> None:
        """Take that the board has ticked, and keep a recording where it shows something to keep it for."""
        self.take(Ticked(at=at, wall=snapshot.time, web_current=snapshot.web_config_current))
        before, self._snapshot = self._snapshot, snapshot
        for incident in incidents(before, snapshot) if before is not None else ():
            if (reason := REASONS.get(incident.kind)) is not None:
                self.freeze(reason, incident.subject)
        if self._due is not None and at >= self._due.at + AFTERMATH_SECONDS and at >= self._free_at(self._due):
            self._keep(self._due)
        begun = self._begun_at if self._begun_at is not None else at
        pause = RETRY_SECONDS if self.writer.needs_start else SEGMENT_SECONDS
        if at >= begun + pause or self.writer.wants_start or (self._dropping and self.writer.has_room):
            self._begin(at)

    def freeze(self, reason: Reason, subject: str) -> None:
        """Keep a recording for this, once what comes of it is on it too; the first of several things names it.

        An incident is before a risk, which is kept for at most now and then of one subject.
        """
        at = self._clock()
        if not _is_incident(reason):
            if at < self._warned.get(subject, float("-inf")) + WARNED_SECONDS:
                return
            fresh = {name: since for name, since in self._warned.items() if at < since + WARNED_SECONDS}
            self._warned = fresh | {subject: at}
        if self._due is None or (_is_incident(reason) and not _is_incident(self._due.reason)):
            self._due = Frozen(at=at, wall=self._wall(), reason=reason, subject=subject)

    def _free_at(self, due: Frozen) -> float:
        """When the last that it waits for is long enough ago."""
        last = self._kept_at[True] if _is_incident(due.reason) else max(self._kept_at.values())
        return last + BETWEEN_SECONDS

    def close(self) -> None:
        """Keep what was to be kept, and write what is queued."""
        if self._due is not None:
            self._keep(self._due)
        self.writer.close()

    def _keep(self, due: Frozen) -> None:
        self._due, self._kept_at[_is_incident(due.reason)] = None, self._clock()
        self.writer.put(due, always=True)

    def _begin(self, at: float) -> None:
        """Queue the beginning of a segment."""
        gap = self._begun_at is not None and (self._dropping or self.writer.needs_start)
        self._begun_at = at
        self._dropping = False
        self._names, self._seen = self._look_at_all()
        seen = tuple(watched for _, watched in self._seen.values())
        state: list[State] = [
            *self._last.values(),
            Recalled(at=at, servers=dict(self._recalled())),
            Servers(at=at, names=self._names, changed=seen),
        ]
        for known in (self._models, self._logs):
            for name in [name for name in known if name not in self._seen]:
                del known[name]
            state += known.values()
        self._put(
            Start(
                at=at,
                wall=self._wall(),
                run=self._run,
                version=__version__,
                simulated=self._simulated,
                pace=self._pace,
                gap=gap,
                state=tuple(state),
            )
        )

    def _look_at_all(self) -> tuple[tuple[str, ...], dict[str, _Seen]]:
        seen = {watch.facts.name: (watch, _watched(watch)) for watch in self._watches}
        return tuple(seen), seen

    def _has_changed(self, name: str) -> bool:
        """Whether anything of one server did, or which servers there are: what frequent records are looked at for."""
        known = self._seen.get(name)
        if known is None or len(self._watches) != len(self._names):
            return True
        watch, watched = known
        return watch.facts.name != name or _differs(watch, watched) or watch not in self._watches

    def _look(self, at: float) -> None:
        """Queue what changed of the servers since the last look: seldom anything, so it is found out by identity."""
        changed = []
        for watch in self._watches:
            known = self._seen.get(watch.facts.name)
            if known is None or known[0] is not watch:
                watched = _watched(watch)
                changed.append(replace(watched, anew=True))
                self._seen[watch.facts.name] = (watch, watched)
            elif _differs(watch, known[1]):
                watched = _watched(watch)
                if not _same(watched, known[1]):
                    changed.append(watched)
                self._seen[watch.facts.name] = (watch, watched)
        if changed or len(self._watches) != len(self._names):
            self._names = tuple(watch.facts.name for watch in self._watches)
            self._seen = {name: self._seen[name] for name in self._names}
            self._put(Servers(at=at, names=self._names, changed=tuple(changed)))

    def _put(self, record: Record) -> None:
        """Queue it; once one did not fit, nothing until the writer has caught up, and then from the beginning."""
        if self._dropping or not self.writer.put(record):
            self._dropping = True
            self.writer.drop()


def _is_incident(reason: Reason) -> bool:
    return reason != RISK


def _watched(watch: ServerWatch) -> Watched:
    return Watched(
        facts=watch.facts,
        tree=watch.tree,
        processes_hidden=watch.processes_hidden,
        home=watch.home,
        answers=watch.reading is not None,
        has_model=watch.model is not None,
        restarts=watch.starts.restarts,
        awaited=watch.starts.awaited,
        is_known=watch.is_known,
        is_unnamed=watch.is_unnamed,
    )


def _differs(watch: ServerWatch, known: Watched) -> bool:
    """Whether anything is another object than before."""
    return (
        watch.facts is not known.facts
        or watch.tree is not known.tree
        or watch.home is not known.home
        or watch.processes_hidden != known.processes_hidden
        or watch.is_known != known.is_known
        or watch.starts.awaited != known.awaited
        or watch.is_unnamed != known.is_unnamed
        or (watch.reading is not None) != known.answers
        or (watch.model is not None) != known.has_model
    )


def _same(one: Watched, other: Watched) -> bool:
    """Whether they say the same, apart from when the process tree was looked at and how often it restarted."""
    if (one.tree is None) != (other.tree is None):
        return False
    tree = None if one.tree is None or other.tree is None else replace(one.tree, at=other.tree.at)
    return replace(one, tree=tree, restarts=other.restarts) == other
