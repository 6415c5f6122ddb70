"""Which alarms a snapshot means: the shipped alerts' thresholds, patience and names, on what the snapshot says."""

import pytest
from msgspec.structs import replace

from agent.memory.risk import Risk
from agent.memory.transients import Transient
from agent.postmortem.alarms import ALERTS, Alarms, shipped_rules
from agent.rules import thresholds
from agent.snapshot import (
    Component,
    Device,
    DeviceForecast,
    ExhaustionSeconds,
    Fragmentation,
    GpuHealth,
    Server,
    Snapshot,
)
from tests.agent.recorder.test_incidents import DEVICE, SERVER
from tests.agent.test_exporter import pool

GIB = 2**30
LIMITS = {name: one.value for name, one in thresholds().items()}


def part(component: str, size: int, server: str = "") -> Component:
    return Component(component=component, server=server, bytes=size, evidence="measured", age_seconds=0.0)


def creep(seconds: float) -> DeviceForecast:
    return DeviceForecast(
        exhaustion_seconds=ExhaustionSeconds(likely=seconds, early=None),
        cause="",
        bytes_per_hour=1.0,
        deviation_bytes_per_hour=0.1,
        rise_bytes=1,
        room_bytes=1,
        reserve_bytes=1,
        transient_seen_bytes=None,
        by_owner={},
    )


def beside(other: int) -> Device:
    return replace(DEVICE, components=(part("other_processes", other), part("weights", GIB, "chat")))


def room(peak: int, evidence: str = "measured") -> Device:
    found = Transient(peak_bytes=peak, peak_evidence=evidence, room_bytes=GIB, room_evidence="measured")  # type: ignore[arg-type] # literals
    return replace(DEVICE, transients={"chat": found})


def asleep(size: int) -> tuple[Server, Device]:
    return replace(SERVER, state="sleeping"), replace(DEVICE, components=(part("runtime", size, "chat"),))


def slack(likely: float) -> Server:
    one = Fragmentation(kind="allocator", gpu="0", server="chat", replica="0", low=likely, likely=likely, high=likely)
    return replace(SERVER, fragmentation=(one,))


ON: dict[str, tuple[Server | Device, Server | Device]] = {
    "KvPoolExhausting": (
        replace(
            SERVER, risk=Risk(level="critical", reason="hardware", also={"pool_exhaustion": "at_risk"}), pools=(pool(),)
        ),
        replace(SERVER, risk=Risk(level="watch", reason="pool_exhaustion"), pools=(pool(),)),
    ),
    "KvPoolBelowMaxModelLen": (
        replace(SERVER, pools=(pool(),), max_request_tokens=3201),
        replace(SERVER, pools=(pool(),), max_request_tokens=3200),
    ),
    "FragmentationHigh": (slack(0.26), slack(0.25)),
    "HeadroomLow": (replace(DEVICE, headroom_ratio=0.09), replace(DEVICE, headroom_ratio=0.10)),
    "NoTransientRoom": (room(2 * GIB), room(GIB)),
    "DeviceCreep": (replace(DEVICE, forecast=creep(3601.0)), replace(DEVICE, forecast=creep(259201.0))),
    "DeviceExhausting": (replace(DEVICE, forecast=creep(3599.0)), replace(DEVICE, forecast=creep(3601.0))),
    "ForeignProcess": (beside(257 * 2**20), beside(255 * 2**20)),
    "DeviceLost": (
        replace(DEVICE, health=GpuHealth(gpu="0", lost=True)),
        replace(DEVICE, health=GpuHealth(gpu="0", lost=False)),
    ),
}


def on(*things: Server | Device) -> dict[str, list[str]]:
    snapshot = Snapshot(
        time=1.0,
        version="",
        servers=tuple(one for one in things if isinstance(one, Server)),
        devices=tuple(one for one in things if isinstance(one, Device)),
    )
    found = {rule.name: list(rule.on_for(snapshot, LIMITS)) for rule in shipped_rules()}
    return {name.removeprefix("Vramscope"): subjects for name, subjects in found.items() if subjects}


@pytest.mark.parametrize("name", ON)
def test_an_alert_beside_its_threshold(name: str) -> None:
    """On above, off at it; a peak that was only predicted is none."""
    above, below = ON[name]

    assert on(above) == {name: ["chat" if isinstance(above, Server) else "gpu 0"]}
    assert name not in on(below)
    assert on(room(2 * GIB, "predicted")) == {}


def test_a_sleeping_server_that_holds_much() -> None:
    """Only while it sleeps."""
    server, device = asleep(5 * GIB)

    assert on(server, device) == {"SleepResidue": ["chat"]}
    assert on(SERVER, device) == {}
    assert {*ON, "SleepResidue"} == set(ALERTS)


def test_an_alert_has_patience_and_a_level_has_none() -> None:
    """`for` as it is shipped: headroom that is low for less than five minutes is nothing yet."""
    alarms = Alarms()
    low = replace(DEVICE, headroom_ratio=0.05, risk=Risk(level="at_risk", reason="low_headroom"))
    for at in (*range(0, 400, 10), 410, *range(420, 700, 10)):
        device = low if at != 410 else replace(low, headroom_ratio=0.5)
        alarms.take(Snapshot(time=float(at), version="", devices=(device,)))

    assert [(one.rule, one.held_since, one.since, one.until) for one in alarms.spells] == [
        ("risk at_risk: low_headroom", 0.0, 0.0, 690.0),
        ("VramscopeHeadroomLow", 0.0, 300.0, 390.0),
    ]
