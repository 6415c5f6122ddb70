"""The node state file: what a simulated driver and process table answer, one fact a line, replaced atomically.

One format serves the simulated driver (this package), the driver-level double of the tests (C) and tests that need a
node in a given state. One space separates fields; a line's last field may hold spaces, unknown lines are ignored.

    driver VERSION
    device INDEX UUID BUS_ID TOTAL RESERVED ALLOCATED NAME...     bytes; free = total - reserved - allocated
    process INDEX PID BYTES|unknown KINDS                         KINDS: letters of C (compute) G (graphics) M (MPS)
    fault CALL INDEX|* CODE                                       that call answers this NVML error code
    hang CALL INDEX|*                                             that call does not return while the line stands
    delay CALL MICROSECONDS                                       that call takes at least so long
    listener PORT PID STARTED_AT                                  process that listens on a loopback port
    child PARENT_PID PID STARTED_AT TITLE...                      its descendants, with their command line

CALL is init, count, handle, identity, memory_v2, memory, processes.
"""

from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

Call = Literal["init", "count", "handle", "identity", "memory_v2", "memory", "processes"]
CALLS: tuple[Call, ...] = get_args(Call)


class DeviceState(Struct, frozen=True, kw_only=True):
    """One device as the driver sees it now; bytes."""

    index: int
    uuid: str
    bus_id: str
    name: str
    total_bytes: int
    reserved_bytes: int
    allocated_bytes: int

    @property
    def free_bytes(self) -> int:
        return self.total_bytes - self.reserved_bytes - self.allocated_bytes


class GpuProcess(Struct, frozen=True, kw_only=True):
    """One process on a device; ``used_bytes`` None is shown as not available."""

    index: int
    pid: int
    used_bytes: int | None
    kinds: str = "C"


class HostProcess(Struct, frozen=True, kw_only=True):
    """One process of a server; ``port`` is set on the one that listens, ``parent`` on the others."""

    pid: int
    started_at: float
    title: str = ""
    port: int | None = None
    parent: int | None = None


class NodeState(Struct, frozen=True, kw_only=True):
    """Everything a simulated driver and process table answer at one moment."""

    driver_version: str = "580.95.05"
    devices: tuple[DeviceState, ...] = ()
    gpu_processes: tuple[GpuProcess, ...] = ()
    host_processes: tuple[HostProcess, ...] = ()
    faults: tuple[tuple[Call, int | None, int], ...] = ()  # call, device (None: any), NVML error code
    hangs: tuple[tuple[Call, int | None], ...] = ()
    delays: tuple[tuple[Call, int], ...] = ()  # call, microseconds

    def lines(self) -> list[str]:
        out = [f"driver {self.driver_version}"]
        for device in self.devices:
            sizes = f"{device.total_bytes} {device.reserved_bytes} {device.allocated_bytes}"
            out.append(f"device {device.index} {device.uuid} {device.bus_id} {sizes} {device.name}")
        for process in self.gpu_processes:
            used = "unknown" if process.used_bytes is None else process.used_bytes
            out.append(f"process {process.index} {process.pid} {used} {process.kinds}")
        for host in self.host_processes:
            if host.port is not None:
                out.append(f"listener {host.port} {host.pid} {host.started_at}")
            else:
                out.append(f"child {host.parent} {host.pid} {host.started_at} {host.title}")
        out += [f"fault {call} {_target(index)} {code}" for call, index, code in self.faults]
        out += [f"hang {call} {_target(index)}" for call, index in self.hangs]
        out += [f"delay {call} {microseconds}" for call, microseconds in self.delays]
        return out


def _target(index: int | None) -> str:
    return "*" if index is None else str(index)


def write_state(path: Path, state: NodeState) -> None:
    """Replace the file in one step, so that a reader sees the old or the new state, never a part."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text("\n".join(state.lines()) + "\n", encoding="utf-8")
    temporary.replace(path)


def read_state(path: Path) -> NodeState:
    """Parse a state file.

    Raises:
        ValueError: a known line has wrong fields.
        OSError: the file can't be read.
    """
    fields: dict[str, list[list[str]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        word, _, rest = line.partition(" ")
        fields.setdefault(word, []).append(rest.split(" "))
    return NodeState(
        driver_version=" ".join(fields["driver"][-1]) if "driver" in fields else NodeState().driver_version,
        devices=tuple(
            DeviceState(
                index=int(index),
                uuid=uuid,
                bus_id=bus_id,
                total_bytes=int(total),
                reserved_bytes=int(reserved),
                allocated_bytes=int(allocated),
                name=" ".join(name),
            )
            for index, uuid, bus_id, total, reserved, allocated, *name in fields.get("device", [])
        ),
        gpu_processes=tuple(
            GpuProcess(index=int(index), pid=int(pid), used_bytes=_bytes(used), kinds=kinds)
            for index, pid, used, kinds in fields.get("process", [])
        ),
        host_processes=tuple(
            HostProcess(port=int(port), pid=int(pid), started_at=float(started))
            for port, pid, started in fields.get("listener", [])
        )
        + tuple(
            HostProcess(parent=int(parent), pid=int(pid), started_at=float(started), title=" ".join(title))
            for parent, pid, started, *title in fields.get("child", [])
        ),
        faults=tuple((_call(call), _index(target), int(code)) for call, target, code in fields.get("fault", [])),
        hangs=tuple((_call(call), _index(target)) for call, target in fields.get("hang", [])),
        delays=tuple((_call(call), int(microseconds)) for call, microseconds in fields.get("delay", [])),
    )


def _bytes(text: str) -> int | None:
    return None if text == "unknown" else int(text)


def _index(text: str) -> int | None:
    return None if text == "*" else int(text)


def _call(text: str) -> Call:
    for call in CALLS:
        if call == text:
            return call
    raise ValueError(f"unknown call {text!r}; expected one of {', '.join(CALLS)}")
