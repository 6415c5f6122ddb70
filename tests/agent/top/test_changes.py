"""What changed from one snapshot to the next, by the times at which figures were read."""

import pytest
from msgspec.structs import replace

from agent.snapshot import Snapshot
from agent.top.changes import Changes, of_generation, of_pool
from tests.agent.web import sample
from tests.agent.web.sample import START, server


def _at(seconds: float, used: int, generated: int, *, age: float | None = 0.0, name: str = "chat") -> Snapshot:
    one = server(name, "m", (sample.pool(used, 262_144, growth=None),), running=1, waiting=0, preemptions=0)
    counters = replace(one.counters, generation_tokens=generated)
    return Snapshot(time=START + seconds, version="0", servers=(replace(one, counters=counters, age_seconds=age),))


def _told(*snapshots: Snapshot) -> tuple[float | None, float | None]:
    """Growth of the pool and tokens generated in a second, after all of these."""
    changes = Changes()
    for snapshot in snapshots:
        changes.add(snapshot)
    (one,) = snapshots[-1].servers
    told = changes.per_second()
    return told.get(of_pool(one, one.pools[0])), told.get(of_generation(one))


@pytest.mark.parametrize(
    ("snapshots", "expected"),
    [
        ([_at(0, 100, 1000)], (None, None)),
        ([_at(0, 100, 1000), _at(1, 150, 1100)], (None, None)),  # of one second: nothing is said
        ([_at(0, 100, 1000), _at(2, 300, 1400)], (100.0, 200.0)),
        ([_at(0, 100, 1000), _at(4, 60, 1400)], (-10.0, 100.0)),
        ([_at(0, 100, 1000), _at(4, 300, 0), _at(8, 500, 800)], (50.0, 200.0)),  # a new engine: its counter begins anew
        ([_at(0, 0, 0), _at(10, 9_000, 0), _at(20, 9_100, 0)], (10.0, 0.0)),  # the last 15 s
        ([_at(0, 100, 1000, age=0.5), _at(3, 400, 1000, age=3.5)], (None, None)),  # read once
        ([_at(0, 100, 1000), _at(4, 300, 1000, age=None)], (None, None)),
        ([_at(0, 100, 1000), _at(-600, 300, 1000), _at(-596, 340, 1040)], (10.0, 10.0)),  # the clock was set back
    ],
)
def test_changes_by_the_second(snapshots: list[Snapshot], expected: tuple[float | None, float | None]) -> None:
    """Net, over the last seconds, from two at least."""
    assert _told(*snapshots) == expected


def test_a_simulated_node_lives_by_seconds_of_its_own() -> None:
    """Figures by the second of a node that lives ten times as fast are a tenth of those by the clock."""
    assert _told(*(replace(one, pace=10.0) for one in (_at(0, 100, 1000), _at(2, 300, 1400)))) == (10.0, 20.0)


def test_what_is_gone_is_forgotten() -> None:
    """A server that comes back later has no past."""
    changes = Changes()
    for snapshot in (_at(0, 0, 0), _at(4, 400, 0), _at(5, 0, 0, name="other"), _at(6, 600, 0)):
        changes.add(snapshot)
    assert changes.per_second() == {}
