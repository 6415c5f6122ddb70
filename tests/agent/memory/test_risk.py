"""One level with its reason: which sign asks for which, what wins, and how it falls."""

import pytest

from agent.memory import risk
from agent.memory.risk import HOLD_SECONDS, OK, REASONS, Risk, RiskWatch, Sign

GIB = 2**30


def watch_sign(level: str = "watch", reason: str = "low_headroom", **more: object) -> Sign:
    return Sign(level=level, reason=reason, **more)  # type: ignore[arg-type] # literals


SIGNS = [
    (risk.storm(60, 50), "critical"),  # one a second of fifty: 2 %
    (risk.storm(12, 50), None),  # 0.4 %
    (risk.storm(None, 50), None),
    (risk.storm(60, 0), None),
    (risk.transient_room(2 * GIB, GIB, seen=True), "at_risk"),
    (risk.transient_room(2 * GIB, GIB, seen=False), "watch"),
    (risk.transient_room(GIB, GIB, seen=True), None),
    (risk.transient_room(GIB, None, seen=True), None),
    (risk.headroom(0.11), None),
    (risk.headroom(0.09), "watch"),
    (risk.headroom(0.11, 0.15), "watch"),
    (risk.headroom(0.025, 0.02), None),
    (risk.headroom(0.01, 0.02), "at_risk"),
    (risk.headroom(0.02), "at_risk"),
    (risk.headroom(None), None),
    (risk.creeping(None, 1.0), None),
    (risk.creeping(80 * 3600.0, 1.0), None),
    (risk.creeping(70 * 3600.0, 1.0), "watch"),
    (risk.creeping(5 * 3600.0, 1.0), "at_risk"),
    (risk.creeping(0.0, 1.0), "critical"),
    (risk.unlike_budget(fits=False, unexplained_bytes=0, total_bytes=80 * GIB), "watch"),
    (risk.unlike_budget(fits=True, unexplained_bytes=3 * GIB, total_bytes=80 * GIB), "watch"),
    (risk.unlike_budget(fits=None, unexplained_bytes=2 * GIB, total_bytes=80 * GIB), None),
    (risk.cannot_start(needed_bytes=17 * GIB, room_bytes=16 * GIB), "at_risk"),
    (risk.cannot_start(needed_bytes=None, room_bytes=16 * GIB), None),
    (risk.fragmented(0.3), "watch"),
    (risk.fragmented(None), None),
    (risk.residue(3 * GIB, None), None),
    (risk.residue(5 * GIB, 5 * GIB), "watch"),
    (risk.residue(11 * GIB, 4 * GIB), "at_risk"),
    (risk.restarting(2, 2), None),
    (risk.restarting(3, 0), "at_risk"),
    (risk.restarting(3, 1), "critical"),
    (risk.host(available_ratio=0.5, stalls=[0.2]), None),  # one look is none
    (risk.host(available_ratio=0.5, stalls=[0.2, 0.2]), "critical"),
    (risk.host(available_ratio=0.5, stalls=[0.05, 0.2]), None),
    (risk.host(available_ratio=0.04, stalls=[]), "at_risk"),
    (risk.broken(lost=True, remap_failure=None, remap_pending=None, ecc=None, xids={}), "critical"),
    (risk.broken(lost=False, remap_failure=None, remap_pending=True, ecc=None, xids={}), "watch"),
    (risk.broken(lost=False, remap_failure=None, remap_pending=None, ecc=0, xids={94: 1}), "at_risk"),
    (risk.broken(lost=False, remap_failure=None, remap_pending=None, ecc=0, xids={31: 1}), None),  # an application's
]


@pytest.mark.parametrize(("sign", "level"), SIGNS)
def test_what_a_sign_asks_for(sign: Sign | None, level: str | None) -> None:
    """Each rule beside its threshold; what is not known asks for nothing; what asks has numbers."""
    assert (sign.level if sign else None) == level
    assert sign is None or (sign.reason in REASONS and sign.numbers)


