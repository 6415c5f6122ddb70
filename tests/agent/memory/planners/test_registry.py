"""Engines with a planner."""

import json
from pathlib import Path

import pytest

from agent.memory.arguments import ENGINES, Arguments
from agent.memory.budget import Device, compute
from agent.memory.planners.registry import PLANNERS
from collectors.readings import ModelFiles

CONFIGS = Path(__file__).parents[3] / "fixtures" / "models" / "configs"


def test_an_engine_with_flags_has_a_planner() -> None:
    """The engines whose arguments are understood are those that can be planned."""
    assert set(ENGINES) == set(PLANNERS)


@pytest.mark.parametrize("engine", PLANNERS)
def test_a_dtype_that_is_none_is_said(engine: str) -> None:
    """Weights are then taken as in the engine's usual 16 bits, with a warning that names what the config says."""
    config = json.loads((CONFIGS / "qwen2.5-7b.json").read_text()) | {"torch_dtype": "0"}

    budget = compute(ModelFiles(path="model", config=config), Arguments(engine=engine), Device())

    assert budget.ranks[0].weights_bytes is not None
    assert [warning for warning in budget.warnings if "config key 'dtype': '0' is not known here" in warning]
