"""The node state file: what a simulated driver and process table answer, one fact a line, replaced atomically.

One format serves the simulated driver (this package), the driver-level double of the tests (C) and tests that need a
node in a given state. One space separates fields; a line's last field may hold spaces, unknown lines are ignored.

    driver VERSION
    device INDEX UUID BUS_ID TOTAL RESERVED ALLOCATED NAME...     bytes; free = total - reserved - allocated
    mig INDEX GI CI UUID TOTAL ALLOCATED NAME...                  a compute instance; those of one GI share its memory
    mig_mode INDEX                                                in MIG mode also without instances
    process INDEX[:GI[:CI]] PID BYTES|unknown KINDS               KINDS: letters of C (compute) G (graphics) M (MPS)
    host TOTAL AVAILABLE SOME FULL                                host memory in bytes, seconds of pressure on it
    numa INDEX NODE                                               the device's memory is a NUMA node of the host
    ecc INDEX ERRORS                                              uncorrectable errors; without the line not supported
    remap INDEX PENDING FAILURE                                   row remapping, 0 or 1 each; likewise
    xid INDEX NUMBER                                              an error that happens when the line appears
    fault CALL INDEX|* CODE                                       that call answers this NVML error code
    hang CALL INDEX|*                                             that call does not return while the line stands
    delay CALL MICROSECONDS                                       that call takes at least so long
    listener PORT PID STARTED_AT [TITLE...]                       process that listens on a loopback port
    child PARENT_PID PID STARTED_AT TITLE...                      its descendants, with their command line
    allocator INDEX PID ACTIVE ACTIVE_PEAK RESERVED PRIVATE       bytes, as a probe inside the process says

CALL is init, count, handle, mig (mode), slot (one MIG instance), identity, memory_v2, memory, bar1, numa, processes,
health, events. A GPU whose memory is the host's answers memory and memory_v2 with code 3.
"""

from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

Call = Literal[
    "init",
    "count",
    "handle",
    "mig",
    "slot",
    "identity",
    "memory_v2",
    "memory",
    "bar1",
    "numa",
    "processes",
    "health",
    "events",
]
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


class InstanceState(Struct, frozen=True, kw_only=True):
    """One compute instance of a MIG GPU instance, with the figures of the GPU instance; bytes."""

    index: int
    instance: int
    compute_instance: int = 0
    uuid: str
    name: str
    total_bytes: int
    allocated_bytes: int

    @property
    def free_bytes(self) -> int:
        return self.total_bytes - self.allocated_bytes


class GpuProcess(Struct, frozen=True, kw_only=True):
    """One process on a device or on a MIG instance of it; ``used_bytes`` None is shown as not available."""

    index: int
    instance: int | None = None
    compute_instance: int = 0
    pid: int
    used_bytes: int | None
    kinds: str = "C"


class HostState(Struct, frozen=True, kw_only=True):
    """The host's memory, and for how long tasks have waited for it."""

    total_bytes: int
    available_bytes: int
    some_seconds: float = 0.0
    full_seconds: float = 0.0


class HostProcess(Struct, frozen=True, kw_only=True):
    """One process of a server; ``port`` is set on the one that listens, ``parent`` on the others."""

    pid: int
    started_at: float
    title: str = ""
    port: int | None = None
    parent: int | None = None


class AllocatorState(Struct, frozen=True, kw_only=True):
    """PyTorch's allocator of one process on one device, as a probe inside it would tell; bytes."""

    index: int
    pid: int
    active_bytes: int
    active_peak_bytes: int
    reserved_bytes: int
    private_pools_bytes: int


