"""What the running requests hold, by conservation of tokens."""

import pytest

from agent.memory.running_set import Running, RunningSet
from agent.memory.signals import PoolSignal
from tests.agent.memory.pool_signals import CAPACITY


def signal(at: float, **changes: int | float) -> PoolSignal:
    known: dict[str, float | int] = {
        "used_ratio": 0.5,
        "capacity_tokens": CAPACITY,
        "running": 10,
        "waiting": 0,
        "shortages": 0,
        "prompt_tokens": 0,
        "generation_tokens": 0,
        "finished": 0,
        "finished_prompt_tokens": 0,
        "finished_generation_tokens": 0,
    }
    return PoolSignal(at=at, **{**known, **changes})  # type: ignore[arg-type]


def after(signals: list[PoolSignal], *, cap: int | None = None, live: bool = True, grows: bool = True) -> Running:
    requests = RunningSet(cap=cap, live_gauges=live, grows=grows)
    for one in signals:
        requests.add(one)
    state = requests.state(CAPACITY, signals[-1].used_ratio or 0.0)
    assert state is not None
    return state


def test_generated_tokens_are_those_that_no_finished_request_took_along() -> None:
    """70 000 generated, 40 000 of them by finished ones: 30 000 held by 10, so 3000 each of 5000 held."""
    state = after([signal(0), signal(1, generation_tokens=70_000, finished_generation_tokens=40_000, finished=20)])

    assert state.age == 3000.0
    assert state.held == 5000.0
    assert state.prompt == 2000.0


def test_what_was_never_counted_as_finished_is_forgotten_when_nothing_runs() -> None:
    """Aborted requests left 5000 tokens behind; once nothing runs they are no one's."""
    idle = signal(1, running=0, used_ratio=0.0, generation_tokens=9000, finished_generation_tokens=4000)
    state = after([signal(0), idle, signal(2, generation_tokens=19_000, finished_generation_tokens=4000)])

    assert state.age == 1000.0


def test_no_more_is_generated_than_is_held() -> None:
    """Counters that are off by much do not make a footprint negative."""
    state = after([signal(0), signal(1, generation_tokens=900_000, prompt_tokens=1)])

    assert state.age == state.held == 5000.0


def test_speed_is_what_is_generated_by_request_and_second() -> None:
    """10 requests, 400 tokens a second together."""
    state = after([signal(float(s), generation_tokens=400 * s) for s in range(60)])

    assert state.speed == pytest.approx(40.0)


def test_arrivals_are_admissions_and_what_joins_the_queue() -> None:
    """One finishes and is replaced each second, and one more a second waits: two a second come."""
    signals = [signal(float(s), finished=s, waiting=s) for s in range(130)]

    assert after(signals).arrivals == pytest.approx(2.0, rel=0.02)


def test_lengths_are_learnt_from_those_that_finish() -> None:
    """100 requests of 50 tokens, and the one of 300 that is always there."""
    signals = [signal(float(s), finished=s, finished_generation_tokens=50 * s) for s in range(101)]

    assert after(signals).output == pytest.approx((100 * 50 + 300) / 101, rel=0.03)


def test_the_sequence_limit_is_learnt_from_a_queue_before_a_pool_with_room() -> None:
    """Always 10, while others wait and half of the pool is free."""
    assert after([signal(float(s), waiting=3) for s in range(20)]).cap == 10


def test_no_limit_is_learnt_before_a_full_pool() -> None:
    """They wait for room."""
    assert after([signal(float(s), waiting=3, used_ratio=0.97) for s in range(20)]).cap is None


def test_a_limit_that_is_passed_was_none() -> None:
    """Ten held against a queue, then twelve run."""
    signals = [signal(float(s), waiting=3) for s in range(20)]

    assert after([*signals, signal(20.0, running=12)]).cap == 12


def test_a_given_limit_is_believed() -> None:
    assert after([signal(float(s), waiting=3) for s in range(20)], cap=64).cap == 64


def test_time_limited_by_room_is_that_of_a_queue_below_the_limit() -> None:
    """Sixty seconds of it; a little fades."""
    state = after([signal(float(s), waiting=3, used_ratio=0.96) for s in range(61)], cap=64)

    assert 55 < state.limited_seconds <= 60
    assert after([signal(float(s), waiting=3, used_ratio=0.96) for s in range(61)], cap=10).limited_seconds == 0


def test_a_full_window_shows_as_growth_that_stops() -> None:
    """Half of each generated token stays: the pool grows by 200 a second while 400 are generated."""
    signals = [signal(float(s), generation_tokens=400 * s, used_ratio=0.1 + 0.002 * s) for s in range(120)]

    assert after(signals).growth_share == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize(("live", "grows", "share"), [(False, True, 1.0), (True, False, 0.0)])
def test_growth_is_not_learnt_from_stale_gauges_nor_of_reservations(live: bool, grows: bool, share: float) -> None:
    """Gauges that are renewed seldom stand still although tokens are generated; what is reserved never grows."""
    signals = [signal(float(s), generation_tokens=400 * s) for s in range(120)]

    assert after(signals, live=live, grows=grows).growth_share == share


def test_an_engine_that_does_not_count_finished_tokens_gets_an_estimate() -> None:
    """Half of what a request holds was generated, as a guess that is marked."""
    one = PoolSignal(at=0.0, used_ratio=0.5, capacity_tokens=CAPACITY, running=10)
    state = after([one, PoolSignal(at=1.0, used_ratio=0.5, capacity_tokens=CAPACITY, running=10)])

    assert (state.age, state.age_is_known) == (2500.0, False)


def test_nothing_runs_nothing_is_known() -> None:
    requests = RunningSet(cap=None, live_gauges=True, grows=True)
    requests.add(signal(0.0, running=0))

    assert requests.state(CAPACITY, 0.0) is None
