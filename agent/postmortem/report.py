"""The records of a postmortem; as JSON ``vramscope.postmortem/1``. Times are wall clock, seconds since the epoch."""

from typing import Literal

from msgspec import Struct

from agent.recorder.incidents import Incident

SCHEMA: Literal["vramscope.postmortem/1"] = "vramscope.postmortem/1"


class Moved(Struct, frozen=True, kw_only=True):
    """Bytes of a component some minutes before the incident, at the last tick before it, and after it; None: absent."""

    component: str
    server: str = ""
    start_bytes: int | None
    before_bytes: int | None
    after_bytes: int | None

    @property
    def rise_bytes(self) -> int:
        """What it gained before the incident."""
        return (self.before_bytes or 0) - (self.start_bytes or 0)

    @property
    def change_bytes(self) -> int:
        """What it gained in the incident."""
        return (self.after_bytes or 0) - (self.before_bytes or 0)


class DeviceFinding(Struct, frozen=True, kw_only=True):
    """One device: its components, those that moved most first."""

    gpu: str
    uuid: str
    name: str | None
    total_bytes: int | None
    components: tuple[Moved, ...]


class PoolFinding(Struct, frozen=True, kw_only=True):
    """One KV pool: the share in use then, and the most that was in use up to the incident."""

    replica: str
    kind: str
    start_ratio: float | None
    before_ratio: float | None
    after_ratio: float | None
    highest_ratio: float | None


class Load(Struct, frozen=True, kw_only=True):
    running: int | None
    waiting: int | None


class ServerFinding(Struct, frozen=True, kw_only=True):
    """One server; ``load`` is that of the last tick before the incident."""

    name: str
    engine: str | None
    version: str | None
    model: str | None
    state: str
    load: Load
    pools: tuple[PoolFinding, ...]


class AlarmFinding(Struct, frozen=True, kw_only=True):
    """What a rule would have said. ``lead_seconds``: how long before the incident it came on; None: not before it.

    ``rule`` is an alert's name, or ``risk LEVEL: REASON``. ``from_start``: its condition held when the recording began,
    so it may have been on always.
    """

    rule: str
    subject: str
    since: float
    lead_seconds: float | None
    from_start: bool = False
    spells: int = 1


class Gap(Struct, frozen=True, kw_only=True):
    """A time of which there are no readings."""

    since: float
    until: float


class Lines(Struct, frozen=True, kw_only=True):
    """Numbers over time, thinned for a chart: values by name at ``times``; None is absent."""

    times: tuple[float, ...]
    values: dict[str, tuple[float | None, ...]]


class Charts(Struct, frozen=True, kw_only=True):
    """Bytes by device and component (``server component``), shares of pools and requests by server."""

    memory: dict[str, Lines]
    pools: dict[str, Lines]
    requests: dict[str, Lines]


class Postmortem(Struct, frozen=True, kw_only=True):
    """What happened. ``incident`` is None where nothing did; ``start``, ``before``, ``after``: the ticks compared."""

    schema: str = SCHEMA
    file: str
    version: str
    simulated: bool
    since: float
    until: float
    ticks: int
    kept_for: str | None
    incident: Incident | None
    start: float
    before: float
    after: float
    summary: str
    devices: tuple[DeviceFinding, ...]
    servers: tuple[ServerFinding, ...]
    events: tuple[Incident, ...]
    events_left_out: int
    alarms: tuple[AlarmFinding, ...]
    gaps: tuple[Gap, ...]
    problem: str | None
    charts: Charts
