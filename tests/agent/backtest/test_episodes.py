"""What happened in a recording."""

from msgspec.structs import replace

from agent.backtest.episodes import episodes_of
from agent.memory.signals import PoolSignal
from tests.agent.memory.pool_signals import signals


def rise(at: float) -> float:
    """0.4 until 100 s, then 0.5 % a second: 0.6 at 140 s, full at 220 s."""
    return 0.4 if at < 100 else 0.4 + 0.005 * (at - 100)


def counted(found: list[PoolSignal], at: float, shortages: int = 1) -> list[PoolSignal]:
    """The same with a shortage counted from then on."""
    return [replace(one, shortages=shortages) if one.at >= at else one for one in found]


def test_a_recording_without_shortage_is_one_episode() -> None:
    found = episodes_of(list(signals(lambda at: 0.5)))

    assert [(one.begin, one.end, one.event) for one in found] == [(0.0, 299.0, False)]


def test_an_episode_ends_with_its_first_shortage() -> None:
    """Its rise is from the last moment below 0.6; what follows within two minutes belongs to it."""
    (first,) = episodes_of(counted(list(signals(rise, seconds=280)), 220.0))

    assert (first.event, first.end, first.kind) == (True, 220.0, "foreseeable")
    assert 79 <= first.rise_seconds <= 81
    assert first.near[0] == 210.0


def test_another_begins_after_two_quiet_minutes() -> None:
    found = episodes_of(counted(list(signals(rise, seconds=600)), 220.0))

    assert [(one.begin, one.end, one.event) for one in found] == [(0.0, 220.0, True), (340.0, 599.0, False)]


def test_a_jump_is_told_apart() -> None:
    """Use was 0.4 a minute before."""
    (first,) = episodes_of(counted(list(signals(lambda at: 0.4 if at < 195 else 1.0, seconds=220)), 200.0))

    assert first.kind == "jump"


def test_an_event_in_a_blind_time_was_unseen() -> None:
    """Nothing was read for the half minute before."""
    seen = [one for one in signals(rise, seconds=230) if not 180 <= one.at < 220]
    (first,) = episodes_of(counted(seen, 220.0))

    assert first.kind == "unseen"


def test_a_restart_ends_an_episode_without_an_event() -> None:
    """Counters fall; what was before is over."""
    before, after = list(signals(lambda at: 0.5, seconds=100)), list(signals(lambda at: 0.1, begin=100, seconds=100))
    found = episodes_of([*before, *(replace(one, generation_tokens=10, finished=0) for one in after)])

    assert [(one.begin, one.end, one.event) for one in found] == [(0.0, 99.0, False), (100.0, 199.0, False)]


def test_a_preemption_shows_before_it_is_counted() -> None:
    """Two of ten are gone, none has finished, two more wait, and use falls from 0.99: that is the moment."""
    full = list(signals(lambda at: 0.99, seconds=100))
    less = [
        replace(one, running=8, waiting=2, used_ratio=0.8, generation_tokens=1_099_000)
        for one in signals(lambda at: 0.8, begin=100, seconds=60)
    ]
    (first,) = episodes_of(counted([*full, *less], 118.0))

    assert (first.event, first.end) == (True, 100.0)


def test_stale_gauges_show_no_preemption() -> None:
    """Gauges and counters of different moments: only what is counted is believed."""
    full = list(signals(lambda at: 0.99, seconds=100))
    less = [
        replace(one, running=8, waiting=2, used_ratio=0.8, generation_tokens=1_099_000)
        for one in signals(lambda at: 0.8, begin=100, seconds=60)
    ]
    (first,) = episodes_of(counted([*full, *less], 118.0), live_gauges=False)

    assert first.end == 118.0
