"""Forecasts of a pool, and what they do where the data do not carry one."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from agent.memory.forecast import Forecast, PoolForecaster
from agent.memory.signals import PoolFacts, PoolSignal
from tests.agent.memory.pool_signals import VLLM, signals


def fed(found: Iterable[PoolSignal], facts: PoolFacts = VLLM) -> tuple[PoolForecaster, list[Forecast | None]]:
    """The forecaster after these signals, and what it said at each."""
    forecaster = PoolForecaster(facts)
    said = []
    for one in found:
        forecaster.add(one)
        said.append(forecaster.forecast(one.at))
    return forecaster, said


def last(found: Iterable[PoolSignal], facts: PoolFacts = VLLM) -> Forecast:
    newest = fed(found, facts)[1][-1]
    assert newest is not None
    return newest


def rising(at: float) -> float:
    """0.2 % a second from 0.2: 0.9 after 350 s, full after 400 s."""
    return 0.2 + 0.002 * at


def test_a_steady_rise_ends_when_the_room_is_used_up() -> None:
    """At the look of 295 s 0.79 is used, and 0.2 % a second leave 105 s for the rest."""
    found = last(signals(rising, seconds=299))

    assert found.likely_seconds is not None
    assert found.early_seconds is not None
    assert found.growth_tokens_per_second == pytest.approx(200, rel=0.01)
    assert 60 <= found.early_seconds <= found.likely_seconds <= 105.1
    assert found.outcome == "preempt"


def test_the_level_rises_with_the_pool() -> None:
    """By the time it is at 0.95 it is at risk, and before that it was watched."""
    levels = [one.level for one in fed(signals(rising, seconds=380))[1] if one is not None]

    assert levels[0] == "ok"
    assert levels.index("watch") < levels.index("at_risk") < 350
    assert levels[-1] in ("at_risk", "critical")


def test_a_calm_pool_has_no_time_left_to_show() -> None:
    """At 0.4 for five minutes."""
    found = last(signals(lambda at: 0.4))

    assert (found.level, found.cause) == ("ok", "none")
    assert found.likely_seconds is None
    assert found.early_seconds is None
    assert found.probability_5min is not None
    assert found.probability_5min < 0.1


def test_less_than_a_minute_of_data_is_no_forecast() -> None:
    """However steep: only the level of what is used now stands."""
    found = last(signals(lambda at: 0.2 + 0.01 * at, seconds=50))

    assert (found.probability_2min, found.probability_5min, found.likely_seconds) == (None, None, None)


def test_a_pool_that_is_full_at_the_start_is_at_risk_without_numbers() -> None:
    found = last(signals(lambda at: 0.97, seconds=20))

    assert (found.level, found.probability_5min) == ("at_risk", None)


def test_while_blind_numbers_go_and_the_level_stands() -> None:
    """40 s after the last reading; its age is told."""
    forecaster, _ = fed(signals(rising, seconds=380))
    found = forecaster.forecast(379 + 40.0)

    assert found is not None
    assert found.level in ("at_risk", "critical")
    assert (found.probability_5min, found.likely_seconds, found.age_seconds) == (None, None, 40.0)


def test_a_short_blind_time_is_no_slope() -> None:
    """50 s without readings, and use 0.1 higher after it: the trend goes on over both sides."""
    before = list(signals(lambda at: 0.4, seconds=150))
    after = list(signals(lambda at: 0.5, begin=200, seconds=30))
    found = last([*before, *after])

    assert found.level == "ok"
    assert found.likely_seconds is None


def test_a_long_blind_time_begins_the_trend_anew() -> None:
    """After more than two minutes (also those of a host that stood still) a minute of data is needed again."""
    before = list(signals(lambda at: 0.3, seconds=150))
    after = list(signals(lambda at: 0.6, begin=400, seconds=30))

    assert last([*before, *after]).probability_5min is None


def test_a_restart_forgets_everything() -> None:
    """Counters fall: the level is ok at once, and a minute of data is needed."""
    before = list(signals(rising, seconds=380))
    after = [replace(one, generation_tokens=5, finished=0) for one in signals(lambda at: 0.1, begin=381, seconds=10)]
    found = last([*before, *after])

    assert (found.level, found.probability_5min) == ("ok", None)


def test_sleep_ends_a_forecast() -> None:
    """There is no pool."""
    forecaster, said = fed([*signals(rising, seconds=380), PoolSignal(at=380.0)])

    assert said[-1] is None
    assert forecaster.forecast(400.0) is None


def test_times_that_go_back_are_ignored() -> None:
    """A clock is monotonic; a reading that is older than the last is none."""
    found = list(signals(lambda at: 0.4, seconds=100))

    assert last([*found, replace(found[10], used_ratio=1.0)]).used_ratio == 0.4


def exhausted() -> list[PoolSignal]:
    """Full at 400 s; from then on one preemption more each ten seconds for a minute, and use dips to 0.7."""
    before = list(signals(rising, seconds=400))
    after = [
        replace(one, shortages=1 + min(6, int(one.at - 400) // 10), generation_tokens=2_000_000)
        for one in signals(lambda at: 0.7, begin=400, seconds=300)
    ]
    return [*before, *after]


def test_after_the_first_preemption_a_dip_is_no_relief() -> None:
    """Exhausted, critical, nothing left, although 0.7 is used; the forecast rests."""
    found = last(one for one in exhausted() if one.at < 470)

    assert (found.exhausted, found.level, found.cause) == (True, "critical", "shortage")
    assert (found.likely_seconds, found.early_seconds, found.probability_5min) == (0.0, 0.0, None)
    assert found.shortages_per_minute == 6


def test_exhaustion_ends_two_minutes_after_the_last_shortage() -> None:
    """Counted for the last time at 460 s."""
    said = [one for one in fed(exhausted())[1] if one is not None]

    assert max(one.at for one in said if one.exhausted) == 575.0
    assert said[-1].probability_5min is not None


def test_a_window_that_is_full_does_not_grow() -> None:
    """Tokens are generated, use stands: no growth, no time left, no alarm at 0.7."""
    found = [replace(one, generation_tokens=1_000_000 + 400 * int(one.at)) for one in signals(lambda at: 0.7)]
    said = last(found, replace(VLLM, kind="window"))

    assert said.likely_seconds is None
    assert said.level == "ok"


def test_states_are_counted_not_grown() -> None:
    """10 of 20 states are taken: what fills the pool is that more requests come."""
    found = [replace(one, capacity_tokens=20) for one in signals(lambda at: 0.5)]
    said = last(found, replace(VLLM, kind="state"))

    assert (said.outcome, said.likely_seconds) == ("queue", None)


def test_a_reserving_engine_queues_and_has_no_growth() -> None:
    """TGI sets aside prompt and answer: use that rises is arrivals."""
    said = last(signals(rising, seconds=299), replace(VLLM, engine="tgi"))

    assert said.outcome == "queue"
    assert said.cause != "growth"


def test_coarse_gauges_do_not_frighten() -> None:
    """Two decimals, renewed every 30 s, around 0.6."""
    found = [
        replace(one, used_ratio=0.6 + 0.01 * (int(one.at / 30) % 2)) for one in signals(lambda at: 0.6, seconds=600)
    ]

    assert {one.level for one in fed(found, replace(VLLM, engine="sglang"))[1] if one} == {"ok"}


def test_a_queue_at_the_sequence_limit_is_not_exhaustion() -> None:
    """Ten may run and run, 50 wait, use stands at 0.7."""
    said = last(signals(lambda at: 0.7, waiting=50), replace(VLLM, max_sequences=10))

    assert said.queue_at_limit
    assert (said.max_sequences, said.level) == (10, "ok")


def test_a_limit_that_nobody_told_is_learnt() -> None:
    said = last(signals(lambda at: 0.7, waiting=50), PoolFacts(engine="vllm"))

    assert (said.max_sequences, said.queue_at_limit) == (10, True)


def test_use_alone_is_enough_for_a_trend() -> None:
    """An engine that tells neither size nor requests."""
    said = last(PoolSignal(at=one.at, used_ratio=one.used_ratio) for one in signals(rising, seconds=299))

    assert said.likely_seconds == pytest.approx(102, rel=0.03)
    assert (said.growth_tokens_per_second, said.chains) == (None, None)


def test_long_chains_are_told() -> None:
    """Ten hold 79 600 tokens and gain 20 a second each; one of them, as the engine says, most."""
    found = [replace(one, lengths=(50_000, *(3000,) * 9)) for one in signals(rising, seconds=299)]
    chains = last(found).chains

    assert chains is not None
    assert (chains.mean_tokens, chains.longest_tokens, chains.few) == (7700.0, 50_000, 1)
    assert chains.growth_tokens_per_second == pytest.approx(20, rel=0.05)


def test_one_replica_is_one_pool() -> None:
    """Each has a forecaster of its own: what one says does not move the other's."""
    full, idle = last(signals(rising, seconds=380)), last(signals(lambda at: 0.1, seconds=380))

    assert full.level in ("at_risk", "critical")
    assert idle.level == "ok"


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.5, 200), st.floats(0, 1), st.integers(0, 300), st.integers(0, 50), st.integers(0, 9999)),
        min_size=2,
        max_size=150,
    )
)
def test_whatever_is_read_a_forecast_can_be(rows: list[tuple[float, float, int, int, int]]) -> None:
    """Shares in bounds, early never later than likely, never beyond half an hour, nothing while exhausted but 0."""
    at, found = 0.0, []
    for step, used, running, waiting, tokens in rows:
        at += step
        one = PoolSignal(
            at=at, used_ratio=used, capacity_tokens=50_000, running=running, waiting=waiting, generation_tokens=tokens
        )
        found.append(one)

    for said in fed(found)[1]:
        assert said is not None
        for chance in (said.probability_2min, said.probability_5min):
            assert chance is None or 0 <= chance <= 1
        if said.likely_seconds is not None:
            assert said.early_seconds is not None
            assert 0 <= said.early_seconds <= said.likely_seconds <= 1800
