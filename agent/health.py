"""The health of every source: success, duration, failures by reason; a change of state is logged once."""

import logging
from collections.abc import Collection, Mapping
from typing import Literal

from agent.snapshot import Collector
from collectors.readings import Fault

log = logging.getLogger("vramscope")

Of = Literal["node", "device", "server"]
"""What a source is of."""

REASONS: Mapping[tuple[str, Of], tuple[str, ...]] = {
    ("nvml", "node"): ("timeout", "no_driver", "no_library", "version_mismatch"),
    ("nvml", "device"): ("timeout", "gpu_lost", "gpu_not_found"),
    ("processes", "node"): ("no_proc",),
    ("processes", "device"): ("timeout", "hidden_processes"),
    ("processes", "server"): ("permission",),
    ("endpoint", "server"): ("refused", "timeout", "reset", "no_series", "http_404", "http_503"),
    ("model", "server"): ("malformed", "missing"),
    ("log", "server"): ("absent", "permission", "unreadable"),
    ("probe", "server"): ("stale", "silent"),
    ("state", "node"): ("full", "read_only"),
    ("recorder", "node"): ("full", "read_only", "dropped"),
}
"""Failure reasons that are exported as 0 from the start, so that a first failure is seen as an increase.

Those of the field and not all that there are: of these a GPU would have a hundred series.
"""


class _Source:
    def __init__(self, name: str, of: Of) -> None:
        self.fault: Fault | None = None
        self.tried_at: float | None = None
        self.succeeded_at: float | None = None
        self.succeeded_wall: float | None = None
        self.duration_seconds: float | None = None
        self.failures = dict.fromkeys(REASONS.get((name, of), ()), 0)
        self.said: set[str] = set()  # reasons logged since it last worked


class Health:
    """Remembers the last outcome of each source; ``records`` gives them for the snapshot."""

    def __init__(self) -> None:
        self._sources: dict[tuple[str, str], _Source] = {}

    def record(
        self,
        name: str,
        target: str,
        fault: Fault | None,
        *,
        now: float,
        wall: float,
        duration_seconds: float | None = None,
        of: Of | None = None,
    ) -> None:
        """Take one outcome: ``now`` is monotonic, ``wall`` seconds since the epoch, ``fault`` None is success.

        Without ``of`` a source that has a target is of a server, another of the node.
        """
        source = self._sources.get((name, target))
        if source is None:
            source = self._sources[name, target] = _Source(name, of or ("server" if target else "node"))
        self._log_change(name, target, source, fault)
        source.fault = fault
        source.tried_at = now
        source.duration_seconds = duration_seconds
        if fault is None:
            source.succeeded_at, source.succeeded_wall = now, wall
        else:
            source.failures[fault.reason] = source.failures.get(fault.reason, 0) + 1

    def forget(self, name: str, target: str) -> None:
        """Drop one source: there is nothing to read there any more."""
        self._sources.pop((name, target), None)

    def keep(self, targets: Collection[str]) -> None:
        """Drop every source of any other target: it is not there any more."""
        self._sources = {key: source for key, source in self._sources.items() if key[1] in targets}

    def fault(self, name: str, target: str) -> Fault | None:
        source = self._sources.get((name, target))
        return source.fault if source else None

    def records(self, now: float) -> tuple[Collector, ...]:
        """All sources, sorted; ages are of the last success."""
        return tuple(
            Collector(
                name=name,
                target=target,
                success=source.fault is None and source.tried_at is not None,
                age_seconds=None if source.succeeded_at is None else max(0.0, now - source.succeeded_at),
                error=source.fault.message if source.fault else None,
                duration_seconds=source.duration_seconds,
                last_success_at=source.succeeded_wall,
                failures=dict(source.failures),
            )
            for (name, target), source in sorted(self._sources.items())
        )

    @staticmethod
    def _log_change(name: str, target: str, source: _Source, fault: Fault | None) -> None:
        """One line for each reason of an outage, however often they alternate, and one for its end."""
        what = f"{name} {target}".strip()
        if fault is None:
            if source.said:
                log.info("%s works again", what)
            source.said.clear()
        elif fault.reason not in source.said:
            log.warning("%s failed: %s", what, fault.message)
            source.said.add(fault.reason)
