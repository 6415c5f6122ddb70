"""What probes inside the engines say, from their files to the rank it is of: who has one, and what of it is fresh."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from agent.health import Health
from agent.memory.allocator import Allocator, joined
from agent.memory.transients import Troughs
from agent.seating import Seat, ServerView, pools_of
from agent.watch import ServerWatch
from collectors.probe_files import ProbePass
from collectors.readings import DeviceReading, Fault, ProbeReading
from collectors.run import Outcome

Record = Callable[[str, str, Fault | None, float | None], None]
_NAMED_FILES = 4


class Inside(Struct, frozen=True, kw_only=True):
    """What is known of a rank from inside its processes; ``lowest_active_bytes`` since it has its pool."""

    allocator: Allocator
    lowest_active_bytes: int | None = None


class Insiders:
    """The latest pass over the files, and what is remembered of the ones before."""

    def __init__(self) -> None:
        self._unmatched: tuple[ProbeReading, ...] = ()  # of processes that nobody sees
        self._troughs = Troughs()

    def took(
        self,
        outcome: Outcome[ProbePass],
        watches: Iterable[ServerWatch],
        *,
        asked: Collection[int | None],
        health: Health,
        record: Record,
    ) -> None:
        """Take a pass; ``asked`` are the processes that have a file, None: nobody's.

        A server without a probe has no such source, and that is no failure.
        """
        found = outcome.value or ProbePass()
        with_probe = asked if outcome.fault else found.seen | found.faults.keys()
        for watch in watches:
            own = {process.pid for process in watch.tree.processes} if watch.tree else set()
            watch.probes = tuple(one for one in found.readings if one.pid in own)
            if own.isdisjoint(with_probe):
                health.forget("probe", watch.facts.name)
                continue
            fault = outcome.fault or next((found.faults[pid] for pid in sorted(own & found.faults.keys())), None)
            record("probe", watch.facts.name, fault, outcome.duration_seconds)
        self._unmatched = tuple(one for one in found.readings if one.pid is None)
        if None not in asked:
            health.forget("probe", "")
            return
        fault = outcome.fault or found.unmatched or _ambiguous(self._unmatched)
        record("probe", "", fault, outcome.duration_seconds)

    def at(
        self,
        views: dict[str, ServerView],
        seated: Sequence[Seat],
        devices: Mapping[str, DeviceReading],
        now: float,
    ) -> dict[tuple[str, str], Inside]:
        """By server and device, what its allocator says there as far as that is fresh."""
        found: dict[tuple[str, str], Inside] = {}
        self._troughs.keep([name for name, view in views.items() if view.state == "serving"])
        views = with_unmatched(views, seated, self._unmatched) if self._unmatched else views
        for seat in seated:
            view, device = views[seat.server], devices.get(seat.uuid)
            if not view.probes or device is None:
                continue
            fresh = replace(view, probes=tuple(one for one in view.probes if now - one.at <= one.lasts_seconds))
            total = device.memory.total_bytes if device.memory else None
            allocator = allocator_at(fresh, seat, total_bytes=total)
            if allocator is not None:
                lowest = self._lowest(view, seat, allocator)
                found[seat.server, seat.uuid] = Inside(allocator=allocator, lowest_active_bytes=lowest)
        return found

    def _lowest(self, view: ServerView, seat: Seat, allocator: Allocator) -> int | None:
        if view.state == "serving" and allocator.active_bytes is not None and pools_of(view, seat.rank):
            pids = tuple(sorted(seat.pids))
            self._troughs.see(seat.server, seat.uuid, pids=pids, active_bytes=allocator.active_bytes)
        return self._troughs.of(seat.server, seat.uuid)


def allocator_at(server: ServerView, seat: Seat, *, total_bytes: int | None) -> Allocator | None:
    """What the allocators of a seat's processes say of its device; None without a probe."""
    if not server.probes:
        return None
    digits = _digits(seat.uuid)
    here = [
        one
        for one in server.probes
        if (one.uuid_digits == digits or (one.uuid_digits is None and _has_one(server, one)))
        and (one.pid in seat.pids or not seat.pids)
    ]
    return joined(here, total_bytes=total_bytes, pids=seat.pids)


def _has_one(server: ServerView, reading: ProbeReading) -> bool:
    """Whether a process uses one device only, so that it needs no name."""
    return sum(one.pid == reading.pid for one in server.probes) == 1 and bool(reading.pid)


def with_unmatched(
    servers: Mapping[str, ServerView], seated: Sequence[Seat], readings: Sequence[ProbeReading]
) -> dict[str, ServerView]:
    """The servers with what probes say whose process is not visible: where one file and one seat have the device."""
    found = dict(servers)
    for reading in readings:
        if sum(one.uuid_digits == reading.uuid_digits for one in readings) > 1:
            continue
        seats_there = [seat for seat in seated if _digits(seat.uuid) == reading.uuid_digits]
        if len(seats_there) == 1 and not seats_there[0].pids:
            view = found[seats_there[0].server]
            found[view.name] = replace(view, probes=(*view.probes, reading))
    return found


def _digits(uuid: str) -> str:
    """The digits of a UUID as probes write them."""
    return uuid.rpartition("GPU-")[2].rpartition("MIG-")[2].replace("-", "").lower()


def _ambiguous(readings: Sequence[ProbeReading]) -> Fault | None:
    """Files of processes that nobody sees are told apart by the device they name, so two of one device can't be."""
    devices = [one.uuid_digits for one in readings]
    twice = [one.file for one in readings if one.uuid_digits is None or devices.count(one.uuid_digits) > 1]
    if not twice:
        return None
    files = ", ".join(sorted(twice)[:_NAMED_FILES])
    message = f"{files}: whose these are can't be told, so they are not used; let vramscope see the host's processes"
    return Fault(reason="ambiguous", message=message)
