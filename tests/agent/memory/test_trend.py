"""Slope and swings of a pool's use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.memory.trend import Trend, slope_of


def filled(values: list[tuple[float, float]]) -> Trend:
    trend = Trend()
    for at, value in values:
        trend.add(at, value)
    return trend


def test_the_slope_is_the_median_of_all_pair_slopes() -> None:
    """Points (0, 0), (1, 1), (2, 2), (3, 9): slopes 1 1 1 3 4 7, so the median is (1 + 3) / 2."""
    slope, _ = slope_of([(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (3.0, 9.0)])

    assert slope == 2.0


def test_the_error_of_the_slope_follows_from_the_residuals() -> None:
    """Levels 0 1 0 1 0 at 0..4: slope 0, level 0, residuals 0 1 0 1 0 with median 0: no error seen."""
    slope, error = slope_of([(0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (3.0, 1.0), (4.0, 0.0)])

    assert (slope, error) == (0.0, 0.0)


def test_the_error_is_by_the_rule_for_white_noise() -> None:
    """Values 0 1 1 0: slopes 1 1/2 0 0 -1/2 -1, median 0; all are 1/2 off the level of 1/2."""
    slope, error = slope_of([(0.0, 0.0), (1.0, 1.0), (2.0, 1.0), (3.0, 0.0)])

    assert slope == 0.0
    assert error == pytest.approx(12**0.5 * 1.4826 * 0.5 / (3 * 4**0.5))


def test_two_points_are_no_slope() -> None:
    assert slope_of([(0.0, 0.0), (1.0, 1.0)]) == (None, None)


def test_a_steady_rise_is_found_and_has_no_error() -> None:
    """0.1 % of the pool a second for three minutes."""
    trend = filled([(float(s), 0.001 * s) for s in range(181)])

    assert trend.slope == pytest.approx(0.001)
    assert trend.slope_sd == pytest.approx(0.0, abs=1e-9)
    assert trend.swing == pytest.approx(0.0, abs=1e-9)
    assert trend.minutes == 3


def test_a_fall_begins_the_window_anew() -> None:
    """Two minutes of growth, then half of it is gone and nothing moves."""
    trend = filled([(float(s), 0.005 * s if s < 120 else 0.3) for s in range(200)])

    assert trend.slope == pytest.approx(0.0, abs=1e-9)


def test_swings_are_the_spread_of_changes_between_bins() -> None:
    """Changes +1 -1 +1 -1 +1 -1: mean 0, variance 6 / 5."""
    trend = filled([(10.0 * n + s, float(n % 2)) for n in range(8) for s in range(10)])

    assert trend.swing == pytest.approx((6 / 5) ** 0.5)


def test_few_bins_have_no_swing() -> None:
    """Five of them are too few to say how far use goes by itself."""
    trend = filled([(float(s), 0.5) for s in range(50)])

    assert trend.swing is None


def test_rare_readings_are_a_bin_each() -> None:
    """One in 30 s, as an engine that renews its gauges so seldom."""
    trend = filled([(30.0 * n, 0.01 * n) for n in range(8)])

    assert trend.slope == pytest.approx(0.01 / 30)


def test_after_a_long_time_without_readings_the_slope_begins_anew() -> None:
    """What happened meanwhile is no slope; how long the pool is known stays."""
    trend = filled([(float(s), 0.2) for s in range(130)])

    trend.restart_window()
    trend.add(500.0, 0.9)

    assert trend.slope is None
    assert trend.minutes == 3


@given(st.lists(st.floats(0, 1), min_size=60, max_size=400))
def test_memory_is_bounded_and_a_slope_can_be(values: list[float]) -> None:
    """Whatever comes: a slope can't be steeper than the whole pool in the 10 s between two bins' middles, or so."""
    trend = filled([(float(n), value) for n, value in enumerate(values)])

    assert trend.slope is None or abs(trend.slope) <= 0.12
    assert trend.swing is None or 0 <= trend.swing <= 1.5
