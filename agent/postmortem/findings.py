"""From the ticks of a recording to what happened, in one pass; memory grows by 8 bytes a number and tick. Pure."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from agent import __version__
from agent.memory.units import duration_text, size_text
from agent.postmortem.alarms import Alarms, Spell
from agent.postmortem.columns import Columns
from agent.postmortem.report import (
    AlarmFinding,
    Charts,
    DeviceFinding,
    Gap,
    Lines,
    Load,
    Moved,
    PoolFinding,
    Postmortem,
    ServerFinding,
)
from agent.recorder.incidents import REASONS, Incident, Kind, incidents
from agent.recorder.records import Frozen
from agent.snapshot import Device, Server, Snapshot

START_SECONDS = 300.0
AFTER_SECONDS = 60.0
GAP_SECONDS = 5.0
SAME_SECONDS = 60.0
"""Preemptions and refusals of a server within so long are one event, with their number."""
FRESH_SECONDS = 60.0
"""An alarm that ended at most so long before the incident was on for it."""
MOST_EVENTS = 1000
MOST_TICKS = 500_000
CHART_POINTS = 240
GRAVEST: tuple[Kind, ...] = ("oom", "host_oom_kill", "died", "restarted", "refused", "preempted", "hardware", "blind")

_Part = tuple[str, str, str]  # uuid, server, component
_PoolKey = tuple[str, str, str]  # server, replica, kind


class Findings:
    """Takes every tick, then ``report`` says what happened."""

    def __init__(self) -> None:
        self._memory: Columns[_Part] = Columns()
        self._pools: Columns[_PoolKey] = Columns()
        self._requests: Columns[tuple[str, str]] = Columns()
        self._alarms = Alarms()
        self._events: list[Incident] = []
        self._left_out = 0
        self._gaps: list[Gap] = []
        self._last: Snapshot | None = None
        self._devices: dict[str, Device] = {}
        self._servers: dict[str, Server] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Take one tick.

        Raises:
            ValueError: there are more of them than any recording has.
        """
        if len(self._memory.times) >= MOST_TICKS:
            raise ValueError(f"it has more than {MOST_TICKS} ticks")
        at = snapshot.time
        self._memory.add(
            at,
            {
                (device.uuid, part.server, part.component): part.bytes
                for device in snapshot.devices
                for part in device.components
            },
        )
        self._pools.add(
            at,
            {
                (server.name, pool.replica, pool.kind): pool.used_ratio
                for server in snapshot.servers
                for pool in server.pools
                if pool.used_ratio is not None
            },
        )
        self._requests.add(at, dict(_requests(snapshot)))
        self._alarms.take(snapshot)
        if self._last is not None:
            if at - self._last.time > GAP_SECONDS and len(self._gaps) < MOST_EVENTS:
                self._gaps.append(Gap(since=self._last.time, until=at))
            for event in incidents(self._last, snapshot):
                self._note(event)
        self._last = snapshot
        self._devices |= {device.uuid: device for device in snapshot.devices if device.components}
        self._servers |= {
            server.name: server
            for server in snapshot.servers
            if server.version is not None or server.name not in self._servers
        }

    def _note(self, event: Incident) -> None:
        """Remember an event; what comes in showers is counted."""
        last = next((one for one in reversed(self._events[-8:]) if _is_like(one, event)), None)
        if last is not None and event.kind in ("preempted", "refused") and event.at - last.at <= SAME_SECONDS:
            index = self._events.index(last)
            self._events[index] = replace(last, count=last.count + event.count)
        elif len(self._events) < MOST_EVENTS:
            self._events.append(event)
        else:
            self._left_out += 1

    def report(self, *, file: str, kept_for: Frozen | None, problem: str | None) -> Postmortem:
        """What happened.

        Raises:
            ValueError: nothing was taken.
        """
        if self._last is None:
            raise ValueError("there is no tick in it")
        times = self._memory.times
        incident = self._incident(kept_for)
        moment = incident.at if incident is not None else times[-1]
        before = max(0, self._memory.index(moment) - (incident is not None))
        before = next((index for index in range(before, -1, -1) if self._memory.at(index)), before)
        start = self._memory.index(times[before] - START_SECONDS)
        start = next((index for index in range(start, before) if self._memory.at(index)), start)
        after = self._memory.index(moment + AFTER_SECONDS)
        devices = tuple(self._device(uuid, start, before, after) for uuid in self._devices)
        alarms = tuple(self._found_alarms(moment if incident is not None else None))
        return Postmortem(
            file=file,
            version=__version__,
            simulated=self._last.simulated,
            since=times[0],
            until=times[-1],
            ticks=len(times),
            kept_for=None if kept_for is None else f"{kept_for.reason} {kept_for.subject}".strip(),
            incident=incident,
            start=times[start],
            before=times[before],
            after=times[after],
            summary=_summary(incident, devices, alarms, seconds=times[before] - times[start]),
            devices=devices,
            servers=tuple(self._server(server, start, before, after) for server in self._servers.values()),
            events=tuple(self._events),
            events_left_out=self._left_out,
            alarms=alarms,
            gaps=tuple(self._gaps),
            problem=problem,
            charts=self._charts(before),
        )

    def _incident(self, kept_for: Frozen | None) -> Incident | None:
        """What the recording was kept for, else the first of the gravest kind."""
        if kept_for is not None and kept_for.reason != "asked":
            fitting = [event for event in self._events if REASONS.get(event.kind) == kept_for.reason]
            near = sorted(fitting, key=lambda event: (event.subject != kept_for.subject, abs(event.at - kept_for.wall)))
            if near:
                return near[0]
            text = kept_for.reason.replace("_", " ")
            return Incident(at=kept_for.wall, kind="risk", subject=kept_for.subject, text=text)
        grave = [event for event in self._events if event.kind in GRAVEST]
        return min(grave, key=lambda event: (GRAVEST.index(event.kind), event.at), default=None)

    def _device(self, uuid: str, start: int, before: int, after: int) -> DeviceFinding:
        device = self._devices[uuid]
        ticks = [self._memory.at(index) for index in (start, before, after)]
        moved = []
        for key in self._memory.keys:
            if key[0] == uuid and any(key in tick for tick in ticks):
                sizes = [int(tick[key]) if key in tick else None for tick in ticks]
                moved.append(
                    Moved(
                        component=key[2],
                        server=key[1],
                        start_bytes=sizes[0],
                        before_bytes=sizes[1],
                        after_bytes=sizes[2],
                    )
                )
        moved.sort(key=lambda one: -max(abs(one.rise_bytes), abs(one.change_bytes)))
        return DeviceFinding(
            gpu=device.gpu, uuid=uuid, name=device.name, total_bytes=device.total_bytes, components=tuple(moved)
        )

    def _server(self, server: Server, start: int, before: int, after: int) -> ServerFinding:
        load = {name: value for (name_of, name), value in self._requests.at(before).items() if name_of == server.name}
        state = next((one.state for one in self._last.servers if one.name == server.name), "gone") if self._last else ""
        ticks = [self._pools.at(index) for index in (start, before, after)]
        pools = []
        for key in self._pools.keys:
            if key[0] == server.name:
                ratios = [tick.get(key) for tick in ticks]
                known = [ratio for ratio in self._pools.column(key, range(before + 1)) if ratio is not None]
                pools.append(
                    PoolFinding(
                        replica=key[1],
                        kind=key[2],
                        start_ratio=ratios[0],
                        before_ratio=ratios[1],
                        after_ratio=ratios[2],
                        highest_ratio=max(known, default=None),
                    )
                )
        return ServerFinding(
            name=server.name,
            engine=server.engine,
            version=server.version,
            model=server.model,
            state=state,
            load=Load(running=_whole(load.get("running")), waiting=_whole(load.get("waiting"))),
            pools=tuple(pools),
        )

    def _found_alarms(self, moment: float | None) -> Iterator[AlarmFinding]:
        """One for each rule and subject: the spell that led to the incident, else its last one."""
        grouped: dict[tuple[str, str], list[Spell]] = {}
        for spell in self._alarms.spells:
            grouped.setdefault((spell.rule, spell.subject), []).append(spell)
        found = []
        for (rule, subject), spells in grouped.items():
            led = [spell for spell in spells if moment is not None and _led_to(spell, moment)]
            spell = led[-1] if led else spells[-1]
            lead = moment - spell.since if led and moment is not None else None
            found.append(
                AlarmFinding(
                    rule=rule,
                    subject=subject,
                    since=spell.since,
                    lead_seconds=lead,
                    from_start=spell.held_since <= self._memory.times[0],
                    spells=len(spells),
                )
            )
        yield from sorted(
            found, key=lambda one: (one.lead_seconds is None, one.from_start, -(one.lead_seconds or 0.0), one.rule)
        )

    def _charts(self, before: int) -> Charts:
        indices = _thinned(len(self._memory.times), keep=before)
        times = tuple(self._memory.times[index] for index in indices)
        memory = {
            device.gpu: Lines(
                times=times,
                values={
                    f"{server} {component}".strip(): tuple(self._memory.column((uuid, server, component), indices))
                    for owner, server, component in self._memory.keys
                    if owner == uuid
                },
            )
            for uuid, device in self._devices.items()
        }
        pools: dict[str, Lines] = {}
        requests: dict[str, Lines] = {}
        for name in self._servers:
            shares = {
                f"{key[1]} {key[2]}": tuple(self._pools.column(key, indices))
                for key in self._pools.keys
                if key[0] == name
            }
            counts = {
                key[1]: tuple(self._requests.column(key, indices)) for key in self._requests.keys if key[0] == name
            }
            if shares:
                pools[name] = Lines(times=times, values=shares)
            if counts:
                requests[name] = Lines(times=times, values=counts)
        return Charts(memory=memory, pools=pools, requests=requests)


