"""A level that goes up at once and comes down late."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from agent.memory.levels import LEVELS, Holding, Level, Levels

HOLDING = Holding(seconds=180.0, calm_seconds=60.0)


def walked(looks: list[tuple[float, Level, bool]]) -> list[Level]:
    levels = Levels(HOLDING)
    return [levels.look(at, wanted, calm=calm) for at, wanted, calm in looks]


def test_it_goes_up_at_once_by_any_step() -> None:
    assert walked([(0, "ok", True), (5, "critical", False)]) == ["ok", "critical"]


def test_it_comes_down_one_step_at_a_time_after_the_hold() -> None:
    """Three minutes after the last look that asked for it, and five seconds later the next step."""
    looks: list[tuple[float, Level, bool]] = [(0, "critical", False)]
    looks += [(float(at), "ok", False) for at in range(5, 200, 5)]

    found = walked(looks)

    assert found[:36] == ["critical"] * 36
    assert found[36:40] == ["at_risk", "watch", "ok", "ok"]


def test_calm_brings_it_down_sooner() -> None:
    """After a minute without unrest."""
    looks: list[tuple[float, Level, bool]] = [(0, "at_risk", False)]
    looks += [(float(at), "ok", True) for at in range(5, 80, 5)]

    assert walked(looks)[11:15] == ["at_risk", "watch", "ok", "ok"]


def test_each_level_has_a_hold_of_its_own() -> None:
    """Critical for a moment, at risk ever since: it goes back to at_risk and stays there."""
    looks: list[tuple[float, Level, bool]] = [(0, "critical", False)]
    looks += [(float(at), "at_risk", False) for at in range(5, 400, 5)]

    assert walked(looks)[-1] == "at_risk"


def test_what_is_gone_has_no_level() -> None:
    levels = Levels(HOLDING)
    levels.look(0.0, "critical", calm=False)

    levels.clear()

    assert levels.look(5.0, "ok", calm=True) == "ok"


@given(st.lists(st.sampled_from(LEVELS), min_size=1, max_size=200))
def test_it_is_never_below_what_is_asked_for_and_falls_by_single_steps(asked: list[Level]) -> None:
    """Whatever the looks are."""
    found = walked([(5.0 * n, level, False) for n, level in enumerate(asked)])

    assert all(LEVELS.index(level) >= LEVELS.index(want) for level, want in zip(found, asked, strict=True))
    steps = [LEVELS.index(b) - LEVELS.index(a) for a, b in itertools.pairwise(found)]
    assert all(step >= -1 for step in steps)


def test_a_level_lingers_while_looks_ask_for_the_one_below() -> None:
    """Not yet ok: an alarm that ends then is back within the minute."""
    levels = Levels(Holding(seconds=180.0, calm_seconds=60.0, lingering_seconds=120.0))
    levels.look(0.0, "at_risk", calm=False)

    assert levels.look(180.0, "watch", calm=False) == "at_risk"
    assert levels.look(299.0, "watch", calm=False) == "at_risk"
    assert levels.look(300.0, "watch", calm=False) == "watch"


def test_a_level_does_not_linger_once_looks_ask_for_ok() -> None:
    """What asks for nothing is over after the usual time."""
    levels = Levels(Holding(seconds=180.0, calm_seconds=60.0, lingering_seconds=120.0))
    levels.look(0.0, "at_risk", calm=False)

    assert levels.look(179.0, "watch", calm=False) == "at_risk"
    assert levels.look(181.0, "ok", calm=False) == "watch"
