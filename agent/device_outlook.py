"""One device over hours: what of it grows beside its KV pools, whose it is, and how long until it is full."""

from collections.abc import Hashable, Mapping
from itertools import chain

from agent.memory.creep import CreepWatch
from agent.memory.units import size_text
from agent.snapshot import Device, DeviceForecast, ExhaustionSeconds, MemoryStep

LEAST_RESERVE_BYTES = 256 * 2**20
MOST_SECONDS = 30 * 86400.0
DEVICE_OWNERS = {
    "other_processes": "processes of no server",
    "hidden": "memory in no visible process",
    "host": "the host's own processes and caches",
}


class DeviceOutlook:
    """Creep of a device as a whole and by owner; what other processes take is none of the servers'."""

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, lodgers: Hashable) -> None:
        self._lodgers = lodgers
        self._own = CreepWatch()
        self._owners: dict[str, CreepWatch] = {}
        self._beside = 0  # pools and other processes, at the newest reading

    def take(self, device: Device, lodgers: Hashable, now: float) -> None:
        """Take a device whose servers are all read; other ``lodgers`` than before begin everything anew."""
        if device.total_bytes is None or device.free_bytes is None:
            return
        if lodgers != self._lodgers:
            self._begin(lodgers)
        held: dict[str, int] = {}
        pools = 0
        for part in device.components:
            if part.component.startswith("kv_"):
                pools += part.bytes
            elif part.server or part.component in DEVICE_OWNERS:
                owner = part.server or part.component
                held[owner] = held.get(owner, 0) + part.bytes
        beside = pools + held.get("other_processes", 0)
        peak = device.used_max_bytes.get("60s")
        used = device.total_bytes - device.free_bytes
        self._beside = beside
        self._own.add(now, used - beside, None if peak is None else peak - beside)
        for owner, count in held.items():
            self._owners.setdefault(owner, CreepWatch()).add(now, count)

    def forecast(self, device: Device, activations_bytes: int) -> DeviceForecast | None:
        """Until the room that is kept for temporaries is all that is left; None while nothing is known to grow.

        ``activations_bytes``: the most that the budgets of its servers expect at once.
        """
        guests = self._owners.get("other_processes")
        growing = [one.creep for one in (self._own, guests) if one is not None and one.creep is not None]
        if not growing or self._own.envelope is None or device.total_bytes is None:
            return None
        slope = sum(creep.bytes_per_hour for creep in growing)
        deviation = sum(creep.deviation for creep in growing)
        seen = self._own.transient_bytes
        reserve = max(seen or 0, activations_bytes, LEAST_RESERVE_BYTES)
        room = max(0, device.total_bytes - self._beside - self._own.envelope - reserve)
        by_owner = {owner: watch.creep.bytes_per_hour for owner, watch in self._owners.items() if watch.creep}
        return DeviceForecast(
            exhaustion_seconds=ExhaustionSeconds(
                likely=_within(3600 * room / slope), early=_within(3600 * room / (slope + 2 * deviation))
            ),
            cause=_cause(by_owner, slope),
            bytes_per_hour=slope,
            deviation_bytes_per_hour=deviation,
            rise_bytes=sum(creep.rise_bytes for creep in growing),
            room_bytes=room,
            reserve_bytes=reserve,
            transient_seen_bytes=seen,
            by_owner=by_owner,
        )

    def steps(self, now: float) -> tuple[MemoryStep, ...]:
        """Changes of level that stayed, by owner, the newest last."""
        found = chain.from_iterable(
            ((step.at, owner, step.bytes) for step in watch.steps) for owner, watch in self._owners.items()
        )
        return tuple(
            MemoryStep(age_seconds=max(0.0, now - at), owner=owner, bytes=size) for at, owner, size in sorted(found)
        )[-16:]


def _within(seconds: float) -> float | None:
    return seconds if seconds <= MOST_SECONDS else None


def _cause(by_owner: Mapping[str, float], slope: float) -> str:
    """Whose memory grows most, in words."""
    if not by_owner:
        return f"memory outside the KV pools grows by {size_text(round(slope))} an hour; whose it is can't be told"
    owner = max(by_owner, key=lambda name: by_owner[name])
    whose = DEVICE_OWNERS.get(owner) or f"{owner} outside its KV pool"
    return f"{whose}: {size_text(round(by_owner[owner]))} more an hour"
