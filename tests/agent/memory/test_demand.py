"""What running and coming requests will want of a pool."""

import pytest

from agent.memory.demand import HORIZONS, demands
from agent.memory.lengths import Survival
from agent.memory.running_set import Running

CAPACITY = 100_000


class Forever(Survival):
    """Nobody ends."""

    def __init__(self) -> None:
        super().__init__([0.0])

    def log(self, tokens: float) -> float:
        return 0.0


class Until(Forever):
    """Everybody ends at so many tokens."""

    def __init__(self, end: float) -> None:
        super().__init__()
        self._end = end

    def __call__(self, tokens: float) -> float:
        return 1.0 if tokens < self._end else 0.0


def running(**changes: object) -> Running:
    known: dict[str, object] = {
        "count": 10,
        "waiting": 0,
        "held": 5000.0,
        "age": 3000.0,
        "age_is_known": True,
        "speed": 20.0,
        "growth_share": 1.0,
        "output": 300.0,
        "survival": Forever(),
        "arrivals": 0.0,
        "arrivals_before": 0.0,
        "prompt": 2000.0,
        "cap": None,
        "limited_seconds": 0.0,
    }
    return Running(**{**known, **changes})  # type: ignore[arg-type]


def test_a_closed_set_grows_by_its_speed() -> None:
    """10 x (2000 + 3000 + 20 t): 56 000 after 30 s, 110 000 after 300."""
    found = demands(running(), CAPACITY)

    assert [one.seconds for one in found] == list(HORIZONS)
    assert [one.admitted for one in found] == [50_000 + 200 * at for at in HORIZONS]
    assert [one.mean for one in found] == [one.admitted for one in found]
    assert found[0].sd == pytest.approx(1000.0)  # one per cent of the pool; nobody ends, nobody comes


def test_chains_that_end_take_nothing_along() -> None:
    """At 4000 tokens all end: 1000 more at 20 a second are 50 s."""
    found = demands(running(survival=Until(4000.0)), CAPACITY)

    assert [one.admitted for one in found] == [56_000, 0, 0, 0, 0, 0]


def test_a_footprint_of_a_window_does_not_grow() -> None:
    """What a sequence generates beyond it takes no room."""
    found = demands(running(growth_share=0.0, prompt=5000.0), CAPACITY)

    assert {one.admitted for one in found} == {50_000.0}


def test_arrivals_bring_their_prompts_and_grow() -> None:
    """One in 2 s over 30 s: 15 x (2000 + 20 x 15 s on average) = 34 500."""
    first = demands(running(arrivals=0.5, arrivals_before=0.5), CAPACITY)[0]

    assert first.mean - first.admitted == pytest.approx(34_500)


def test_the_newer_of_two_rates_counts_where_it_is_higher() -> None:
    """A rise counts at once, a fall by half."""
    risen, fallen = (
        demands(running(arrivals=new, arrivals_before=old), CAPACITY)[0] for new, old in ((0.5, 0.1), (0.1, 0.5))
    )

    assert risen.mean - risen.admitted == pytest.approx(34_500)
    assert fallen.mean - fallen.admitted == pytest.approx(34_500 * 0.6)


def test_no_more_come_in_than_the_sequence_limit_lets() -> None:
    """All ten places are taken by requests that do not end: what waits and what comes stays outside."""
    found = demands(running(cap=10, waiting=50, arrivals=5.0), CAPACITY)

    assert [one.mean for one in found] == [one.admitted for one in found]


def test_a_queue_comes_in_below_the_limit() -> None:
    """Five wait, two places are free: two prompts that grow for 30 s."""
    first = demands(running(cap=12, waiting=5), CAPACITY)[0]

    assert first.mean - first.admitted == pytest.approx(2 * (2000 + 600))


def test_no_sequence_gets_longer_than_the_model_allows() -> None:
    """At 6000 tokens it ends: 10 x 6000."""
    assert max(one.admitted for one in demands(running(), CAPACITY, longest=6000)) == 60_000


def test_unsure_of_few_arrivals() -> None:
    """12 arrivals in two minutes: what comes is known to 1 / sqrt 12 of itself, besides what comes by chance."""
    found = demands(running(arrivals=0.1, arrivals_before=0.1), CAPACITY)[0]
    more = found.mean - found.admitted

    assert found.sd > more / 12**0.5
