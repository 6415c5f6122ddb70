"""The health of sources: what is counted, and that a change of state is logged once."""

import logging

import pytest

from agent.health import Health
from collectors.readings import Fault

REFUSED = Fault(reason="refused", message="nothing listens")


def test_first_success() -> None:
    """Success, its age and wall time; failures start at 0."""
    health = Health()

    health.record("endpoint", "chat", None, now=10.0, wall=1000.0, duration_seconds=0.1)

    record = health.records(now=12.0)[0]
    assert (record.success, record.age_seconds, record.last_success_at, record.error) == (True, 2.0, 1000.0, None)
    assert record.failures == {"refused": 0, "timeout": 0}


def test_failure_keeps_the_time_of_the_last_success() -> None:
    """The age goes on; the failure is counted by its reason."""
    health = Health()
    health.record("endpoint", "chat", None, now=10.0, wall=1000.0)
    health.record("endpoint", "chat", REFUSED, now=11.0, wall=1001.0)
    health.record("endpoint", "chat", REFUSED, now=12.0, wall=1002.0)

    record = health.records(now=15.0)[0]

    assert (record.success, record.age_seconds, record.error) == (False, 5.0, "nothing listens")
    assert record.failures["refused"] == 2


def test_never_succeeded_has_no_age() -> None:
    """Unknown, not 0."""
    health = Health()
    health.record("nvml", "", REFUSED, now=1.0, wall=1.0)

    assert health.records(now=5.0)[0].age_seconds is None


def test_a_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Three failures and a recovery are two lines."""
    caplog.set_level(logging.INFO, logger="vramscope")
    health = Health()
    for fault in (REFUSED, REFUSED, REFUSED, None, None):
        health.record("endpoint", "chat", fault, now=1.0, wall=1.0)

    assert [line.message for line in caplog.records] == [
        "endpoint chat failed: nothing listens",
        "endpoint chat works again",
    ]


def test_reasons_that_alternate_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    """An overloaded server may fail in two ways by turns; the next outage is told anew."""
    caplog.set_level(logging.INFO, logger="vramscope")
    health = Health()
    slow = Fault(reason="timeout", message="too slow")
    for fault in (REFUSED, slow, REFUSED, slow, None, slow):
        health.record("endpoint", "chat", fault, now=1.0, wall=1.0)

    assert [line.message for line in caplog.records] == [
        "endpoint chat failed: nothing listens",
        "endpoint chat failed: too slow",
        "endpoint chat works again",
        "endpoint chat failed: too slow",
    ]
