"""How long answers get."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.memory.lengths import EDGES, Lengths


def test_without_any_answer_the_prior_counts() -> None:
    """S0(a) = 1 / (1 + a / 300): its hazards with a weight of one, so ln S is half of the prior's, bucket by bucket."""
    curve = Lengths().survival(running=0, age=0)

    hazards = [1 - (1 + 0 / 300) / (1 + EDGES[0] / 300)]
    assert curve(EDGES[0]) == pytest.approx(1 - hazards[0])
    assert curve(0) == 1.0


def test_answers_of_one_length_end_there() -> None:
    """A hundred answers of 1000 tokens: nearly all live to 724, hardly any past 1024 (edges are half octaves)."""
    lengths = Lengths()
    for n in range(100):
        lengths.add(float(n), requests=1, tokens=1000)

    curve = lengths.survival(running=0, age=0)

    assert curve(512) > 0.95
    assert curve(1024) < 0.05
    assert lengths.mean == pytest.approx(1000, rel=0.02)


def test_those_that_still_run_are_counted_as_longer() -> None:
    """Ten answers of 100 tokens have ended, and ten requests run at 4000: half of all get older than 100."""
    lengths = Lengths()
    lengths.add(0.0, requests=10, tokens=1000)

    alone, beside = lengths.survival(running=0, age=0), lengths.survival(running=10, age=4000)

    assert alone(200) < 0.15
    assert 0.4 < beside(200) < 0.6


def test_what_ended_long_ago_counts_half_after_half_an_hour() -> None:
    """Ten answers, and one half an hour later: five and one are left."""
    lengths = Lengths()
    lengths.add(0.0, requests=10, tokens=1000)
    lengths.add(1800.0, requests=1, tokens=100)

    assert lengths.ended == pytest.approx(6.0)
    assert lengths.tokens == pytest.approx(600.0)


def test_a_restart_keeps_half_of_what_was_learnt() -> None:
    lengths = Lengths()
    lengths.add(0.0, requests=10, tokens=1000)

    lengths.halve()

    assert (lengths.ended, lengths.tokens) == (5.0, 500.0)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 200_000)), max_size=30), st.floats(0, 1e5))
def test_a_curve_falls_from_one_and_never_below_zero(ends: list[tuple[int, int]], age: float) -> None:
    """Longer is never likelier, wherever it is asked."""
    lengths = Lengths()
    for at, (requests, tokens) in enumerate(ends):
        lengths.add(float(at), requests=requests, tokens=tokens * requests)

    curve = lengths.survival(running=3, age=age)
    values = [curve(2.0**n) for n in range(20)]

    assert values == sorted(values, reverse=True)
    assert all(0 <= value <= 1 and math.isfinite(value) for value in values)
