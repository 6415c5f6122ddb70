"""The risk of one server: signs from its pools, its memory on each device and its own history."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from agent.guests import COMPONENTS
from agent.memory import risk
from agent.memory.budget import Budget
from agent.memory.forecast import Forecast
from agent.memory.risk import Risk, RiskWatch, Sign
from agent.memory.transients import Transient
from agent.pool_signals import Key
from agent.seating import ServerView
from agent.snapshot import Device, Server
from collectors.readings import FailureKind

STALE_SECONDS = 30.0
KILLED_SECONDS = 600.0
OUT_OF_MEMORY: tuple[FailureKind, ...] = ("cuda_oom", "no_cache_blocks", "capture_failed")
Forecasts = Mapping[Key, Forecast]


class ServerRisk:
    """One server between looks: what it was, when it was started anew, ran out of memory or was killed.

    ``devices`` are those it lives on, or did until it went down.
    """

    def __init__(self) -> None:
        self._risk = RiskWatch()
        self._run: tuple[int, str] | None = None
        self._restarts: deque[float] = deque(maxlen=16)
        self._failed: deque[float] = deque(maxlen=16)
        self._killed_at: float | None = None
        self._counts: tuple[int | None, int | None, int | None] | None = None  # restarts, failures, kills
        self._served = False
        self._budget: Budget | None = None
        self.devices: tuple[str, ...] = ()
        self._first_sleep: dict[str, int] = {}

    def look(
        self,
        view: ServerView,
        server: Server,
        devices: Mapping[str, Device],
        forecasts: Forecasts,
        now: float,
        *,
        guests: Mapping[str, Mapping[str, int]],
    ) -> Risk | None:
        """None of one that is down, unless it can't come back.

        ``guests``: by device, what is surely of no server.
        """
        self._count(server, now)
        self._remember(view, server)
        blind = self._served and view.reading is None
        blind = blind or (server.age_seconds is not None and server.age_seconds > STALE_SECONDS)
        signs = [sign for sign in self._signs(view, server, devices, forecasts, now, guests) if sign is not None]
        if server.state == "down":
            return self._risk.look(now, signs) if signs else None
        return self._risk.look(now, signs, blind=blind)

    def _remember(self, view: ServerView, server: Server) -> None:
        """What it is now, and where it lives by what budget: a server that is down or starts has neither, or in part.

        Its levels begin anew with every start, when it goes, and when it serves.
        """
        is_same = self._run is not None and self._run[0] == server.restarts
        self._served = server.state != "down" and (view.reading is not None or (self._served and is_same))
        run = (
            server.restarts,
            "away" if server.state in ("sleeping", "down") else "here" if self._served else "starts",
        )
        if run != self._run:
            self._run = run
            self._risk.clear()
        if self._served or not set(server.devices) <= set(self.devices):
            self.devices = server.devices or self.devices
        if view.budget is not None and (server.devices or self._budget is None):
            self._budget = view.budget

    def _count(self, server: Server, now: float) -> None:
        """When it was started anew, ran out of memory, or was killed for the host's want of it.

        What was counted before it was first known to us is of another time.
        """
        failures = sum(server.log.failures.get(kind, 0) for kind in OUT_OF_MEMORY) if server.log else None
        before, self._counts = self._counts, (server.restarts, failures, server.host_oom_kills)
        restarted, failed, killed = (
            0 if was is None or count is None else max(0, count - was)
            for was, count in zip(before or (None, None, None), self._counts, strict=True)
        )
        self._restarts.extend([now] * min(16, restarted))
        self._failed.extend([now] * min(16, failed + killed))
        if killed:
            self._killed_at = now

    def _signs(
        self,
        view: ServerView,
        server: Server,
        devices: Mapping[str, Device],
        forecasts: Forecasts,
        now: float,
        guests: Mapping[str, Mapping[str, int]],
    ) -> Iterator[Sign | None]:
        here = [devices[uuid] for uuid in self.devices if uuid in devices]
        recent = [sum(at >= now - risk.LOOP_SECONDS for at in times) for times in (self._restarts, self._failed)]
        yield risk.restarting(*recent)
        if self._killed_at is not None and now - self._killed_at < KILLED_SECONDS:
            yield Sign(level="at_risk", reason="host_memory", numbers={"host_oom_kills": server.host_oom_kills or 0})
        if server.state in ("loading", "down") and not self._served:
            rooms = [_room(view, device, guests.get(device.uuid, {})) for device in here]
            yield _cannot_start(self._budget, rooms)
        if server.state == "sleeping":
            yield from (self._residue(server.name, device) for device in here)
        if server.state != "serving":
            return
        yield from (_of_pool(one) for one in forecasts.values())
        running = server.requests.running
        yield from (risk.storm(one.shortages_per_minute, running) for one in forecasts.values())
        for device in here:
            yield transient_sign(device.transients.get(server.name))
            yield risk.unlike_budget(
                fits=server.budget_fits,
                unexplained_bytes=device.unexplained_bytes.get(server.name, 0),
                total_bytes=device.total_bytes,
            )
        yield risk.fragmented(max((one.high for one in server.fragmentation if one.kind == "allocator"), default=None))

    def _residue(self, name: str, device: Device) -> Sign | None:
        held = sum(part.bytes for part in device.components if part.server == name)
        return risk.residue(held, self._first_sleep.setdefault(device.uuid, held))


def transient_sign(room: Transient | None) -> Sign | None:
    """Whether the largest temporary of a server on a device would not find room."""
    if room is None:
        return None
    return risk.transient_room(room.peak_bytes, room.room_bytes, seen=room.peak_evidence != "predicted")


def _of_pool(forecast: Forecast) -> Sign | None:
    if forecast.level == "ok":
        return None
    numbers = {
        "used_ratio": forecast.used_ratio,
        "exhaustion_seconds": forecast.likely_seconds,
        "probability_2min": forecast.probability_2min,
        "probability_5min": forecast.probability_5min,
    }
    known = {name: value for name, value in numbers.items() if value is not None}
    late = forecast.held_seconds
    return Sign(level=forecast.level, reason="pool_exhaustion", numbers=known, held=True, held_seconds=late)


def _cannot_start(budget: Budget | None, rooms: Sequence[int | None]) -> Sign | None:
    """On the fullest device that it is to be on: weights and one request against the room for it."""
    needs = [
        rank.weights_bytes + (rank.kv.request_bytes or 0)
        for rank in (budget.ranks if budget else ())
        if rank.weights_bytes is not None
    ]
    known = [room for room in rooms if room is not None]
    return risk.cannot_start(needed_bytes=min(needs, default=None), room_bytes=min(known, default=None))


def _room(view: ServerView, device: Device, guests: Mapping[str, int]) -> int | None:
    """What is free, its own already, or may be its own; all of nobody's may where its processes can't be seen."""
    if device.free_bytes is None:
        return None
    hidden = view.tree is None and view.processes_hidden
    others = sum(
        part.bytes if hidden else max(0, part.bytes - guests.get(part.component, 0))
        for part in device.components
        if part.component in COMPONENTS
    )
    return device.free_bytes + others + sum(part.bytes for part in device.components if part.server == view.name)
