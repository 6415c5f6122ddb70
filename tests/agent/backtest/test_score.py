"""Figures of a forecaster, by hand."""

import pytest

from agent.backtest.episodes import Episode
from agent.backtest.forecasters import Look
from agent.backtest.report import gain_text
from agent.backtest.score import Score, Tally, add, alarms_of, score, share


def looks(*spans: tuple[float, float], end: float = 1000.0, said: float | None = None) -> list[Look]:
    """A look each five seconds, with an alarm in these spans."""
    times = [5.0 * n for n in range(int(end / 5) + 1)]
    return [
        Look(at=at, alarm=any(on <= at < off for on, off in spans), probability_2min=said, probability_5min=said)
        for at in times
    ]


def scored(*pairs: tuple[Episode, list[Look]]) -> Score:
    tally = Tally()
    for episode, seen in pairs:
        add(tally, episode, seen)
    return score(tally)


EVENT = Episode(begin=0.0, end=1000.0, event=True, kind="foreseeable", rise_seconds=200.0)
CALM = Episode(begin=0.0, end=1000.0)


def test_alarms_are_spans_within_the_episode() -> None:
    """One that is on at its end lasts until then."""
    assert alarms_of(looks((100, 200), (900, 2000)), 0.0, 1000.0) == [(100.0, 200.0), (900.0, 1000.0)]


def test_an_alarm_in_time_is_a_hit() -> None:
    """On 120 s before: lead 120, no second of it without event."""
    found = scored((EVENT, looks((880, 1000))))

    assert (found.recall.value, found.precision.value, found.lead_seconds) == (1.0, 1.0, 120.0)
    assert found.slow_lead_seconds == 120.0
    assert found.false_seconds_per_hour == 0.0


@pytest.mark.parametrize("span", [(995.0, 1000.0), (600.0, 690.0)])
def test_an_alarm_too_late_or_over_is_none(span: tuple[float, float]) -> None:
    """Five seconds before, or cleared 310 s before."""
    assert scored((EVENT, looks(span))).recall.value == 0.0


def test_an_alarm_long_before_is_wrong_and_yet_seen() -> None:
    """It began 700 s before and held: the event was seen, but the alarm can't claim it; 400 s were false."""
    found = scored((EVENT, looks((300, 1000))))

    assert (found.recall.value, found.precision.value) == (1.0, 0.0)
    assert found.false_seconds_per_hour == pytest.approx(400 / 1000 * 3600)


def test_a_near_miss_counts_apart() -> None:
    """Use came to 0.95 within 300 s of the alarm's beginning."""
    found = scored((Episode(begin=0.0, end=1000.0, near=(250.0,)), looks((100, 300))))

    assert (found.precision.value, found.precision_near.value) == (0.0, 1.0)
    assert found.false_seconds_per_hour == pytest.approx(200 / 1000 * 3600)


def test_an_alarm_at_the_end_of_a_recording_is_open() -> None:
    """Nobody knows what came after it."""
    found = scored((CALM, looks((500, 600))))

    assert (found.precision.of, found.open_alarms) == (0, 1)


def test_an_alarm_that_comes_back_within_a_minute_flaps() -> None:
    found = scored((CALM, looks((100, 150), (190, 200), (300, 310))))

    assert found.flaps == 1
    assert found.alarms_per_hour == pytest.approx(3 * 3.6)


def test_recall_is_told_by_kind_and_by_rise() -> None:
    jump = Episode(begin=0.0, end=1000.0, event=True, kind="jump", rise_seconds=20.0)
    found = scored((EVENT, looks((880, 1000))), (jump, looks()))

    assert (found.recall.value, found.recall_by_kind["foreseeable"].value) == (0.5, 1.0)
    assert found.recall_by_kind["jump"].value == 0.0
    assert (found.recall_by_rise["over 60 s"].of, found.recall_by_rise["over 60 s"].value) == (1, 1.0)


def test_the_brier_score_is_the_mean_square_of_what_was_wrong() -> None:
    """0.5 said everywhere: 0.25. 24 + 60 of 200 looks came true at 120 and 300 s, so much for climatology."""
    found = scored((EVENT, looks(said=0.5, end=995.0)))
    two, five = found.calibration

    assert (two.looks, five.looks) == (200, 200)
    assert two.brier == five.brier == 0.25
    assert two.climatology == pytest.approx(24 / 200 * (1 - 24 / 200))
    assert five.climatology == pytest.approx(60 / 200 * (1 - 60 / 200))
    ((said, came, count),) = five.reliability
    assert (said, round(came, 6), count) == (0.5, 0.3, 200)


def test_what_the_end_hides_is_not_counted() -> None:
    """Of an episode without event the looks of the last 300 s do not tell."""
    two, five = scored((CALM, looks(said=0.1, end=995.0))).calibration

    assert (two.looks, five.looks) == (177, 141)


def test_wilsons_interval() -> None:
    """29 of 30: 0.83 to 0.99."""
    found = share(29, 30)

    assert found.low == pytest.approx(0.833, abs=0.001)
    assert found.high == pytest.approx(0.994, abs=0.001)
    assert share(0, 0).value is None


def test_a_gain_below_zero_is_above() -> None:
    """No sign to be read twice."""
    assert (gain_text(0.17), gain_text(-0.21)) == ("17% below", "21% above")
