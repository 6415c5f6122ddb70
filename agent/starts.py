"""How often a server was started anew, by its processes and by what its endpoint says: whoever tells it first. Pure."""

from typing import Literal

from collectors.readings import ProcessTree, ServerProcess, ServerReading

SLACK_SECONDS = 2.0
Witness = Literal["endpoint", "processes"]


class Starts:
    """Each start counts once: ``awaited`` is who has yet to tell of the newest one, and is not counted when it does."""

    def __init__(self) -> None:
        self.restarts = 0
        self.awaited: Witness | None = None
        self._tree: ProcessTree | None = None  # the last that was seen
        self._reading: ServerReading | None = None  # likewise
        self._told_at = float("-inf")

    def saw(self, tree: ProcessTree | None) -> bool:
        """Take the processes of a server as they are seen; True when these tell of a start before its endpoint."""
        if tree is None or not tree.processes:
            return False
        before, self._tree = self._tree, tree
        if before is None or not _is_another(before, tree):
            if self.awaited == "processes" and tree.at > self._told_at:
                self.awaited = None  # it was started anew inside of the same process
            return False
        if self.awaited == "processes":
            self.awaited = None
            return False
        self.restarts += 1
        self.awaited = "endpoint"
        return True

    def told(self, reading: ServerReading) -> bool:
        """Take what its endpoint says; True when that is of another run than what it said before."""
        before, self._reading = self._reading, reading
        if self.awaited == "endpoint":
            self.awaited = None
            return True
        if before is None or not _restarted(before, reading):
            return False
        self.restarts += 1
        self.awaited, self._told_at = "processes", reading.at
        return True


def _is_another(before: ProcessTree, tree: ProcessTree) -> bool:
    """Whether the first process is another, and neither is one of the other's family: a server may lose a wrapper."""
    return not _has(before, tree.processes[0]) and not _has(tree, before.processes[0])


def _has(tree: ProcessTree, one: ServerProcess) -> bool:
    return any(
        other.pid == one.pid and abs(other.started_at - one.started_at) <= SLACK_SECONDS for other in tree.processes
    )


def _restarted(last: ServerReading, reading: ServerReading) -> bool:
    """Another start time, or, where the engine does not tell it, a counter that went back."""
    if last.started_at is not None and reading.started_at is not None:
        return abs(reading.started_at - last.started_at) > SLACK_SECONDS
    before, after = (_generated(reading) for reading in (last, reading))
    return before is not None and after is not None and after < before


def _generated(reading: ServerReading) -> int | None:
    counts = [replica.generation_tokens for replica in reading.replicas]
    return sum(count for count in counts if count is not None) if counts and None not in counts else None
