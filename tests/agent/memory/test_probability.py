"""How likely a pool runs out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agent.memory.demand import Demand
from agent.memory.pool_state import Evidence
from agent.memory.probability import COEFFICIENTS, HORIZONS, NAMES, features, probability
from tests.agent.memory.test_demand import running

KNOWN = Evidence(
    used=0.9,
    slope=0.001,
    slope_sd=0.0005,
    swing=0.02,
    minutes=15,
    running=running(count=25, speed=20.0, cap=50, arrivals=0.5, arrivals_before=0.24, limited_seconds=0.0),
    demands=(Demand(seconds=30.0, admitted=95_000.0, mean=98_000.0, sd=1000.0),),
    capacity=100_000,
)


def test_features_by_hand() -> None:
    """Each from the evidence above."""
    room = (1 - 0.9 - 0.15) / (0.02 * math.sqrt(30) + 0.01)
    expected = [
        0.9,
        0.05,
        0.2,  # 0.001 / 0.0005 = 2, of ten
        room,
        0.95,
        0.05,
        -2.0,
        0.5,
        1.5,  # 300 s x 25 x 20 / 100 000
        0.5,
        math.log(0.52 / 0.26),
        0.0,
        0.0,
        0.2,
    ]

    assert list(features(KNOWN)) == pytest.approx(expected)
    assert len(expected) == len(NAMES)


def test_a_map_has_a_weight_for_each_feature() -> None:
    assert {len(weights) for weights in COEFFICIENTS.values()} == {1 + len(NAMES)}
    assert tuple(COEFFICIENTS) == HORIZONS


def test_the_map_is_logistic() -> None:
    """All features 0: the constant alone."""
    nothing = (0.0,) * len(NAMES)

    assert probability(nothing, 300) == pytest.approx(1 / (1 + math.exp(-COEFFICIENTS[300][0])))


def test_without_the_running_set_the_trend_is_all() -> None:
    """An engine that tells nothing but use has features, and so a probability."""
    bare = replace(KNOWN, running=None, demands=())

    assert len(features(bare)) == len(NAMES)
    assert 0 < probability(features(bare), 300) < 1


@given(used=st.floats(0, 1), slope=st.floats(-0.1, 0.1), swing=st.floats(0, 1), horizon=st.sampled_from(HORIZONS))
def test_a_probability_is_one_and_fuller_is_never_safer(used: float, slope: float, swing: float, horizon: int) -> None:
    """Whatever is known, all else alike."""
    known = replace(KNOWN, used=used, slope=slope, swing=swing)
    fuller = replace(known, used=min(1.0, used + 0.05))

    assert 0 <= probability(features(known), horizon) <= probability(features(fuller), horizon) <= 1
