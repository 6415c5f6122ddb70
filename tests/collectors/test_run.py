"""The runner: whatever a collector does, there is one outcome, with its time."""

import asyncio

import pytest

from collectors.errors import Unreachable
from collectors.readings import Fault
from collectors.run import Outcome, run


class Clock:
    """Each look at it is one second later."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


async def seven() -> int:
    return 7


async def nothing() -> None:
    return None


async def unreachable() -> int:
    raise Unreachable("refused", "nothing listens")


async def broken() -> int:
    raise KeyError("the secret is sesame")


async def own_timeout() -> int:
    raise TimeoutError("from inside")


async def endless() -> int:
    await asyncio.sleep(10)
    return 7


def test_a_value_is_passed_on_with_its_time() -> None:
    """Started at 1, ended at 2."""
    outcome = asyncio.run(run("endpoint", "chat", seven, deadline_seconds=1.0, clock=Clock()))

    assert outcome == Outcome(value=7, fault=None, duration_seconds=1.0, at=2.0)


def test_nothing_there_is_no_fault() -> None:
    """None without a fault is an answer."""
    outcome = asyncio.run(run("processes", "chat", nothing, deadline_seconds=1.0, clock=Clock()))

    assert outcome == Outcome(value=None, fault=None, duration_seconds=1.0, at=2.0)


def test_a_collector_error_becomes_its_fault() -> None:
    """Reason and sentence are the collector's own."""
    outcome = asyncio.run(run("endpoint", "chat", unreachable, deadline_seconds=1.0, clock=Clock()))

    assert outcome.value is None
    assert outcome.fault == Fault(reason="refused", message="nothing listens")


def test_any_other_exception_is_a_bug_that_names_type_and_place() -> None:
    """Its text is not shown: it may hold a secret."""
    outcome = asyncio.run(run("endpoint", "chat", broken, deadline_seconds=1.0, clock=Clock()))

    assert outcome.fault is not None
    assert outcome.fault.reason == "bug"
    assert outcome.fault.message.startswith("collector endpoint of chat failed with KeyError at test_run.py:")
    assert outcome.fault.message.endswith("; this is a bug of vramscope, please report it")
    assert "sesame" not in outcome.fault.message


def test_a_reading_that_takes_too_long_is_ended() -> None:
    """The deadline is the runner's, whatever the collector waits for."""
    outcome = asyncio.run(run("nvml", "", endless, deadline_seconds=0.05, clock=Clock()))

    assert outcome.fault == Fault(reason="timeout", message="collector nvml did not finish within 0.05 s")


def test_a_timeout_from_inside_is_not_the_runners() -> None:
    """A collector has to translate its own."""
    outcome = asyncio.run(run("nvml", "", own_timeout, deadline_seconds=5.0, clock=Clock()))

    assert outcome.fault is not None
    assert outcome.fault.reason == "bug"


def test_being_cancelled_is_passed_on() -> None:
    """Only the program's own end gets through."""

    async def scenario() -> None:
        task = asyncio.create_task(run("nvml", "", endless, deadline_seconds=5.0, clock=Clock()))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(scenario())
