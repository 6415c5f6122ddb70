"""The board: collectors pin their latest readings on it, a tick turns what is fresh into a snapshot for all readers."""

import gzip
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import msgspec
from msgspec import structs

from agent import __version__
from agent.device_history import DeviceHistory
from agent.device_record import DeviceExtremes, device_record
from agent.exporter import Renderer
from agent.hardware import Hardware
from agent.health import Health, Of
from agent.inside import Insiders
from agent.memory.budget import Device as BudgetDevice
from agent.memory.history import Peaks
from agent.memory.risk import HEADROOM_RATIO
from agent.memory.upgrades import Record as UpgradeRecord
from agent.outlook import Outlook
from agent.processes import Look
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
    Source,
)
from agent.recorder.tape import Tape
from agent.recorder.writer import Status
from agent.release import awake_or_not
from agent.seating import seats
from agent.server_record import server_record
from agent.snapshot import Pool, Recorder, Recording, Reload, Snapshot, Thresholds
from agent.upgrades import Upgrades
from agent.watch import ServerWatch
from collectors.engine_search import ENGINE_UNKNOWN
from collectors.own_process import Usage
from collectors.probe_files import ProbePass
from collectors.readings import (
    DeviceReading,
    Fault,
    LogReading,
    MemoryReading,
    ModelFiles,
    NodeReading,
    ProcessTree,
    ServerReading,
)
from collectors.run import REPORT, Outcome, bug

T = TypeVar("T")
log = logging.getLogger("vramscope")
WINDOW_SECONDS = 60.0
STALE_PASSES = 3
UNREADY_SECONDS = 5.0
STUCK_SECONDS = 10.0
SETTLE_SECONDS = 60.0


class Published:
    """What the last tick left for readers. Its forms are made when one is first asked for, which not every tick is."""

    def __init__(self, snapshot: Snapshot, renderer: Renderer, at: float) -> None:
        self.snapshot = snapshot
        self.at = at
        self._renderer = renderer

    @cached_property
    def metrics(self) -> bytes:
        return self._renderer.render(self.snapshot)

    @cached_property
    def metrics_gzip(self) -> bytes:
        return gzip.compress(self.metrics, compresslevel=1, mtime=0)

    @cached_property
    def snapshot_json(self) -> bytes:
        return msgspec.json.encode(self.snapshot)


