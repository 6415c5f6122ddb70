"""Which alarms are on at a snapshot: the agent's own levels of risk, and alerts as they are shipped. Pure.

Of an alert, threshold, patience (``for``) and severity are those of ``alerts/source``; here is only how its condition
reads in a snapshot. An alert that compares rates, or that says an incident itself, is none of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from agent.memory.levels import LEVELS
from agent.rules import THEMES, Choices, rules, thresholds
from agent.snapshot import Device, Server, Snapshot

PREFIX = Choices().prefix
ALARMING = LEVELS.index("at_risk")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}

Numbers = Mapping[str, float]
Subjects = Iterator[str]  # servers by name and devices as ``gpu N``


class Rule(Struct, frozen=True, kw_only=True):
    """On after its condition held for ``patience_seconds``."""

    name: str
    patience_seconds: float
    on_for: Callable[[Snapshot, Numbers], Subjects]


def _servers(is_on: Callable[[Server, Numbers], bool]) -> Callable[[Snapshot, Numbers], Subjects]:
    return lambda snapshot, than: (server.name for server in snapshot.servers if is_on(server, than))


def _devices(is_on: Callable[[Device, Numbers], bool]) -> Callable[[Snapshot, Numbers], Subjects]:
    return lambda snapshot, than: (f"gpu {device.gpu}" for device in snapshot.devices if is_on(device, than))


def _pool_exhausts(server: Server, than: Numbers) -> bool:
    levels = server.risk.levels if server.risk is not None else {}
    known = [levels[reason] for reason in ("pool_exhaustion", "preemption_storm") if reason in levels]
    is_read = any(pool.used_ratio is not None for pool in server.pools)
    return is_read and any(LEVELS.index(level) >= than["pool_risk_level"] for level in known)


def _pool_is_small(server: Server, than: Numbers) -> bool:
    longest = server.max_request_tokens
    return longest is not None and any(
        pool.capacity_tokens is not None and pool.capacity_tokens < longest
        for pool in server.pools
        if pool.kind == "full"
    )


def _headroom_is_low(device: Device, than: Numbers) -> bool:
    return device.headroom_ratio is not None and device.headroom_ratio < than["headroom_ratio"]


def _no_room(device: Device, than: Numbers) -> bool:
    return any(
        room.peak_bytes is not None
        and room.room_bytes is not None
        and room.peak_evidence != "predicted"
        and room.peak_bytes > room.room_bytes
        for room in device.transients.values()
    )


def _left(device: Device) -> float | None:
    return device.forecast.exhaustion_seconds.likely if device.forecast is not None else None


def _creeps(device: Device, than: Numbers) -> bool:
    left = _left(device)
    return left is not None and than["device_exhaustion_seconds"] <= left < than["device_creep_seconds"]


def _runs_out(device: Device, than: Numbers) -> bool:
    left = _left(device)
    return left is not None and left < than["device_exhaustion_seconds"]


def _has_guests(device: Device, than: Numbers) -> bool:
    others = sum(part.bytes for part in device.components if part.component == "other_processes")
    return others > than["foreign_bytes"] and any(part.server for part in device.components)


def _residues(snapshot: Snapshot, than: Numbers) -> Subjects:
    sleeping = {server.name for server in snapshot.servers if server.state == "sleeping"}
    held = {
        part.server
        for device in snapshot.devices
        for part in device.components
        if part.component == "runtime" and part.bytes > than["sleep_residue_bytes"]
    }
    yield from sleeping & held


def _is_fragmented(server: Server, than: Numbers) -> bool:
    most = {"allocator": than["fragmentation_allocator_ratio"], "kv_block": than["fragmentation_block_ratio"]}
    return any(one.likely is not None and one.likely > most[one.kind] for one in server.fragmentation)


ALERTS: Mapping[str, Callable[[Snapshot, Numbers], Subjects]] = {
    "KvPoolExhausting": _servers(_pool_exhausts),
    "KvPoolBelowMaxModelLen": _servers(_pool_is_small),
    "HeadroomLow": _devices(_headroom_is_low),
    "NoTransientRoom": _devices(_no_room),
    "DeviceCreep": _devices(_creeps),
    "DeviceExhausting": _devices(_runs_out),
    "ForeignProcess": _devices(_has_guests),
    "SleepResidue": _residues,
    "FragmentationHigh": _servers(_is_fragmented),
    "DeviceLost": _devices(lambda device, than: device.health is not None and device.health.lost),
}


def shipped_rules() -> tuple[Rule, ...]:
    """The alerts above, as they are shipped."""
    patience = {
        rule["alert"]: float(rule["for"][:-1]) * _SECONDS[rule["for"][-1]]
        for theme in THEMES
        for group in rules(theme, Choices())
        for rule in group["rules"]
        if "alert" in rule
    }
    named = {PREFIX + name: on_for for name, on_for in ALERTS.items()}
    return tuple(Rule(name=name, patience_seconds=patience[name], on_for=on_for) for name, on_for in named.items())


def _risks(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Levels of the agent's own that are an alarm, with their subjects."""
    levels = [(f"gpu {one.gpu}", one.risk.levels) for one in snapshot.devices if one.risk is not None]
    levels += [(one.name, one.risk.levels) for one in snapshot.servers if one.risk is not None]
    for subject, of in levels:
        for reason, level in of.items():
            for reached in LEVELS[ALARMING : LEVELS.index(level) + 1]:
                yield f"risk {reached}: {reason}", subject


class Spell(Struct, kw_only=True):
    """A time in which a rule was on for a subject; wall clock. ``held_since``: since when its condition held."""

    rule: str
    subject: str
    held_since: float
    since: float
    until: float


class Alarms:
    """When which rule was on, over the ticks of a recording."""

    def __init__(self, *, most: int = 2000) -> None:
        self.spells: list[Spell] = []
        self._rules = shipped_rules()
        self._numbers = {name: one.value for name, one in thresholds().items()}
        self._held: dict[tuple[str, str], float] = {}
        self._on: dict[tuple[str, str], Spell] = {}
        self._most = most

    def take(self, snapshot: Snapshot) -> None:
        """Take one tick."""
        at = snapshot.time
        now = dict(self._patience(snapshot))
        self._held = {key: self._held.get(key, at) for key in now}
        due = [key for key, patience in now.items() if at - self._held[key] >= patience]
        self._on = {key: self._on.get(key) or self._begin(key, at) for key in due}
        for spell in self._on.values():
            spell.until = at

    def _patience(self, snapshot: Snapshot) -> Iterable[tuple[tuple[str, str], float]]:
        for rule in self._rules:
            for subject in rule.on_for(snapshot, self._numbers):
                yield (rule.name, subject), rule.patience_seconds
        for key in _risks(snapshot):
            yield key, 0.0

    def _begin(self, key: tuple[str, str], at: float) -> Spell:
        rule, subject = key
        spell = Spell(rule=rule, subject=subject, held_since=self._held[key], since=at, until=at)
        if len(self.spells) < self._most:
            self.spells.append(spell)
        return spell
