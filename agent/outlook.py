"""What is coming, every five seconds: time left in pools and on devices, and one level of risk of each with its reason.

Numbers are those of the snapshot; what they are compared with is in ``agent.memory.risk``.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from agent.device_risk import DeviceRisk, DeviceTold
from agent.guests import Guests
from agent.memory import risk
from agent.memory.forecast import Forecast
from agent.memory.risk import Risk, Sign
from agent.pool_signals import Key
from agent.seating import ServerView
from agent.server_risk import Forecasts, ServerRisk
from agent.snapshot import Chains, Device, ExhaustionSeconds, PoolForecast, Server
from collectors.readings import HostMemory

LOOK_SECONDS = 5.0


class _ServerTold(Struct, frozen=True, kw_only=True):
    pools: dict[Key, PoolForecast]
    risk: Risk | None


class Outlook:
    """Remembers devices and servers between looks; ``device`` and ``server`` give records what the last look found.

    ``headroom_ratio``: below it a device has too little headroom, from the next look on.
    """

    def __init__(self) -> None:
        self.headroom_ratio = risk.HEADROOM_RATIO
        self._looked_at: float | None = None
        self._scene: list[object] = []
        self._devices: dict[str, DeviceRisk] = {}
        self._guests: dict[str, Guests] = {}
        self._servers: dict[str, ServerRisk] = {}
        self._pressure: deque[tuple[float, float]] = deque(maxlen=4)
        self._of_devices: dict[str, DeviceTold] = {}
        self._of_servers: dict[str, _ServerTold] = {}

    def is_due(
        self,
        servers: Mapping[str, Server],
        devices: Sequence[Device],
        forecasts: Mapping[str, Forecasts],
        now: float,
    ) -> bool:
        """Whether the last look is long enough ago, or what it was of has another state or level since."""
        return (
            self._looked_at is None
            or now - self._looked_at >= LOOK_SECONDS
            or _scene(servers, devices, forecasts) != self._scene
        )

    def look(
        self,
        views: Mapping[str, ServerView],
        servers: Mapping[str, Server],
        devices: Sequence[Device],
        forecasts: Mapping[str, Forecasts],
        host: HostMemory | None,
        now: float,
        *,
        looked_at: float = math.inf,
    ) -> None:
        """Look at everything once; times are monotonic. ``looked_at``: when the newest look at all processes began."""
        self._looked_at = now
        self._scene = _scene(servers, devices, forecasts)
        self._see_pressure(host, now)
        known = {_key(device): device for device in devices}
        self._servers = {name: self._servers.get(name) or ServerRisk() for name in views}
        guests = self._see_guests(known, servers, now, looked_at)
        self._of_servers = {
            name: _ServerTold(
                pools={key: _pool_forecast(one) for key, one in forecasts[name].items()},
                risk=self._servers[name].look(view, servers[name], known, forecasts[name], now, guests=guests),
            )
            for name, view in views.items()
        }
        self._devices = {uuid: self._devices.get(uuid) or DeviceRisk() for uuid in known}
        self._of_devices = {
            uuid: self._devices[uuid].look(
                device,
                [(views[name], servers[name]) for name in self._lodgers(uuid, servers)],
                self._host(host),
                now,
                guests=guests[uuid],
                headroom_rule=self.headroom_ratio,
            )
            for uuid, device in known.items()
        }

    def _lodgers(self, uuid: str, servers: Mapping[str, Server]) -> list[str]:
        """Who lives on a device, or did until it went down."""
        return [name for name, one in servers.items() if uuid in (*one.devices, *self._servers[name].devices)]

    def _see_guests(
        self, devices: Mapping[str, Device], servers: Mapping[str, Server], now: float, looked_at: float
    ) -> dict[str, Mapping[str, int]]:
        self._guests = {uuid: self._guests.get(uuid) or Guests() for uuid in devices}
        return {
            uuid: self._guests[uuid].take(
                device,
                now=now,
                looked_at=looked_at,
                is_changing=any(servers[name].state in ("loading", "down") for name in self._lodgers(uuid, servers)),
            )
            for uuid, device in devices.items()
        }

    def _see_pressure(self, host: HostMemory | None, now: float) -> None:
        last = self._pressure[-1][0] if self._pressure else float("-inf")
        if host is not None and "full" in host.pressure_seconds and now - last >= LOOK_SECONDS - 1:
            self._pressure.append((now, host.pressure_seconds["full"]))

    def _host(self, host: HostMemory | None) -> Sign | None:
        if host is None or not host.total_bytes:
            return None
        seen = list(self._pressure)
        stalls = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(seen, seen[2:], strict=False) if b[0] > a[0]]
        return risk.host(available_ratio=host.available_bytes / host.total_bytes, stalls=stalls)

    def device(self, device: Device) -> Device:
        """The record with what the last look found."""
        told = self._of_devices.get(_key(device))
        if told is None:
            return device
        return structs.replace(device, forecast=told.forecast, steps=told.steps, risk=told.risk)

    def server(self, server: Server) -> Server:
        """The record with what the last look found."""
        told = self._of_servers.get(server.name)
        if told is None:
            return server
        pools = tuple(
            structs.replace(pool, forecast=forecast)
            if (forecast := told.pools.get((pool.replica, pool.kind))) is not None
            else pool
            for pool in server.pools
        )
        return structs.replace(server, pools=pools, risk=told.risk)


def _key(device: Device) -> str:
    return device.uuid or f"gpu {device.gpu}"


def _scene(
    servers: Mapping[str, Server], devices: Sequence[Device], forecasts: Mapping[str, Forecasts]
) -> list[object]:
    """What, when it is another, is looked at without delay."""
    here = [(_key(device), device.total_bytes is None) for device in devices]
    levels = [one.level for of in forecasts.values() for one in of.values()]
    return [here, [(one.name, one.state, one.restarts) for one in servers.values()], levels]


def _pool_forecast(one: Forecast) -> PoolForecast:
    return PoolForecast(
        exhaustion_seconds=ExhaustionSeconds(likely=one.likely_seconds, early=one.early_seconds),
        cause=one.cause,
        outcome=one.outcome,
        level=one.level,
        exhausted=one.exhausted,
        probability_2min=one.probability_2min,
        probability_5min=one.probability_5min,
        admitted_ratio=one.admitted_ratio,
        queue_at_limit=one.queue_at_limit,
        max_sequences=one.max_sequences,
        shortages_per_minute=one.shortages_per_minute,
        chains=None
        if one.chains is None
        else Chains(**{name: getattr(one.chains, name) for name in Chains.__struct_fields__}),
        age_seconds=one.age_seconds,
    )
