"""How the coefficients of the probability are found."""

import math
from random import Random

import pytest

from benchmarks.pools.fit import Labelled, fit, labelled, solved


def test_a_linear_system_is_solved() -> None:
    """2 x + y = 5, x + 3 y = 10: x = 1, y = 3."""
    assert solved([[2.0, 1.0], [1.0, 3.0]], [5.0, 10.0]) == pytest.approx([1.0, 3.0])


def test_the_map_that_made_the_data_is_found() -> None:
    """P = 1 / (1 + exp(1 - 2 x)), 4000 draws: -1 and 2, by some per cent."""
    random = Random(5)
    rows: Labelled = []
    for _ in range(4000):
        x = random.uniform(-2, 2)
        rows.append(((x,), random.random() < 1 / (1 + math.exp(1 - 2 * x))))

    constant, weight = fit(rows, ridge=0.0)

    assert constant == pytest.approx(-1.0, abs=0.15)
    assert weight == pytest.approx(2.0, abs=0.2)


def test_what_the_end_hides_is_left_out() -> None:
    """An event in 200 s is none within 120; a recording that ends in 100 s without one does not tell."""
    rows = [((1.0,), 200.0, 200.0), ((2.0,), 100.0, 100.0), ((3.0,), None, 100.0), ((4.0,), None, 150.0)]

    assert labelled(rows, 120.0) == [((1.0,), False), ((2.0,), True), ((4.0,), False)]
