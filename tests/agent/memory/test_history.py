"""Growth of a pool, and extremes between scrapes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.memory.history import KEEP_SECONDS, Peaks, PoolHistory


def filled(points: list[tuple[float, int]]) -> PoolHistory:
    history = PoolHistory()
    for at, used in points:
        history.add(at, used)
    return history


def test_steady_growth_is_found_exactly() -> None:
    """100 tokens a second for three minutes."""
    history = filled([(float(second), 100 * second) for second in range(181)])

    assert history.growth_tokens_per_second() == pytest.approx(100.0)


def test_bursts_do_not_move_the_growth() -> None:
    """Short requests that come and go on top of one chain that grows 10 tokens a second."""
    chance = random.Random(7)
    points = [(float(s), 10 * s + (chance.randrange(5000) if s % 17 == 0 else 0)) for s in range(181)]

    assert filled(points).growth_tokens_per_second() == pytest.approx(10.0, abs=1.0)


def test_a_fall_is_not_read_as_growth() -> None:
    """Two minutes of 100 tokens a second, then everything ends and a flat 500 remains: growth is 0, not 100."""
    points = [(float(s), 100 * s if s < 120 else 500) for s in range(181)]

    assert filled(points).growth_tokens_per_second() == pytest.approx(0.0)


def test_growth_is_not_known_right_after_a_fall() -> None:
    """Fifteen seconds after it there is nothing to say yet."""
    points = [(float(s), 100 * s if s < 120 else 500) for s in range(135)]

    assert filled(points).growth_tokens_per_second() is None


def test_less_than_half_a_minute_has_no_growth() -> None:
    """Two readings are no trend."""
    assert filled([(float(s), s) for s in range(25)]).growth_tokens_per_second() is None
    assert PoolHistory().growth_tokens_per_second() is None


def test_gap_in_readings_still_gives_a_slope() -> None:
    """Two readings 35 s apart are enough to tell a direction."""
    assert filled([(0.0, 0), (35.0, 350)]).growth_tokens_per_second() == pytest.approx(10.0)


def test_clearing_forgets() -> None:
    """After a restart no old point is left."""
    history = filled([(float(s), s) for s in range(100)])

    history.clear()

    assert history.points == ()


def test_points_are_kept_for_ten_minutes_and_never_go_back() -> None:
    """Older points are dropped; a reading that is not newer is ignored."""
    history = filled([(0.0, 1), (1.0, 2), (1.0, 3), (0.5, 4), (KEEP_SECONDS + 0.5, 5)])

    assert history.points == ((1.0, 2), (KEEP_SECONDS + 0.5, 5))


@given(st.lists(st.tuples(st.floats(0.1, 30), st.integers(0, 1000)), min_size=1, max_size=60))
def test_peaks_equal_the_plain_definition(steps: list[tuple[float, int]]) -> None:
    """Sliding and overall peaks against the maximum over the samples themselves."""
    peaks = Peaks(60.0)
    samples: list[tuple[float, int]] = []
    now = 0.0
    for step, value in steps:
        now += step
        samples.append((now, value))
        peaks.add(now, value)

        window = [value for at, value in samples if at >= now - 60.0]
        assert peaks.window_highest(now) == max(window)
    assert peaks.highest == max(value for _, value in samples)
    assert peaks.window_highest(now + 61) is None
