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
    assert alarms(Line(VLLM), 0.5999, 0.001)[0] == 105.0


def test_two_samples_are_enough_for_a_line() -> None:
    """As in Prometheus: a steep beginning is an alarm at once."""
    assert alarms(Line(VLLM), 0.1, 0.01)[0] == 5.0


def test_a_held_alarm_goes_three_minutes_later() -> None:
    found = list(signals(lambda at: 0.95 if at < 50 else 0.2, seconds=300))
    held = [look.at for look in looks(Held(Threshold(VLLM)), found) if look.alarm]

    assert held == [5.0 * n for n in range(45)]


def test_looks_are_five_seconds_apart() -> None:
    """Whatever the rhythm of the readings."""
    assert [look.at for look in looks(Threshold(VLLM), list(signals(lambda at: 0.1, seconds=30, step=2)))] == [
        0.0,
        6.0,
        12.0,
        18.0,
        24.0,
    ]
