"""The health of sources: what is counted, and that a change of state is logged once."""

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.health import REASONS, Health
from collectors.readings import Fault

ROOT = Path(__file__).parents[2]
ERRORS = ("Absent", "Unreachable", "Refused", "Unreadable", "CollectorError", "Meaning")
SOURCES = {  # where what a collector says is raised
    "nvml": ("collectors/nvml", "agent/hardware.py"),
    "processes": ("collectors/nvml", "collectors/procfs.py", "collectors/discovery"),
    "endpoint": ("collectors",),
    "model": ("collectors/model_files.py",),
    "log": ("collectors/engine_logs",),
    "probe": ("collectors/probe_files.py",),
    "state": ("agent/state_file.py", "agent/disk.py"),
    "recorder": ("agent/recorder/writer.py", "agent/disk.py"),
}
REFUSED = Fault(reason="refused", message="nothing listens")


def test_first_success() -> None:
    """Success, its age and wall time; failures start at 0."""
    health = Health()

    health.record("endpoint", "chat", None, now=10.0, wall=1000.0, duration_seconds=0.1)

    record = health.records(now=12.0)[0]
    assert (record.success, record.age_seconds, record.last_success_at, record.error) == (True, 2.0, 1000.0, None)
    assert record.failures.keys() >= {"refused", "timeout", "no_series"}
    assert set(record.failures.values()) == {0}


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


def raised(collector: str) -> set[str]:
    """Every reason in the sources of a collector: of its errors, its faults and the tables of those."""
    paths = [ROOT / name for name in SOURCES[collector]]
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    return {reason for file in files for reason in _reasons(ast.parse(file.read_text(encoding="utf-8")))}


def _reasons(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        said: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            said += node.args[:1] if node.func.id in ERRORS else []
            said += [one.value for one in node.keywords if node.func.id == "Fault" and one.arg == "reason"]
        elif (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "REASONS"
            and isinstance(node.value, ast.Dict)
        ):
            said += node.value.values
        for one in said:
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value
            elif isinstance(one, ast.JoinedStr) and ast.unparse(one).startswith("f'http_"):
                yield from (f"http_{status}" for status in (401, 403, 404, 500, 503))


@pytest.mark.parametrize(("collector", "of"), REASONS)
def test_what_is_exported_from_the_start_can_happen(collector: str, of: str) -> None:
    """No reason is there at 0 for ever because nothing is called so."""
    assert set(REASONS[collector, of]) <= raised(collector)  # type: ignore[index] # a key of it


def test_each_kind_of_source_has_the_reasons_of_its_own() -> None:
    """Of a server, the node or a device, where those differ."""
    health = Health()
    health.record("processes", "", None, now=1.0, wall=1.0)
    health.record("processes", "chat", None, now=1.0, wall=1.0)
    health.record("processes", "GPU-0", None, now=1.0, wall=1.0, of="device")

    failures = {one.target: set(one.failures) for one in health.records(now=1.0)}

    assert failures == {
        "": {"no_proc"},
        "chat": {"permission"},
        "GPU-0": {"timeout", "hidden_processes"},
    }


@pytest.mark.parametrize("reason", ["no_series", "http_404", "reset"])
def test_a_first_failure_is_an_increase(reason: str) -> None:
    """Its series is there at 0 before."""
    health = Health()
    health.record("endpoint", "chat", None, now=1.0, wall=1.0)
    before = health.records(now=1.0)[0].failures[reason]
    health.record("endpoint", "chat", Fault(reason=reason, message="m"), now=2.0, wall=2.0)

    assert (before, health.records(now=2.0)[0].failures[reason]) == (0, 1)
