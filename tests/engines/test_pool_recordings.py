"""Real servers whose pools ran out, or nearly, recorded by the agent: replayed and looked into."""

from pathlib import Path

import pytest
from msgspec import Struct

from agent.app import replayed_board
from agent.backtest.episodes import episodes_of
from agent.memory.exhaustion import exhaustion_of
from agent.memory.signals import PoolSignal
from agent.postmortem.findings import Findings
from agent.postmortem.report import Postmortem
from agent.recorder.player import Player
from docs.real_recordings import read
from tests.engines.pool_load import STORIES
from tests.engines.record_pools import NAME, VERSIONS, texts

FOLDER = Path(__file__).parents[1] / "fixtures" / "recordings"
PATHS = sorted(FOLDER.glob("*/*.vramscope"))
WITHOUT_EVENT = "in-time"
COUNTED_LATE_SECONDS = 20.0  # vLLM counts a preemption when the request is scheduled again
MAX_BYTES = 300_000


class Played(Struct, frozen=True, kw_only=True):
    """A recording, what its replay showed of it, and what its server told of its one pool."""

    path: Path
    report: Postmortem
    sums: list[tuple[int, int]]  # of components, and the device's total
    engine: str
    signals: list[PoolSignal]


@pytest.fixture(scope="module", params=PATHS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def played(request: pytest.FixtureRequest) -> Played:
    path: Path = request.param
    player, findings, sums, engine = Player(path, replayed_board), Findings(), [], ""
    for published in player.ticks():
        findings.take(published.snapshot)
        (engine,) = {server.engine or "" for server in published.snapshot.servers}
        sums += [
            (sum(part.bytes for part in device.components), device.total_bytes or 0)
            for device in published.snapshot.devices
            if device.components
        ]
    report = findings.report(file=path.name, kept_for=None, problem=player.file.problem)
    return Played(path=path, report=report, sums=sums, engine=engine, signals=read(path).signals)


def _counted_at(signals: list[PoolSignal]) -> float | None:
    """When the server's own counter first moved; SGLang's is absent until then."""
    first = signals[0].shortages or 0
    return next((one.at for one in signals if (one.shortages or 0) > first), None)


def test_recordings_are_of_the_stories_and_small() -> None:
    """Each engine's pool runs out in one at least."""
    folders = {f"{engine}-{version}" for engine, version in VERSIONS.items()}

    assert {path.parent.name for path in PATHS if path.stem != WITHOUT_EVENT} == folders
    assert {path.stem for path in PATHS} <= {story.name for story in STORIES}
    assert all(path.stat().st_size <= MAX_BYTES for path in PATHS)


def test_it_is_replayed_whole(played: Played) -> None:
    """Minutes without a gap, and on each tick the components are the device."""
    assert played.report.problem is None
    assert played.report.gaps == ()
    assert played.report.ticks > 180
    assert len(played.sums) > 0.9 * played.report.ticks
    assert {total - parts for parts, total in played.sums} == {0}


def test_the_event_is_where_the_servers_counter_moved(played: Played) -> None:
    """And none is found where it did not move."""
    counted = _counted_at(played.signals)
    live = exhaustion_of(played.engine, "full").live_gauges
    events = [one.end for one in episodes_of(played.signals, live_gauges=live) if one.event]

    assert (counted is None) == (played.path.stem == WITHOUT_EVENT)
    assert bool(events) == (counted is not None)
    if counted is not None:
        assert counted - COUNTED_LATE_SECONDS <= events[0] <= counted


def test_the_postmortem_names_it(played: Played) -> None:
    """As the incident, of that server: by its counter, or by its log, which is first at times."""
    report = played.report
    if _counted_at(played.signals) is None:
        assert report.incident is None
        return
    assert report.incident is not None
    assert report.incident.subject == NAME
    if report.incident.kind != ("refused" if played.engine == "llama_cpp" else "preempted"):
        assert report.incident.text == "its log says kv pool full"


def test_nothing_of_the_machine_is_in_it() -> None:
    """Texts of recordings name no folder of where they were made."""
    found = {text for path in PATHS for text in texts(path)}

    assert not [text for text in found if any(word in text for word in ("/tmp", "/root", "/home", "/work"))]