def test_guests() -> None:
    """Processes of no server, and memory of nobody where that is no gap in what can be seen."""
    parts = {"other_processes": GIB, "hidden": GIB}

    assert [sign.reason for sign in risk.guests(parts, hidden_is_known=True)] == ["foreign_process", "hidden_memory"]
    assert [sign.reason for sign in risk.guests(parts, hidden_is_known=False)] == ["foreign_process"]
    assert list(risk.guests({"other_processes": GIB // 8, "hidden": 0}, hidden_is_known=True)) == []


def test_up_at_once_and_down_one_level_at_a_time_after_the_hold() -> None:
    """The reason stays that of the highest; then all is well."""
    watch = RiskWatch()

    levels = [watch.look(0.0, [watch_sign("critical", "preemption_storm", numbers={"x": 1})])]
    levels += [watch.look(at, []) for at in (HOLD_SECONDS - 5, HOLD_SECONDS, 2 * HOLD_SECONDS, 3 * HOLD_SECONDS)]

    assert [one.level for one in levels[:3]] == ["critical", "critical", "at_risk"]
    assert {one.reason for one in levels[:3]} == {"preemption_storm"}
    assert levels[-1] == OK
    assert levels[2].numbers == {"x": 1}


def test_a_held_level_says_since_when_and_how_old_its_numbers_are() -> None:
    """A sign that is only milder brings fresh numbers; without one they age with the level."""
    watch = RiskWatch()

    asked = watch.look(0.0, [watch_sign("at_risk", numbers={"headroom_ratio": 0.02})])
    milder = watch.look(40.0, [watch_sign(numbers={"headroom_ratio": 0.05})])
    gone = watch.look(60.0, [])
    elsewhere = RiskWatch().look(0.0, [watch_sign("critical", "pool_exhaustion", held=True, held_seconds=7.0)])

    assert (asked.held_seconds, asked.numbers_age_seconds) == (None, 0.0)
    assert (milder.held_seconds, milder.numbers_age_seconds) == (40.0, 0.0)
    assert (gone.held_seconds, gone.numbers_age_seconds) == (60.0, 20.0)
    assert gone.numbers == {"headroom_ratio": 0.05}
    assert elsewhere.held_seconds == 7.0


def test_other_reasons_say_that_they_are_held_too() -> None:
    """So that what is over is not taken for one of several things that are wrong now."""
    watch = RiskWatch()
    watch.look(0.0, [watch_sign("at_risk", "hardware"), watch_sign(reason="low_headroom"), watch_sign(reason="blind")])

    later = watch.look(30.0, [watch_sign("at_risk", "hardware"), watch_sign(reason="blind")])

    assert later.also == {"low_headroom": "watch", "blind": "watch"}
    assert (later.held_seconds, later.also_held_seconds) == (None, {"low_headroom": 30.0})


def test_the_gravest_sign_gives_the_reason() -> None:
    """Of two as grave the first of the closed list, and then the one that it has."""
    watch = RiskWatch()

    first = watch.look(0.0, [watch_sign(reason="low_headroom"), watch_sign("at_risk", "sleep_residue")])
    second = watch.look(5.0, [watch_sign("at_risk", "no_transient_room"), watch_sign("at_risk", "sleep_residue")])
    alike = RiskWatch().look(0.0, [watch_sign(reason="fragmentation"), watch_sign(reason="low_headroom")])

    assert (first.level, first.reason) == ("at_risk", "sleep_residue")
    assert second.reason == "sleep_residue"
    assert alike.reason == "low_headroom"


def test_a_level_that_is_held_elsewhere_is_not_held_twice() -> None:
    """A pool's level falls late already."""
    watch = RiskWatch()
    watch.look(0.0, [watch_sign("critical", "pool_exhaustion", held=True)])

    assert watch.look(5.0, [watch_sign("at_risk", "pool_exhaustion", held=True)]).level == "at_risk"
    assert watch.look(10.0, []) == OK


def test_blindness_is_never_ok() -> None:
    """What was at risk stays so however long nothing is read; what was well is watched."""
    well, bad = RiskWatch(), RiskWatch()
    well.look(0.0, [])
    bad.look(0.0, [watch_sign("at_risk", "low_headroom")])

    assert well.look(1.0, [], blind=True) == Risk(level="watch", reason="blind")
    assert [bad.look(float(at), [], blind=True).level for at in (5, 1000, 5000)] == ["at_risk"] * 3
    assert bad.look(5005.0, []).reason == "low_headroom"


def test_a_new_run_begins_at_ok() -> None:
    """At once, without a hold."""
    watch = RiskWatch()
    watch.look(0.0, [watch_sign("critical", "preemption_storm")])
    watch.clear()

    assert watch.look(1.0, []) == OK


def test_each_reason_has_its_own_level() -> None:
    """A graver one hides none; each rises, is held and falls by itself."""
    watch = RiskWatch()
    pool, room = watch_sign("at_risk", "pool_exhaustion", held=True), watch_sign(reason="low_headroom")
    creep = watch_sign("critical", "device_creep")

    first = watch.look(0.0, [pool, room, creep])
    second = watch.look(HOLD_SECONDS, [pool])
    third = watch.look(HOLD_SECONDS + 5, [])

    assert (first.level, first.reason) == ("critical", "device_creep")
    assert first.also == {"pool_exhaustion": "at_risk", "low_headroom": "watch"}
    assert second.levels == {"device_creep": "at_risk", "pool_exhaustion": "at_risk"}
    assert third.levels == {"device_creep": "watch"}
    assert OK.levels == {}


def test_blindness_is_a_reason_beside_what_stands() -> None:
    """An alert on it is not hidden either; what is held elsewhere falls at once when it is read again."""
    watch = RiskWatch()
    watch.look(0.0, [watch_sign("critical", "pool_exhaustion", held=True, numbers={"used_ratio": 1.0})])

    blind = watch.look(5.0, [watch_sign("critical", "pool_exhaustion", held=True)], blind=True)

    assert (blind.levels, blind.numbers) == ({"pool_exhaustion": "critical", "blind": "watch"}, {"used_ratio": 1.0})
    assert watch.look(10.0, []).levels == {"blind": "watch"}
