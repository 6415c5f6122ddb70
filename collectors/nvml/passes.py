"""Passes over all devices, again and again, as the child makes them. Standard library only; the clock is an argument.

A device is a ``DeviceReading`` as a plain dict that lives from pass to pass: its last process list stays, with its own
time, until the next.
"""

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from collectors.nvml import faults
from collectors.nvml.driver import Driver, NvmlFault, Place

MOVED_BYTES = 32 * 2**20  # change of allocation that makes a process list too old to explain it
HIDDEN_ABOVE_BYTES = 256 * 2**20  # what the driver allocates for itself is less
LISTS_APART_SECONDS = 0.5  # a list locks every GPU of the host
HEALTH_SECONDS = 30.0
LOOK_SECONDS = 0.1
RESTLESS_SECONDS = 5.0  # how long memory that moved is looked at between passes


def no_events(_index: int, _uuid: str) -> bool:
    """For passes that wait for no events."""
    return False


def rest_seconds(interval: float, took: float) -> float:
    """How long to rest after a pass: a slow driver is asked less often, at most half of the time."""
    return max(interval - took, took)


class Passes:
    """Reads memory in every pass, process lists less often, health seldom.

    A list is read early when the device's allocation moved, and memory right after a list, so that both are of one
    moment. ``watch_events`` is told of each GPU when it appears and says whether its Xid events can be waited for.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        announce: Callable[[str], None],
        clock: Callable[[], float],
        processes_interval_seconds: float,
        watch_events: Callable[[int, str], bool] = no_events,
        skip: Collection[int] = (),
        only: int | None = None,
    ) -> None:
        self._driver = driver
        self._announce = announce
        self._clock = clock
        self._processes_interval_seconds = processes_interval_seconds
        self._watch_events = watch_events
        self._skip = skip
        self._only = only
        self._devices: dict[Place, dict[str, Any]] = {}
        self._closed: set[Place] = set()  # in MIG mode, with instances that are hidden from us
        self._listed: dict[Place, tuple[float, int | None]] = {}  # when a list was read, and what was allocated then
        self._before: dict[Place, int | None] = {}  # allocated in the pass before
        self._moved_at: dict[Place, float] = {}
        self._peaks: dict[Place, int] = {}  # most used since the pass before
        self._health: dict[int, dict[str, Any]] = {}
        self._lists_due_at = self._health_due_at = 0.0

    def read(self) -> dict[str, Any]:
        """One pass as the fields of a ``NodeReading``.

        Raises:
            NvmlFault: the driver as a whole does not answer.
        """
        now = self._clock()
        lists_due = now >= self._lists_due_at
        if lists_due:
            self._lists_due_at = now + self._processes_interval_seconds
        if lists_due or self._failing():
            self._enumerate()
        failed = self._failing()
        for place in self._devices:
            self._read_device(place, lists_due)
            self._note_movement(place)
        if now >= self._health_due_at or failed != self._failing():
            self._health_due_at = now + HEALTH_SECONDS
            self._read_health()
        self._peaks.clear()
        devices = list(self._devices.values())
        at = self._clock()
        node = {"at": at, "driver_version": self._driver.driver_version(), "devices": devices}
        node["duration_seconds"] = round(at - now, 6)
        if any(device.get("memory_kind") == "unified" for device in devices):
            node |= self._host()
        return node

    def rest(self, seconds: float, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait for the next pass; meanwhile look at memory that moves, ten times a second but at most half of the time.

        What was seen goes into the next pass as ``used_max_bytes``.

        Raises:
            NvmlFault: the driver as a whole does not answer.
        """
        until, pause = self._clock() + seconds, LOOK_SECONDS
        while (left := until - self._clock()) > 0:
            restless = [place for place, at in self._moved_at.items() if self._clock() - at < RESTLESS_SECONDS]
            nap = pause if restless and left > 1.5 * pause else left
            self._announce(f"rest {nap:.3f}")
            sleep(nap)
            if nap == left:
                return
            started = self._clock()
            for place in restless:
                self._look(place)
            pause = max(LOOK_SECONDS, self._clock() - started)

    # Which devices there are

    def _enumerate(self) -> None:
        """Take up new devices, drop those that went, and start afresh with one whose place now holds another."""
        self._announce("count")
        before, self._devices = self._devices, {}
        self._closed.clear()
        uuids: dict[str, Place] = {}
        for index in range(self._driver.device_count()):
            if index not in self._skip and self._only in (None, index):
                for place, found in self._found(index):
                    named = _unlike(uuids, place, found)
                    known = before.get(place)
                    same = known is not None and known.get("uuid") == named.get("uuid")
                    self._devices[place] = {**known, **named} if known and same and place not in self._closed else named
                    if not same:
                        self._forget(place)
        for place in before.keys() - self._devices.keys():
            self._forget(place)

    def _found(self, index: int) -> Iterator[tuple[Place, dict[str, Any]]]:
        """The devices at an index. A GPU whose MIG instances are hidden from us stands there with that fault."""
        self._announce(f"places {index}")
        try:
            places = self._driver.places(index)
        except NvmlFault as fault:
            why = _device_fault(fault)
            self._closed.add(Place(index))
            yield Place(index), self._identify(Place(index)) | {"memory_fault": why, "processes_fault": why}
            return
        for place in places:
            yield place, self._identify(place)

    def _identify(self, place: Place) -> dict[str, Any]:
        self._announce(f"identity {place}")
        device: dict[str, Any] = {"index": place.gpu, "instance": place.instance}
        try:
            uuid, name, bus_id, parent_uuid, in_mig_mode, numa_node, addressing = self._driver.identity(place)
            device["events"] = self._watches(place.gpu, parent_uuid or uuid)
        except NvmlFault as fault:
            why = _device_fault(fault)
            return device | {"memory_fault": why, "processes_fault": why}
        device |= {"uuid": uuid, "name": name, "bus_id": bus_id, "parent_uuid": parent_uuid}
        device |= {"numa_node": numa_node, "addressing": addressing}
        return device | ({"memory_kind": "mig"} if in_mig_mode else {})

    def _watches(self, index: int, uuid: str) -> bool:
        self._announce(f"events {index}")
        return self._watch_events(index, uuid)

    def _forget(self, place: Place) -> None:
        for known in (self._listed, self._before, self._moved_at, self._peaks):
            known.pop(place, None)

    def _failing(self) -> list[Place]:
        return [place for place, device in self._devices.items() if "memory_fault" in device]

    # What a device says

    def _read_device(self, place: Place, lists_due: bool) -> None:
        if "uuid" not in self._devices[place] or place in self._closed:
            return
        self._read_part(place, "memory", self._memory)
        if lists_due or self._list_is_old(place):
            self._read_part(place, "processes", self._processes)
            self._read_part(place, "memory", self._memory)
            self._listed[place] = (self._clock(), self._allocated(place))
            self._note_hidden(place)

    def _read_part(self, place: Place, part: str, read: Callable[[Place], dict[str, Any]]) -> None:
        device = self._devices[place]
        device.pop(part, None)
        device.pop(f"{part}_fault", None)
        self._announce(f"{part} {place}")
        started = self._clock()
        try:
            answer = read(place)
            device[part] = {"at": self._clock(), **answer}
        except NvmlFault as fault:
            device[f"{part}_fault"] = _device_fault(fault)
        device[f"{part}_duration_seconds"] = round(self._clock() - started, 6)

    def _note_hidden(self, place: Place) -> None:
        """Say so when an empty list, though an answer, can't be the truth. The OS needs no process to hold memory."""
        device, allocated = self._devices[place], self._allocated(place)
        shared = device.get("memory_kind") == "unified" or device.get("numa_node") is not None
        empty = "processes" in device and not device["processes"]["processes"]
        if empty and not shared and allocated is not None and allocated > HIDDEN_ABOVE_BYTES:
            device["processes_fault"] = faults.explain(faults.HIDDEN_PROCESSES, f"{allocated >> 20} MiB")

    def _memory(self, place: Place) -> dict[str, Any]:
        total, free, reserved, kind = self._driver.memory(place)
        self._devices[place]["memory_kind"] = kind
        figures = {"total_bytes": total, "free_bytes": free, "reserved_bytes": reserved}
        peak = self._peaks[place] = max(total - free, self._peaks.get(place, 0))
        return figures | ({"used_max_bytes": peak} if peak > total - free else {})

    def _processes(self, place: Place) -> dict[str, Any]:
        used = self._driver.processes(place)
        return {"processes": [{"pid": pid, "used_bytes": bytes_} for pid, bytes_ in sorted(used.items())]}

    def _look(self, place: Place) -> None:
        """Memory alone, between passes; a fault is left to the next pass to say."""
        self._announce(f"memory {place}")
        try:
            total, free, reserved, _ = self._driver.memory(place)
        except NvmlFault as fault:
            _device_fault(fault)
            self._moved_at.pop(place, None)
            return
        self._peaks[place] = max(total - free, self._peaks.get(place, 0))
        self._note(place, total - free - (reserved or 0))

    def _read_health(self) -> None:
        self._health.clear()
        for device in self._devices.values():
            index = device["index"]
            if index not in self._health and "uuid" in device:
                self._announce(f"health {index}")
                self._health[index] = self._health_of(index)
            device.pop("health", None)
            if self._health.get(index):
                device["health"] = self._health[index]

    def _health_of(self, index: int) -> dict[str, Any]:
        try:
            facts = self._driver.health(index)._asdict()
        except NvmlFault as fault:
            _device_fault(fault)
            return {}
        return {"at": self._clock(), **facts}

    def _host(self) -> dict[str, Any]:
        try:
            total, available, pressure = self._driver.host()
        except NvmlFault:
            return {}
        return {"host_memory": {"total_bytes": total, "available_bytes": available, "pressure_seconds": pressure}}

    # What moves

    def _allocated(self, place: Place) -> int | None:
        memory = self._devices[place].get("memory")
        return memory and memory["total_bytes"] - memory["free_bytes"] - (memory["reserved_bytes"] or 0)

    def _list_is_old(self, place: Place) -> bool:
        now = self._allocated(place)
        read_at, listed = self._listed.get(place, (0.0, None))
        if now is None or self._clock() - read_at < LISTS_APART_SECONDS:
            return False
        return listed is None or abs(now - listed) >= MOVED_BYTES

    def _note_movement(self, place: Place) -> None:
        allocated = self._allocated(place)
        if allocated is not None:
            self._note(place, allocated)
        self._before[place] = allocated

    def _note(self, place: Place, allocated: int) -> None:
        before = self._before.get(place)
        if before is not None and abs(allocated - before) >= MOVED_BYTES:
            self._moved_at[place] = self._clock()


def _unlike(uuids: dict[str, Place], place: Place, device: dict[str, Any]) -> dict[str, Any]:
    """The device; without its name, and with that fault, where a place before this has the same UUID."""
    first = uuids.setdefault(device["uuid"], place) if "uuid" in device else place
    if first == place:
        return device
    why = faults.explain(faults.INCONSISTENT, f"devices {first} and {place} have one UUID")
    known = {key: device[key] for key in ("index", "instance")}
    return known | {"memory_fault": why, "processes_fault": why}


def _device_fault(fault: NvmlFault) -> dict[str, str]:
    """A fault of one device, as the fields of a ``Fault``; one of the whole driver is raised again."""
    if fault.code in faults.WHOLE_DRIVER:
        raise fault
    return faults.explain(fault.code, fault.text)
