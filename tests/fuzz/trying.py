"""How often a property is tried: briefly and the same way in every run, for minutes under the marker ``fuzz``."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

BRIEFLY = 40
AT_LENGTH = 2000
T = TypeVar("T")
HANGING = timedelta(seconds=20)  # of a single example, on however busy a machine


def tried(
    *strategies: SearchStrategy[Any], briefly: int = BRIEFLY, at_length: int = AT_LENGTH
) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """Make a property into a test that draws its arguments from the strategies. An example that hangs fails."""

    def decorate(property_: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize(
            "examples", [briefly, pytest.param(at_length, marks=pytest.mark.fuzz)], ids=["briefly", "at length"]
        )
        def test(examples: int) -> None:
            short = examples == briefly
            pace = settings(
                max_examples=examples,
                deadline=HANGING,
                derandomize=short,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            pace(given(*strategies)(property_))()

        test.__doc__ = property_.__doc__
        return test

    return decorate


def outcome(read: Callable[[], T], *refusals: type[Exception]) -> tuple[T | None, str]:
    """What was read and "", or None and the sentence of a refusal; anything else that is raised fails the test."""
    try:
        return read(), ""
    except refusals as error:
        return None, str(error)
