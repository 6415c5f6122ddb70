"""The demo's pool runs full: seen coming on the whole path from the engine's page to the exposition, and gone after."""

import asyncio
import re

import pytest
from msgspec import Struct

from agent.memory.levels import LEVELS
from tests.test_one_hour import Hour

END_SECONDS = 1195  # just before the story's crash


class Moment(Struct, frozen=True, kw_only=True):
    """What one tick said of the one server and its pool."""

    at: float
    preemptions: int
    likely: float | None
    early: float | None
    level: int
    reason: str | None
    exposed: str


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> list[Moment]:
    """Every second in which the server served."""
    node = Hour(tmp_path_factory.mktemp("node"), faults=lambda second: "nothing")
    moments = []
    with asyncio.Runner() as runner:
        for _ in range(END_SECONDS):
            runner.run(node.second())
            (server,) = node.board.published.snapshot.servers
            if server.pools and server.risk is not None and (forecast := server.pools[0].forecast) is not None:
                moments.append(
                    Moment(
                        at=node.now,
                        preemptions=server.counters.preemptions or 0,
                        likely=forecast.exhaustion_seconds.likely,
                        early=forecast.exhaustion_seconds.early,
                        level=LEVELS.index(server.risk.level),
                        reason=server.risk.reason,
                        exposed=node.board.published.metrics.decode(),
                    )
                )
    return moments


def first_preemption(story: list[Moment]) -> Moment:
    return next(moment for moment in story if moment.preemptions)


def test_the_time_left_falls_to_nothing(story: list[Moment]) -> None:
    """There is a forecast minutes before; it gets shorter, and is 0 when requests lose their place."""
    event = first_preemption(story)
    before = [moment for moment in story if event.at - 200 <= moment.at < event.at and moment.likely is not None]
    after = [moment.likely for moment in story if event.at + 10 <= moment.at <= event.at + 60]

    assert before
    likely = [moment.likely or 0.0 for moment in before]
    assert min(likely[-10:]) < max(likely[:10])
    assert all(moment.early is not None and moment.early <= (moment.likely or 0.0) for moment in before)
    assert set(after) == {0.0}


def test_the_level_rises_before_and_falls_after(story: list[Moment]) -> None:
    """At risk half a minute before the first preemption, critical in it, and lower once it is over; one reason."""
    event = first_preemption(story)
    ahead = [moment for moment in story if moment.at <= event.at - 30]
    during = [moment for moment in story if event.at + 10 <= moment.at <= event.at + 60]

    assert max(moment.level for moment in ahead[-60:]) >= 2
    assert {moment.level for moment in during} == {3}
    assert {moment.reason for moment in during} == {"pool_exhaustion"}
    assert story[-1].level < 3


def test_it_is_exposed(story: list[Moment]) -> None:
    """Both series of the pool while it is full, and the level with its reason."""
    full = next(moment for moment in story if moment.likely == 0.0)

    for bound in ("likely", "early"):
        assert f'vramscope_kv_exhaustion_seconds{{bound="{bound}",server="reasoner"}} 0.0\n' in full.exposed
    assert 'vramscope_risk_level{reason="pool_exhaustion",server="reasoner"} 3\n' in full.exposed
    assert re.search(r'^vramscope_risk_level\{gpu="0"\} 0$', full.exposed, re.M)
