"""Engines with a planner."""

from agent.memory.arguments import ENGINES
from agent.memory.planners.registry import PLANNERS


def test_an_engine_with_flags_has_a_planner() -> None:
    """The engines whose arguments are understood are those that can be planned."""
    assert set(ENGINES) == set(PLANNERS)
