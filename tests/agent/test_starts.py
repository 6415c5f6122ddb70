"""Restarts by processes and by endpoint: each counts once, whoever tells it first."""

import pytest

from agent.starts import Starts
from collectors.readings import ProcessTree, ReplicaReading, ServerProcess, ServerReading

Event = tuple[int, ...] | float | None


def processes(pids: tuple[int, ...], at: float) -> ProcessTree:
    """A pid of 100 or more is that less 100, used anew a minute later."""
    found = (ServerProcess(pid=pid % 100, started_at=60.0 * (pid // 100), title="server") for pid in pids)
    return ProcessTree(at=at, processes=tuple(found))


def answer(started_at: float, at: float) -> ServerReading:
    """Below 0: the start is not told, but how many tokens were made since."""
    if started_at >= 0:
        return ServerReading(at=at, engine="vllm", state="serving", started_at=started_at)
    replica = ReplicaReading(replica="0", generation_tokens=int(-started_at))
    return ServerReading(at=at, engine="vllm", state="serving", replicas=(replica,))


LIVES: dict[str, tuple[list[Event], int]] = {
    "an agent starts beside a running server": ([(7, 8), 500.0, (7, 8), 500.0], 0),
    "its children are others": ([(7, 8), (7, 9), (7,)], 0),
    "it is gone or hidden for a while and comes back the same": ([(7, 8), None, (7, 8)], 0),
    "its wrapper ends and it lives on": ([(6, 7, 8), (7, 8)], 0),
    "it is seen with the wrapper around it": ([(7, 8), (6, 7, 8)], 0),
    "another process at once": ([(7, 8), (9, 10)], 1),
    "another process after a while": ([(7, 8), None, None, (9, 10)], 1),
    "the same pid of a later process": ([(7,), (107,)], 1),
    "a crash loop before it ever serves": ([(7,), None, (8,), None, (9,), (10,)], 3),
    "processes first, then the endpoint": ([(7,), 500.0, None, (9,), 600.0, (9,), 600.0], 1),
    "endpoint first, then processes": ([(7,), 500.0, 600.0, (9,), 600.0, (9,)], 1),
    "endpoint first, and nothing is seen meanwhile": ([(7,), 500.0, 600.0, None, (9,)], 1),
    "a loop, then it serves": ([(7,), 500.0, (8,), (9,), (10,), 600.0, (10,), 600.0], 3),
    "one after another by turns": ([(7,), 500.0, (8,), 600.0, 700.0, (9,), (10,), 800.0], 3),
    "inside of the same process, then as another": ([(7,), 500.0, 600.0, (7,), (8,), 700.0], 2),
    "processes are never seen": ([500.0, 600.0, 600.0, 700.0], 2),
    "a counter that went back tells it too": ([(7,), -900.0, -5.0, (9,), -50.0], 1),
    "a counter that did not": ([(7,), -900.0, (9,), -2000.0, -2001.0, -3.0], 2),
}


@pytest.mark.parametrize(("events", "restarts"), LIVES.values(), ids=LIVES.keys())
def test_each_start_counts_once(events: list[Event], restarts: int) -> None:
    """Of processes that are seen (None: not) and answers with the start that they tell, a second apart."""
    starts = Starts()
    for second, event in enumerate(events):
        if isinstance(event, float):
            starts.told(answer(event, float(second)))
        else:
            starts.saw(None if event is None else processes(event, float(second)))

    assert starts.restarts == restarts


def test_a_look_that_began_before_the_restart_says_nothing_of_it() -> None:
    """The old processes are handed in after the endpoint told of a new start: the next look is still of that one."""
    starts = Starts()
    starts.saw(processes((7,), 0.0))
    starts.told(answer(500.0, 1.0))
    starts.told(answer(600.0, 2.0))
    starts.saw(processes((7,), 1.9))
    starts.saw(processes((9,), 7.0))

    assert starts.restarts == 1
