"""One look at the process table: what discovery found, and who listens on the ports that it did not."""

from pathlib import Path

from agent.processes import MAX_NAME, look, with_names
from collectors.errors import Refused
from collectors.home import Homes
from collectors.readings import (
    DeviceReading,
    FoundServer,
    NodeReading,
    ProcessesReading,
    ProcessMemory,
    ProcessTree,
    ServerProcess,
)


def tree(pid: int) -> ProcessTree:
    return ProcessTree(at=0.0, processes=(ServerProcess(pid=pid, started_at=1.0, title="x"),))


def found(pid: int, port: int, *, listening: bool, network_pid: int | None = None) -> FoundServer:
    return FoundServer(
        engine="vllm", tree=tree(pid), started_at=1.0, listening=listening, port=port, network_pid=network_pid
    )


class Table:
    """Who listens on which port; 9999 is hidden."""

    def __init__(self, listeners: dict[int, int]) -> None:
        self._listeners = listeners

    def tree(self, port: int) -> ProcessTree | None:
        if port == 9999:
            raise Refused("permission", "hidden")
        return tree(self._listeners[port]) if port in self._listeners else None


class Found:
    def __init__(self, *servers: FoundServer) -> None:
        self._servers = servers

    def scan(self) -> tuple[FoundServer, ...]:
        return self._servers

    def name(self, pid: int) -> str:
        return {1: "python3", 2: "x" * 5000}.get(pid, "")


def test_a_port_that_a_found_server_holds_is_not_looked_up() -> None:
    """Its tree is the found server's."""
    seen = look(Table({8000: 1}), Found(found(1, 8000, listening=True)), {"chat": 8000})

    assert (len(seen.found), seen.trees) == (1, {})


def test_a_loading_server_keeps_its_processes_while_nobody_listens() -> None:
    """It is the one that will."""
    seen = look(Table({}), Found(found(1, 8000, listening=False)), {"chat": 8000})

    assert (len(seen.found), seen.trees) == (1, {})


def test_a_process_that_only_names_the_port_of_another_is_dropped() -> None:
    """A configured server is who listens there, whatever a command line says."""
    seen = look(Table({8000: 5}), Found(found(1, 8000, listening=False)), {"chat": 8000})

    assert seen.found == ()
    assert seen.trees == {"chat": tree(5)}


def test_nobody_and_nobody_known() -> None:
    """No listener is an answer; a hidden one is a fault with its reason."""
    seen = look(Table({}), None, {"chat": 8000, "far": 9999})

    assert seen.trees == {"chat": None}
    assert seen.faults["far"].reason == "permission"


def test_the_same_port_in_another_network_is_another_port() -> None:
    """What listens there says nothing about ours."""
    seen = look(Table({}), Found(found(1, 8000, listening=True, network_pid=1)), {"chat": 8000})

    assert (len(seen.found), seen.trees) == (1, {"chat": None})


def test_the_home_of_every_server_is_looked_up(tmp_path: Path) -> None:
    """Of its first process, whether it was found or holds the port of a configured one."""
    for pid in (1, 5):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/system.slice/vllm-{pid}.service\n")
    homes = Homes(proc=tmp_path, host=tmp_path)

    seen = look(Table({8001: 5}), Found(found(1, 8000, listening=True)), {"code": 8001}, homes=homes)

    assert {pid: home.container and home.container.unit for pid, home in seen.homes.items()} == {
        1: "vllm-1.service",
        5: "vllm-5.service",
    }


def test_processes_of_a_device_get_their_names() -> None:
    """As the look found them, cut where they are long, empty where they are not known; no list stays none."""
    listed = tuple(ProcessMemory(pid=pid, used_bytes=5) for pid in (1, 2, 3))
    devices = (DeviceReading(index=0, processes=ProcessesReading(at=1.0, processes=listed)), DeviceReading(index=1))

    named = with_names(NodeReading(at=1.0, driver_version=None, devices=devices), Found().name)

    first, second = named.devices
    assert first.processes is not None
    assert [one.name for one in first.processes.processes] == ["python3", "x" * MAX_NAME, ""]
    assert [one.used_bytes for one in first.processes.processes] == [5, 5, 5]
    assert second == devices[1]