class NodeState(Struct, frozen=True, kw_only=True):
    """Everything a simulated driver and process table answer at one moment."""

    driver_version: str = "580.95.05"
    devices: tuple[DeviceState, ...] = ()
    instances: tuple[InstanceState, ...] = ()
    mig_mode: tuple[int, ...] = ()
    host: HostState | None = None
    numa: dict[int, int] = {}  # by device
    ecc: dict[int, int] = {}
    remap: dict[int, tuple[bool, bool]] = {}  # pending, failure
    xids: tuple[tuple[int, int], ...] = ()  # device, number; in the order they happened
    gpu_processes: tuple[GpuProcess, ...] = ()
    host_processes: tuple[HostProcess, ...] = ()
    faults: tuple[tuple[Call, int | None, int], ...] = ()  # call, device (None: any), NVML error code
    hangs: tuple[tuple[Call, int | None], ...] = ()
    delays: tuple[tuple[Call, int], ...] = ()  # call, microseconds
    allocators: tuple[AllocatorState, ...] = ()

    def lines(self) -> list[str]:
        out = [f"driver {self.driver_version}"]
        for device in self.devices:
            sizes = f"{device.total_bytes} {device.reserved_bytes} {device.allocated_bytes}"
            out.append(f"device {device.index} {device.uuid} {device.bus_id} {sizes} {device.name}")
        for mig in self.instances:
            where = f"{mig.index} {mig.instance} {mig.compute_instance}"
            out.append(f"mig {where} {mig.uuid} {mig.total_bytes} {mig.allocated_bytes} {mig.name}")
        out += [f"mig_mode {index}" for index in self.mig_mode]
        for process in self.gpu_processes:
            used = "unknown" if process.used_bytes is None else process.used_bytes
            within = "" if process.instance is None else f":{process.instance}:{process.compute_instance}"
            out.append(f"process {process.index}{within} {process.pid} {used} {process.kinds}")
        out += self._facts()
        for host in self.host_processes:
            if host.port is not None:
                out.append(f"listener {host.port} {host.pid} {host.started_at} {host.title}".rstrip())
            else:
                out.append(f"child {host.parent} {host.pid} {host.started_at} {host.title}")
        for one in self.allocators:
            sizes = f"{one.active_bytes} {one.active_peak_bytes} {one.reserved_bytes} {one.private_pools_bytes}"
            out.append(f"allocator {one.index} {one.pid} {sizes}")
        out += [f"fault {call} {_target(index)} {code}" for call, index, code in self.faults]
        out += [f"hang {call} {_target(index)}" for call, index in self.hangs]
        out += [f"delay {call} {microseconds}" for call, microseconds in self.delays]
        return out

    def _facts(self) -> list[str]:
        host = self.host
        pressure = f"{host.some_seconds} {host.full_seconds}" if host else ""
        out = [f"host {host.total_bytes} {host.available_bytes} {pressure}"] if host else []
        out += [f"numa {index} {node}" for index, node in self.numa.items()]
        out += [f"ecc {index} {errors}" for index, errors in self.ecc.items()]
        out += [f"remap {index} {pending:d} {failure:d}" for index, (pending, failure) in self.remap.items()]
        return out + [f"xid {index} {number}" for index, number in self.xids]


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
        instances=tuple(
            InstanceState(
                index=int(index),
                instance=int(instance),
                compute_instance=int(compute_instance),
                uuid=uuid,
                total_bytes=int(total),
                allocated_bytes=int(allocated),
                name=" ".join(name),
            )
            for index, instance, compute_instance, uuid, total, allocated, *name in fields.get("mig", [])
        ),
        mig_mode=tuple(int(index) for (index,) in fields.get("mig_mode", [])),
        host=next(
            (_host(total, free, some, full) for total, free, some, full in fields.get("host", [])),
            None,
        ),
        numa={int(index): int(node) for index, node in fields.get("numa", [])},
        ecc={int(index): int(errors) for index, errors in fields.get("ecc", [])},
        remap={int(index): (pending == "1", failure == "1") for index, pending, failure in fields.get("remap", [])},
        xids=tuple((int(index), int(number)) for index, number in fields.get("xid", [])),
        gpu_processes=tuple(_process(place, pid, used, kinds) for place, pid, used, kinds in fields.get("process", [])),
        host_processes=tuple(
            HostProcess(port=int(port), pid=int(pid), started_at=float(started), title=" ".join(title))
            for port, pid, started, *title in fields.get("listener", [])
        )
        + tuple(
            HostProcess(parent=int(parent), pid=int(pid), started_at=float(started), title=" ".join(title))
            for parent, pid, started, *title in fields.get("child", [])
        ),
        faults=tuple((_call(call), _index(target), int(code)) for call, target, code in fields.get("fault", [])),
        hangs=tuple((_call(call), _index(target)) for call, target in fields.get("hang", [])),
        delays=tuple((_call(call), int(microseconds)) for call, microseconds in fields.get("delay", [])),
        allocators=tuple(
            AllocatorState(
                index=int(index),
                pid=int(pid),
                active_bytes=int(active),
                active_peak_bytes=int(peak),
                reserved_bytes=int(reserved),
                private_pools_bytes=int(private),
            )
            for index, pid, active, peak, reserved, private in fields.get("allocator", [])
        ),
    )


def _process(place: str, pid: str, used: str, kinds: str) -> GpuProcess:
    index, *within = (int(text) for text in place.split(":"))
    names = ("instance", "compute_instance")[: len(within)]
    return GpuProcess(
        index=index, pid=int(pid), used_bytes=_bytes(used), kinds=kinds, **dict(zip(names, within, strict=True))
    )


def _host(total: str, available: str, some: str, full: str) -> HostState:
    return HostState(
        total_bytes=int(total), available_bytes=int(available), some_seconds=float(some), full_seconds=float(full)
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
