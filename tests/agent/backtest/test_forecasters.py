"""The baselines that a forecast is compared with."""

from agent.backtest.forecasters import Held, Line, Ours, Threshold, looks
from tests.agent.memory.pool_signals import VLLM, signals


def alarms(forecaster: Threshold | Line | Held | Ours, *args: float) -> list[float]:
    found = list(signals(lambda at: args[0] + args[1] * at, seconds=300))
    return [look.at for look in looks(forecaster, found) if look.alarm]


def test_a_threshold_is_passed_at_90_per_cent() -> None:
    """0.1 % a second from 0.7: after 200 s."""
    assert alarms(Threshold(VLLM), 0.7001, 0.001)[0] == 200.0


def test_a_straight_line_reaches_the_top_300_seconds_ahead() -> None:
    """0.1 % a second: 0.3 more in five minutes, so from 0.7 on."""
    assert alarms(Line(VLLM), 0.5999, 0.001)[0] == 101.0


def test_two_samples_are_enough_for_a_line() -> None:
    """As in Prometheus: a steep beginning is an alarm at once."""
    assert alarms(Line(VLLM), 0.1, 0.01)[0] == 1.0


def test_a_held_alarm_goes_three_minutes_later() -> None:
    found = list(signals(lambda at: 0.95 if at < 50 else 0.2, seconds=300))
    held = [look.at for look in looks(Held(Threshold(VLLM)), found) if look.alarm]

    assert held == [float(n) for n in range(229)]


def test_the_line_is_that_of_least_squares_over_five_minutes() -> None:
    """0.2 for ten minutes, then 0.1 % a second: 300 s later nothing of the flat part is left in it, and 0.5 is used.

    A look at 900 s: 0.5 now, 0.8 in five minutes. At 1101 s it passes the top.
    """
    found = list(signals(lambda at: 0.2 if at < 600 else 0.2 + 0.001 * (at - 600.5), seconds=1150))

    assert next(look.at for look in looks(Line(VLLM), found) if look.alarm) == 1101.0


def test_a_probability_is_given_where_it_is_weighed_anew() -> None:
    """Every five seconds, after a minute."""
    said = [look.at for look in looks(Ours(VLLM), list(signals(lambda at: 0.3, seconds=80))) if look.probability_5min]

    assert said == [60.0, 65.0, 70.0, 75.0]