class Board:
    """Owns the state between ticks; readers only ever see ``published``, swapped in one assignment.

    ``clock`` is monotonic, ``wall`` seconds since the epoch, ``memory_interval_seconds`` the pace of device passes.
    ``settle_seconds``: how long a server's memory has to lie still to be compared with that of its next run.
    ``pace``: seconds of the node's life in one of the clock, another than 1 only of a simulated node.
    ``web_problem`` says why the files of the web config are not in force as they are, None when they are; ``simulated``
    that what is handed in is of no real node, ``recording`` that it is from one. ``usage`` is what the agent itself
    takes. ``tape`` gets all that is handed in.
    """

    def __init__(
        self,
        watches: Sequence[ServerWatch],
        *,
        memory_interval_seconds: float,
        clock: Callable[[], float],
        wall: Callable[[], float],
        settle_seconds: float = SETTLE_SECONDS,
        pace: float = 1.0,
        web_problem: Callable[[], str | None] = lambda: None,
        simulated: bool = False,
        recording: Recording | None = None,
        usage: Callable[[], Usage | None] = lambda: None,
    ) -> None:
        self.watches = watches
        self.health = Health()
        self.upgrades = Upgrades(settle_seconds=settle_seconds)
        self._pace = pace
        self.memory_interval_seconds = memory_interval_seconds
        self._clock = clock
        self._wall = wall
        self._web_problem = web_problem
        self._simulated = simulated
        self._recording = recording
        self.tape: Tape | None = None
        self._recorder: Recorder | None = None
        self._node: NodeReading | None = None
        self._used: dict[str, tuple[int, Peaks]] = {}  # with the total that they are of
        self._hardware = Hardware()
        self._outlook = Outlook()
        self._device_history = DeviceHistory()
        self._targets: set[str] = set()
        self._insiders = Insiders()
        self._looked_at = float("-inf")  # when the newest look at the process table began
        self._reload: Reload | None = None
        self._renderer = Renderer(usage)
        self.published = self._publish()

    # What collectors hand in

    def took_node(self, node: NodeReading) -> None:
        """Take one pass over the devices: current values and extremes; never renders."""
        self._note(Node(at=self._clock(), reading=node))
        self._node = node
        self._record("nvml", "", None, node.duration_seconds)
        self._hardware.took(node)
        devices = (*node.devices, *self._hardware.missing(node))
        self._targets = {device.uuid or f"gpu {device.gpu}" for device in devices}
        self._used = {uuid: used for uuid, used in self._used.items() if uuid in self._targets}
        for device in devices:
            target = device.uuid or f"gpu {device.gpu}"
            self._record("nvml", target, device.memory_fault, device.memory_duration_seconds, of="device")
            if device.processes is not None or device.processes_fault is not None:
                seconds = device.processes_duration_seconds
                self._record("processes", target, device.processes_fault, seconds, of="device")
            if device.memory is not None and device.uuid is not None:
                self._note_peak(device.uuid, device.memory)

    def _note_peak(self, uuid: str, memory: MemoryReading) -> None:
        """Peaks begin anew when the total changes, as it does when ECC is switched or the host's memory resized."""
        total, peaks = self._used.get(uuid, (None, None))
        if peaks is None or total != memory.total_bytes:
            peaks = Peaks(WINDOW_SECONDS)
            self._used[uuid] = (memory.total_bytes, peaks)
        used = memory.total_bytes - memory.free_bytes
        peaks.add(memory.at, min(max(used, memory.used_max_bytes or 0), memory.total_bytes))

    def lost_node(self, fault: Fault) -> None:
        """There was no pass: no driver, or its child died."""
        self._note(Node(at=self._clock(), fault=fault))
        self._lose_node(fault)

    def _lose_node(self, fault: Fault) -> None:
        self._node = None
        self._targets = set()
        self._record("nvml", "", fault)

    def took_server(self, watch: ServerWatch, outcome: Outcome[ServerReading]) -> bool:
        """Take what a server's endpoint said; True when its processes should be looked at anew."""
        name, seconds = watch.facts.name, outcome.duration_seconds
        self._note(Server(at=self._clock(), name=name, reading=outcome.value, fault=outcome.fault, seconds=seconds))
        answered_before, begins, fault = watch.reading is not None, None, outcome.fault
        if (reading := outcome.value) is not None:
            begins, fault = self._tried("endpoint", name, lambda: watch.took(reading, pace=self._pace))
        self._record("endpoint", name, fault, seconds)
        if begins is not None:
            return begins
        watch.lost(is_unnamed=fault is not None and fault.reason == ENGINE_UNKNOWN)
        return answered_before

    def took_processes(self, outcome: Outcome[Look]) -> None:
        """Take how the look at the process table as a whole went."""
        self.looked_for("", outcome.fault, outcome.duration_seconds)

    def took_tree(self, watch: ServerWatch, outcome: Outcome[ProcessTree | None]) -> None:
        """Take the process tree behind a server's port."""
        self.looked_for(watch.facts.name, outcome.fault, outcome.duration_seconds)
        watch.saw(outcome.value, hidden=outcome.fault is not None)

    def looked_for(self, server: str, fault: Fault | None, seconds: float) -> None:
        """Take how it went to look for a server's processes, or at the whole process table (no name)."""
        self._note(Processes(at=self._clock(), name=server, fault=fault, seconds=seconds))
        self._record("processes", server, fault, seconds)
        if not server and fault is None:
            self._looked_at = self._clock() - seconds

    def took_model(self, watch: ServerWatch, outcome: Outcome[ModelFiles]) -> None:
        """Take a server's model files."""
        name, seconds = watch.facts.name, outcome.duration_seconds
        self._note(Model(at=self._clock(), name=name, files=outcome.value, fault=outcome.fault, seconds=seconds))
        fault = outcome.fault
        if (files := outcome.value) is not None:
            wrong, fault = self._tried("model", name, lambda: watch.take_model(files))
            fault = fault or wrong
        self._record("model", name, fault, seconds)

    def took_log(self, watch: ServerWatch, outcome: Outcome[LogReading | None]) -> None:
        """Take what a server's log says by now."""
        name, seconds = watch.facts.name, outcome.duration_seconds
        self._note(Log(at=self._clock(), name=name, reading=outcome.value, fault=outcome.fault, seconds=seconds))
        if outcome.fault and outcome.fault.reason == "absent" and watch.facts.log is None:
            self._lose_log(watch)  # its process has just ended
            return
        fault = outcome.fault
        if (reading := outcome.value) is not None:
            _, fault = self._tried("log", name, lambda: watch.take_log(reading))
        self._record("log", name, fault, seconds)

    def lost_log(self, watch: ServerWatch) -> None:
        """Where a server's log is, is not known any more: its sizes are of a run that is over."""
        self._note(Log(at=self._clock(), name=watch.facts.name, lost=True))
        self._lose_log(watch)

    def _lose_log(self, watch: ServerWatch) -> None:
        self.health.forget("log", watch.facts.name)
        watch.take_log(structs.replace(watch.log, ranks=(), ready=False) if watch.log else None)

    def took_probes(self, outcome: Outcome[ProbePass], asked: Collection[int | None]) -> None:
        """Take what probes inside the engines say; ``asked`` are the processes that have a file, None: nobody's."""
        self._note(
            Probes(
                at=self._clock(),
                found=outcome.value,
                fault=outcome.fault,
                seconds=outcome.duration_seconds,
                asked=tuple(asked),
            )
        )
        self._insiders.took(outcome, self.watches, asked=asked, health=self.health, record=self._record)

    def took_state(self, fault: Fault | None, duration_seconds: float) -> None:
        """Take how it last went to read or write the state file."""
        self._note(Source(at=self._clock(), name="state", fault=fault, seconds=duration_seconds))
        self._record("state", "", fault, duration_seconds)

    def took_recorder(self, status: Status) -> None:
        """Take how it last went to record."""
        self._note(
            Source(
                at=self._clock(),
                name="recorder",
                fault=status.fault,
                seconds=status.seconds,
                dropped=status.dropped,
                bundles=status.bundles,
            )
        )
        self._recorder = Recorder(dropped=status.dropped, bundles=status.bundles)
        self._record("recorder", "", status.fault, status.seconds)

    def took_pace(
        self, *, memory_interval_seconds: float, settle_seconds: float, headroom_ratio: float = HEADROOM_RATIO
    ) -> None:
        """Take the pace of device passes, how long memory has to lie still, and the rule of headroom, from now on."""
        self._note(
            Paced(at=self._clock(), memory=memory_interval_seconds, settle=settle_seconds, headroom=headroom_ratio)
        )
        self.memory_interval_seconds = memory_interval_seconds
        self.upgrades.settle_seconds = settle_seconds
        self._outlook.headroom_ratio = headroom_ratio

    def recalled(self, servers: Mapping[str, UpgradeRecord]) -> None:
        """Take what is remembered of servers' runs before this agent began."""
        self._note(Recalled(at=self._clock(), servers=dict(servers)))
        self.upgrades.restore(servers)

    def settings_reloaded(self, *, success: bool) -> None:
        """Take how the last reload of the settings went."""
        at = self._wall() if success else self._reload.at if self._reload else None
        self.took_reload(Reload(success=success, at=at))

    def took_reload(self, reload: Reload) -> None:
        """Take how a reload went, and when the last good one was."""
        self._note(Reloaded(at=self._clock(), success=reload.success, success_at=reload.at))
        self._reload = reload

    # The tick

    def tick(self) -> Published:
        """Turn what is known now into a snapshot and publish it."""
        stale_seconds = STALE_PASSES * max(1.0, self.memory_interval_seconds)
        if self._node is not None and self._node.at < self._clock() - stale_seconds:
            message = f"no reading of the devices for more than {stale_seconds:g} s; the driver or its reader is slow"
            self._lose_node(Fault(reason="timeout", message=message))
        self.published = self._publish()
        self._device_history.take(self.published.at, self.published.snapshot.devices)
        if self.tape is not None:
            self.tape.ticked(self.published.snapshot, self.published.at)
        return self.published

    def _publish(self) -> Published:
        now = self._clock()
        snapshot = self._snapshot(now)
        return Published(snapshot, self._renderer, now)

    def _snapshot(self, now: float) -> Snapshot:
        self.health.keep({"", *self._targets, *(watch.facts.name for watch in self.watches)})
        node = self._node or NodeReading(at=now, driver_version=None, devices=())
        known = [watch for watch in self.watches if watch.is_known]
        views = {watch.facts.name: watch.view() for watch in known}
        seated = seats(node, list(views.values()))
        by_uuid = {device.uuid: device for device in node.devices if device.uuid}
        for watch in known:
            name = watch.facts.name
            place = next((by_uuid[seat.uuid] for seat in seated if seat.server == name and seat.uuid in by_uuid), None)
            budget = watch.budget(_budget_device(place))
            views[name] = awake_or_not(node, structs.replace(views[name], budget=budget, notes=watch.notes), seated)
        gpus = {uuid: device.gpu for uuid, device in by_uuid.items()}
        inside = self._insiders.at(views, seated, by_uuid, now)
        devices = tuple(
            device_record(
                device,
                gpu=gpu,
                node=node,
                servers=views,
                seated=seated,
                extremes=self._extremes(device, now),
                health=self._hardware.health(device, gpu),
                now=now,
                inside={server: one for (server, uuid), one in inside.items() if uuid == device.uuid},
            )
            for gpu, device in (self._hardware.labelled(node) if node is self._node else ())
        )
        servers = {
            name: server_record(
                view,
                seated=seated,
                gpus=gpus,
                now=now,
                inside={uuid: one for (server, uuid), one in inside.items() if server == name},
            )
            for name, view in views.items()
        }
        self.upgrades.look(views.values(), servers, devices, now=now, wall=self._wall())
        for name, view in views.items():
            if (upgrade := self.upgrades.of(view, gpus)) is not None:
                servers[name] = structs.replace(servers[name], upgrade=upgrade)
        lived = now * self._pace
        forecasts = {watch.facts.name: watch.forecasts(lived) for watch in known}
        if self._outlook.is_due(servers, devices, forecasts, lived):
            looked_at = self._looked_at * self._pace
            self._outlook.look(views, servers, devices, forecasts, node.host_memory, lived, looked_at=looked_at)
        return Snapshot(
            time=self._wall(),
            version=__version__,
            devices=tuple(self._outlook.device(device) for device in devices),
            host_memory=node.host_memory,
            servers=tuple(self._outlook.server(server) for server in servers.values()),
            collectors=self.health.records(now),
            reload=self._reload,
            web_config_current=self._web_problem() is None,
            simulated=self._simulated,
            pace=self._pace,
            thresholds=Thresholds(headroom_ratio=self._outlook.headroom_ratio),
            recorder=self._recorder,
            recording=self._recording,
        )

    def _extremes(self, device: DeviceReading, now: float) -> DeviceExtremes | None:
        if device.uuid not in self._used or device.memory is None:
            return None
        total, used = self._used[device.uuid]
        highest = {"60s": used.window_highest(now), "start": used.highest}
        known = {window: count for window, count in highest.items() if count is not None}
        return DeviceExtremes(
            used_max_bytes=known, free_min_bytes={window: total - count for window, count in known.items()}
        )

    def _note(self, record: Record) -> None:
        if self.tape is not None:
            self.tape.take(record)

    def _tried(self, name: str, target: str, take: Callable[[], T]) -> tuple[T | None, Fault | None]:
        """Hand a reading on; what nobody foresaw in it fails its source, and nothing else."""
        try:
            return take(), None
        except Exception as exc:
            fault, before = bug(name, target, exc), self.health.fault(name, target)
            if before is None or before.reason != fault.reason:
                log.exception("a reading of %s %s can't be used; %s", name, target, REPORT)
            return None, fault

    def _record(
        self,
        name: str,
        target: str,
        fault: Fault | None,
        duration_seconds: float | None = None,
        *,
        of: Of | None = None,
    ) -> None:
        now, wall = self._clock(), self._wall()
        self.health.record(name, target, fault, now=now, wall=wall, duration_seconds=duration_seconds, of=of)

    # What readers ask

    @property
    def metrics(self) -> bytes:
        return self.published.metrics

    @property
    def metrics_gzip(self) -> bytes:
        return self.published.metrics_gzip

    @property
    def snapshot_json(self) -> bytes:
        return self.published.snapshot_json

    def history_json(self) -> bytes:
        """Used tokens of every pool, and what devices held, as ``vramscope.history/1``; times are wall clock."""
        offset = self._wall() - self._clock()
        shown: dict[tuple[str, str, str], Pool] = {
            (server.name, pool.replica, pool.kind): pool
            for server in self.published.snapshot.servers
            for pool in server.pools
            if pool.used_tokens is not None
        }
        pools = [
            {
                "server": watch.facts.name,
                "replica": replica,
                "kind": kind,
                "capacity_tokens": shown[watch.facts.name, replica, kind].capacity_tokens,
                "points": [(at + offset, used) for at, used in history.points],
            }
            for watch in self.watches
            for (replica, kind), history in watch.histories.items()
            if (watch.facts.name, replica, kind) in shown
        ]
        devices = self._device_history.records(self.published.snapshot.devices, offset)
        return msgspec.json.encode({"schema": "vramscope.history/1", "pools": pools, "devices": devices})

    def has_heard_of(self, sources: frozenset[tuple[str, str]]) -> bool:
        """Whether each of these (collector, target) has delivered or failed at least once."""
        return sources <= {(c.name, c.target) for c in self.health.records(self._clock())}

    def not_healthy(self) -> str | None:
        """Why what is published must not be passed on as current, None when it may."""
        age = self._clock() - self.published.at
        return f"no tick for {age:.0f} s" if age > STUCK_SECONDS else None

    def not_ready(self) -> str | None:
        """Why collection is not fresh, None when a device or a server is being read."""
        age = self._clock() - self.published.at
        if age > UNREADY_SECONDS:
            return f"no tick for {age:.0f} s"
        collectors = [one for one in self.published.snapshot.collectors if one.name in ("nvml", "endpoint")]
        if any(collector.success for collector in collectors):
            return None
        return "; ".join(f"{c.name} {c.target}".strip() + f": {c.error}" for c in collectors) or "nothing collected yet"


def _budget_device(reading: DeviceReading | None) -> BudgetDevice:
    """The device as the budget wants it: without the driver's reservation CUDA's total is not known.

    Of memory that is the host's nothing is reserved.
    """
    if reading is None or reading.memory is None:
        return BudgetDevice(name=reading.name if reading else None)
    total, reserved = reading.memory.total_bytes, reading.memory.reserved_bytes
    if reading.memory_kind == "unified":
        reserved = 0
    return BudgetDevice(name=reading.name, total_bytes=total, cuda_bytes=None if reserved is None else total - reserved)