def _requests(snapshot: Snapshot) -> Iterator[tuple[tuple[str, str], float]]:
    for server in snapshot.servers:
        for name in ("running", "waiting"):
            count = getattr(server.requests, name)
            if count is not None:
                yield (server.name, name), count


def _is_like(one: Incident, other: Incident) -> bool:
    return (one.kind, one.subject, one.text) == (other.kind, other.subject, other.text)


def _led_to(spell: Spell, moment: float) -> bool:
    return spell.since < moment <= spell.until + FRESH_SECONDS


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _thinned(count: int, *, keep: int) -> list[int]:
    """Ticks for a chart, the one before the incident and the last among them."""
    step = max(1, -(-count // CHART_POINTS))
    return sorted({*range(0, count, step), keep, count - 1})


def _summary(
    incident: Incident | None, devices: Sequence[DeviceFinding], alarms: Sequence[AlarmFinding], *, seconds: float
) -> str:
    """The whole story in some sentences."""
    parts = []
    if incident is None:
        parts.append("No incident: no server died, no memory ran out, nothing was preempted or refused.")
    else:
        times = f", {incident.count} times" if incident.count > 1 else ""
        parts.append(f"{incident.subject}: {incident.text}{times}.")
    parts.append(f"In the {duration_text(seconds)} before, {_risen(devices)}.")
    led = [one for one in alarms if one.lead_seconds is not None and not one.from_start]
    if led:
        first = led[0]
        parts.append(f"Earliest alarm: {first.rule} ({first.subject}), {first.lead_seconds:.0f} s before.")
    elif incident is not None:
        parts.append("No alarm came before it.")
    return " ".join(parts)


def _risen(devices: Sequence[DeviceFinding]) -> str:
    """What rose most, and what was more and came only then: of that nobody knows that it grew."""
    parts = [(device, one) for device in devices for one in device.components if one.component != "free"]
    parts = sorted((pair for pair in parts if pair[1].rise_bytes > 0), key=lambda pair: -pair[1].rise_bytes)
    rose = next((pair for pair in parts if pair[1].start_bytes is not None), None)
    told = [] if rose is None else [f"{_part(*rose)} rose most, by {size_text(rose[1].rise_bytes)}"]
    if parts and parts[0] is not rose:
        told.append(f"{_part(*parts[0])}, not known at first, came to {size_text(parts[0][1].rise_bytes)}")
    return "; ".join(told) or "no component rose"


def _part(device: DeviceFinding, one: Moved) -> str:
    return f"{one.component}{f' of {one.server}' if one.server else ''} on gpu {device.gpu}"
