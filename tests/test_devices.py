"""Stories of memory on devices: each raises its alarm and no other; what the page says is of these stories."""

from pathlib import Path

import msgspec
import pytest

from agent.memory.risk import OK
from benchmarks.devices.__main__ import RESULT, Row, play
from benchmarks.devices.stories import STORIES
from tests.agent.recorder.flight import Flight

SLOW_WARM_UP = {"gpu 0: device_creep"}
"""Growth that ends after hours is not always told from a leak in the first of them."""


@pytest.mark.parametrize("name", STORIES)
def test_a_story_raises_its_alarm_and_no_other(name: str) -> None:
    """With a seed that the table has."""
    story = STORIES[name]
    told = play(story, name, seed=1)

    assert (told.minutes is not None) == (story.reason is not None)
    assert set(told.else_told) <= (SLOW_WARM_UP if name == "slow warm-up" else set())


def test_the_page_has_every_story() -> None:
    """And its figures are those of the table's seeds: told each time, nothing else."""
    rows = msgspec.json.decode(RESULT.read_bytes(), type=dict[str, Row])

    assert list(rows) == list(STORIES)
    assert [name for name, row in rows.items() if row.else_told] == ["slow warm-up"]
    assert [name for name, row in rows.items() if row.reason is not None and row.told < row.seeds] == []


def test_a_clock_that_is_set_is_no_risk(tmp_path: Path) -> None:
    """Through the whole pipeline: an hour forth and a day back; all times that count are monotonic."""
    flight = Flight(tmp_path)
    for step in (0, 3600, -86400):
        flight.wall_offset += step
        flight.lives(90)
    told = [one.snapshot for one in flight.live]

    assert {server.risk == OK for snapshot in told for server in snapshot.servers} == {True}
    assert {device.risk == told[0].devices[0].risk for snapshot in told for device in snapshot.devices} == {True}
    assert not flight.bundles
