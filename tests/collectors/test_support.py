"""The table of engines says what their readings hold."""

import json

import pytest

from collectors.registry import ENGINES
from collectors.support import Told, told
from tests.collectors.reading import page, read_in_turn
from tests.collectors.replay import FIXTURES


@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_engine_tells_is_what_its_newest_pages_give(engine: str) -> None:
    """No more and no less; ``newest.json`` names the pages that a server answers with in turn, and its flags."""
    newest = json.loads((FIXTURES / engine / "newest.json").read_text(encoding="utf-8"))
    steps = [
        (float(number), {path: page(engine, name) for path, name in answers.items()})
        for number, answers in enumerate(newest["pages"])
    ]

    readings, _ = read_in_turn(engine, steps, flags=newest["flags"])

    assert frozenset[Told]().union(*map(told, readings)) == ENGINES[engine].tells
