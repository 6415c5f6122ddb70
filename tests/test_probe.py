"""A probe's file beside the whole program: the server is this process, and its file is on a shared volume."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.discovery.table import started_ticks
from collectors.simulated.state import write_state
from tests.node import GIB, H100, MIB, Node, recorded_node, state
from tests.probe_file import file, record
from tests.program import finished, running

HELD = 2 * GIB
POOL = 100 * 32 * 512
LASTING = 60.0
"""Seconds between two files: one that is written once stays fresh on the busiest machine."""
UUID = H100.uuid.removeprefix("GPU-").replace("-", "")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with recorded_node(tmp_path) as node:
        write_state(node.state_file, state(own_bytes=HELD))
        (tmp_path / "probes").mkdir(mode=0o750)
        node.config.write_text(node.config.read_text() + f"probe_directory: {tmp_path / 'probes'}\n")
        yield node


def write(node: Node, *, pid: int | None = None) -> Path:
    """Weights of 256 MiB and the pool are active with 100 MiB of temporaries; graphs have 400 of 1,800 MiB reserved."""
    pid, namespace = pid or os.getpid(), Path("/proc/self/ns/pid").stat().st_ino
    active = 256 * MIB + POOL + 100 * MIB
    figures = record(
        0, UUID, active=active, active_peak=active + 700 * MIB, reserved=1800 * MIB, private_pools=400 * MIB, ooms=2
    )
    path = node.folder / "probes" / f"{namespace}-{pid}"
    new = path.with_name(f".{path.name}")
    written = time.clock_gettime(time.CLOCK_BOOTTIME)
    ticks = started_ticks(os.getpid())
    whole = file(figures, pid=pid, namespace=namespace, ticks=ticks, written=written, interval=LASTING)
    new.write_bytes(whole)
    new.chmod(0o640)
    new.replace(path)
    return path


def test_one_look_tells_the_runtime_apart(node: Node) -> None:
    """`vramscope snapshot` waits for the file as for every other source; each component by hand."""
    write(node)

    done = finished("snapshot", "--config", str(node.config), "--json", environment=node.environment)

    document = json.loads(done.stdout)
    parts = {part["component"]: part["bytes"] for part in document["devices"][0]["components"]}
    assert parts["context"] == HELD - 1800 * MIB
    assert parts["activations"] == 100 * MIB
    assert parts["cuda_graphs"] == 400 * MIB
    assert parts["allocator_slack"] == 1800 * MIB - 400 * MIB - 356 * MIB - POOL
    assert parts["runtime"] == 0
    assert sum(parts.values()) == document["devices"][0]["total_bytes"]
    (rank,) = document["servers"][0]["ranks"]
    assert (rank["allocator"]["ooms"], rank["allocator"]["torch_version"]) == (2, "2.9.0")


def test_a_probe_comes_and_goes(node: Node) -> None:
    """The agent finds the file within a look, and forgets it when it is gone; nothing of either needs a restart."""
    arguments = ("run", "--config", str(node.config), "--listen", "127.0.0.1:0")
    node.config.write_text(node.config.read_text() + "intervals: {processes: 0.5}\n")
    with running(*arguments, environment=node.environment) as program:
        program.until(lambda: 'component="kv_used"' in program.metrics())
        assert 'collector="probe"' not in program.metrics()

        path = write(node)

        text = program.until(lambda: found if 'kind="allocator"' in (found := program.metrics()) else "")
        assert 'vramscope_collector_success{collector="probe",target="chat"} 1\n' in text
        path.unlink()
        program.until(lambda: 'collector="probe"' not in program.metrics())
        assert 'component="context"' not in program.metrics()
