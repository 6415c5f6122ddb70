"""What comes of one device: what grows on it, and its risk from that, its room, its guests and its hardware."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from agent.device_outlook import DeviceOutlook
from agent.memory import risk
from agent.memory.risk import Risk, RiskWatch, Sign
from agent.seating import ServerView
from agent.server_risk import transient_sign
from agent.snapshot import Device, DeviceForecast, MemoryStep, Server


class DeviceTold(Struct, frozen=True, kw_only=True):
    """What a look found."""

    forecast: DeviceForecast | None
    steps: tuple[MemoryStep, ...]
    risk: Risk


class DeviceRisk:
    """One device between looks."""

    def __init__(self) -> None:
        self._outlook = DeviceOutlook()
        self._risk = RiskWatch()

    def look(
        self,
        device: Device,
        lodgers: Sequence[tuple[ServerView, Server]],
        host: Sign | None,
        now: float,
        *,
        guests: Mapping[str, int],
        headroom_rule: float,
    ) -> DeviceTold:
        """``lodgers`` live on it, or did until they went down; ``guests``: bytes that are surely of no server.

        ``headroom_rule``: the ratio below which there is too little.
        """
        read = all(view.reading is not None or server.state == "down" for view, server in lodgers)
        if read:
            runs = frozenset((server.name, server.state, server.started_at, server.pids[:1]) for _, server in lodgers)
            self._outlook.take(device, runs, now)
        forecast = self._outlook.forecast(
            device, sum(_activations(view) for view, server in lodgers if server.state != "down")
        )
        signs = self._signs(device, lodgers, guests, forecast, headroom_rule)
        if host is not None and device.memory_kind == "unified":
            signs = [*signs, host]
        blind = device.total_bytes is None
        return DeviceTold(
            forecast=forecast,
            steps=self._outlook.steps(now),
            risk=self._risk.look(now, signs, blind=blind),
        )

    def _signs(
        self,
        device: Device,
        lodgers: Sequence[tuple[ServerView, Server]],
        guests: Mapping[str, int],
        forecast: DeviceForecast | None,
        headroom_rule: float,
    ) -> list[Sign]:
        found: list[Sign | None] = [risk.headroom(device.headroom_ratio, headroom_rule)]
        found += [transient_sign(room) for room in device.transients.values()]
        if forecast is not None:
            found.append(risk.creeping(forecast.exhaustion_seconds.likely, forecast.bytes_per_hour))
        if device.health is not None:
            health = device.health
            found.append(
                risk.broken(
                    lost=health.lost,
                    remap_failure=health.row_remap_failure,
                    remap_pending=health.row_remap_pending,
                    ecc=health.ecc_uncorrected,
                    xids=health.xids,
                )
            )
        if lodgers and all(server.pids or server.state == "down" for _, server in lodgers):
            known = {part.component for part in device.components if not part.server}
            found += risk.guests(guests, hidden_is_known={"reserved", "other_processes"} <= known)
        return [sign for sign in found if sign is not None]


def _activations(view: ServerView) -> int:
    """The most that a rank's budget expects for one step."""
    ranks = view.budget.ranks if view.budget else ()
    return max((rank.runtime.activations.high for rank in ranks if rank.runtime), default=0)
