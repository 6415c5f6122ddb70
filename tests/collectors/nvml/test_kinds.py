"""Kinds of hardware: MIG, memory that is the host's, memory that is the OS's too, virtual GPUs, WSL, MPS."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from collectors.readings import DeviceReading, NodeReading
from collectors.simulated.state import Call, DeviceState, HostState, NodeState
from tests.collectors.nvml.node import MIB, ONE, TWO, Node, device, instance, process
from tests.double.build import build

GIB = 2**30
HOST = HostState(total_bytes=120 * GIB, available_bytes=70 * GIB, some_seconds=4.5, full_seconds=1.25)
MIG = NodeState(
    devices=(device(0, "a", allocated_mib=81), device(1, "b", allocated_mib=400)),
    instances=(
        instance(7, "seven", allocated_mib=5000),
        instance(9, "nine", allocated_mib=3000),
        instance(9, "nine-second", ci=1, allocated_mib=3000),
    ),
    gpu_processes=(
        process(100, 4900, gi=7),
        process(200, 1400, gi=9),
        process(201, 1500, gi=9, ci=1),
        process(300, 380, index=1),
    ),
)


def shared(**fields: Any) -> NodeState:
    """A GB10: the driver does not support the question for memory, and shows what processes hold."""
    return replace(
        ONE,
        **{
            "devices": (
                replace(ONE.devices[0], name="NVIDIA GB10", total_bytes=0, reserved_bytes=0, allocated_bytes=0),
            ),
            "host": HOST,
            "faults": (("memory", 0, 3), ("memory_v2", 0, 3), ("bar1", 0, 3)),
            **fields,
        },
    )


def sized(total_bytes: int) -> DeviceState:
    """A device that says its memory is so large."""
    return replace(ONE.devices[0], total_bytes=total_bytes, reserved_bytes=0, allocated_bytes=0)


def bytes_by_pid(found: DeviceReading) -> dict[int, int | None]:
    assert found.processes is not None
    return {one.pid: one.used_bytes for one in found.processes.processes}


def test_mig_instances_are_devices(node: Node) -> None:
    """A GPU in MIG mode is replaced by its GPU instances, each once whatever its compute instances; others stay."""
    node.write(MIG)

    seven, nine, whole = node.first_pass().devices

    assert [found.gpu for found in (seven, nine, whole)] == ["0:7", "0:9", "1"]
    assert [found.uuid for found in (seven, nine, whole)] == ["MIG-seven", "MIG-nine", "GPU-b"]
    assert {found.parent_uuid for found in (seven, nine)} == {"GPU-a"}
    assert {found.gpu_uuid for found in (seven, nine)} == {"GPU-a"}
    assert (whole.parent_uuid, whole.gpu_uuid) == (None, "GPU-b")
    assert [found.memory_kind for found in (seven, nine, whole)] == ["mig", "mig", "device"]
    assert seven.name == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert seven.bus_id == "00000000:1A:00.0"
    assert seven.memory is not None
    assert (seven.memory.total_bytes, seven.memory.free_bytes) == (9984 * MIB, 4984 * MIB)
    assert seven.memory.reserved_bytes == 0
    assert bytes_by_pid(seven) == {100: 4900 * MIB}
    assert bytes_by_pid(nine) == {200: 1400 * MIB, 201: 1500 * MIB}
    assert bytes_by_pid(whole) == {300: 380 * MIB}


def test_mig_mode_without_instances(node: Node) -> None:
    """A GPU that is to be partitioned and is not yet stands there itself."""
    node.write(replace(MIG, instances=(), gpu_processes=(), mig_mode=(0,)))

    first, _ = node.first_pass().devices

    assert (first.gpu, first.uuid, first.memory_kind) == ("0", "GPU-a", "mig")
    assert first.memory is not None


def test_mig_instances_that_are_hidden(node: Node) -> None:
    """Without the privilege to see the instances the GPU stands there by name, with what is missing; others go on."""
    node.write(replace(MIG, faults=(("slot", 0, 4),)))

    hidden, whole = node.first_pass().devices

    assert (hidden.gpu, hidden.uuid, hidden.memory_kind) == ("0", "GPU-a", "mig")
    assert hidden.memory is None
    assert hidden.memory_fault is not None
    assert hidden.memory_fault == hidden.processes_fault
    assert hidden.memory_fault.reason == "no_permission"
    assert "NVIDIA_MIG_MONITOR_DEVICES=all" in hidden.memory_fault.message
    assert whole.memory is not None


def test_mig_gpu_that_denies_its_sum(node: Node) -> None:
    """In a container that got no instance the GPU's own figures are denied too, and the hint is the same."""
    no_sum: tuple[tuple[Call, int, int], ...] = (("memory", 0, 4), ("memory_v2", 0, 4))
    node.write(replace(MIG, instances=(), gpu_processes=(), mig_mode=(0,), faults=no_sum))

    first, _ = node.first_pass().devices

    assert first.memory_fault is not None
    assert "NVIDIA_MIG_MONITOR_DEVICES=all" in first.memory_fault.message


def test_mig_is_reconfigured(node: Node) -> None:
    """Instances that are made anew are other devices, also under a used id, and a whole GPU comes back as itself."""

    def uuids(reading: NodeReading) -> list[str | None]:
        return [found.uuid for found in reading.devices if found.memory]

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(lambda reading: uuids(reading) == ["MIG-seven", "MIG-nine", "GPU-b"])
            node.write(replace(MIG, instances=(instance(7, "other", allocated_mib=40),), gpu_processes=()))
            reading = await watch.reading(lambda reading: uuids(reading) == ["MIG-other", "GPU-b"])
            assert reading.devices[0].memory is not None
            assert reading.devices[0].memory.free_bytes == (9984 - 40) * MIB
            node.write(TWO)
            await watch.reading(lambda reading: uuids(reading) == ["GPU-a", "GPU-b"])
            assert watch.faults.empty()

    node.write(MIG)
    asyncio.run(life())


def test_mig_gpu_that_hangs_takes_its_instances_out(node: Node) -> None:
    """A call that hangs on one instance costs those of that GPU, under their names, and no other device."""

    def out(reading: NodeReading) -> bool:
        return [bool(found.memory) for found in reading.devices] == [False, False, True]

    async def life() -> None:
        async with node.watch(deadline_seconds=0.5) as watch:
            await watch.reading(lambda reading: all(found.memory for found in reading.devices))
            node.write(replace(MIG, hangs=(("memory_v2", 0),)))
            reading = await watch.reading(out)
            assert [found.gpu for found in reading.devices] == ["0:7", "0:9", "1"]
            assert {found.memory_fault and found.memory_fault.reason for found in reading.devices[:2]} == {"timeout"}
            assert {found.parent_uuid for found in reading.devices[:2]} == {"GPU-a"}
            node.write(MIG)
            await watch.reading(lambda reading: len(reading.devices) == 3 and not out(reading))

    node.write(MIG)
    asyncio.run(life())


def test_memory_that_is_the_hosts(node: Node) -> None:
    """Where the driver does not support the question, the host's memory is the device's; processes have their bytes."""
    node.write(shared())

    reading = node.first_pass()

    (found,) = reading.devices
    assert found.memory_kind == "unified"
    assert found.memory is not None
    assert (found.memory.total_bytes, found.memory.free_bytes) == (120 * GIB, 70 * GIB)
    assert found.memory.reserved_bytes is None
    assert found.memory_fault is None
    assert bytes_by_pid(found) == {100: 19980 * MIB}
    assert reading.host_memory is not None
    assert reading.host_memory.total_bytes == 120 * GIB
    assert reading.host_memory.available_bytes == 70 * GIB
    assert reading.host_memory.pressure_seconds == {"some": 4.5, "full": 1.25}


@pytest.mark.parametrize(
    ("total_bytes", "bar1", "kind"),
    [
        pytest.param(0, False, "unified", id="a total of 0 and no BAR1"),
        pytest.param(121 * GIB, False, "unified", id="MemTotal within 2 % and no BAR1"),
        pytest.param(121 * GIB, True, "device", id="a card as large as its host has a BAR1"),
        pytest.param(124 * GIB, False, "device", id="3 % away from MemTotal"),
        pytest.param(80 * GIB, False, "device", id="GH200 has no BAR1 either"),
    ],
)
def test_which_memory_is_the_hosts(node: Node, total_bytes: int, bar1: bool, kind: str) -> None:
    """A driver that answers for the host's memory as if it were the device's is found out; a large card is not."""
    no_bar1: tuple[tuple[Call, int, int], ...] = () if bar1 else (("bar1", 0, 3),)
    node.write(replace(ONE, devices=(sized(total_bytes),), host=HOST, faults=no_bar1))

    reading = node.first_pass()

    assert reading.devices[0].memory_kind == kind
    assert (reading.host_memory is not None) == (kind == "unified")
    memory = reading.devices[0].memory
    assert memory is not None
    assert memory.total_bytes == (120 * GIB if kind == "unified" else total_bytes)


def test_a_total_of_nothing_is_no_evidence(node: Node) -> None:
    """A card that answers 0 has no figures yet; it is not taken for one with the host's memory."""
    node.write(replace(ONE, devices=(sized(0),), host=HOST))

    found = node.first_device()

    assert (found.memory_kind, found.memory) == ("device", None)
    assert found.memory_fault is not None
    assert found.memory_fault.reason == "inconsistent"


@pytest.mark.parametrize("start", [replace(ONE, devices=(sized(0),), host=HOST), shared()])
def test_a_card_that_answers_later_is_a_card(node: Node, start: NodeState) -> None:
    """Whatever its first answers were taken for."""

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(lambda reading: bool(reading.devices))
            node.write(replace(ONE, host=HOST))
            reading = await watch.reading(lambda reading: reading.devices[0].memory_kind == "device")
            assert reading.devices[0].memory is None or reading.devices[0].memory.total_bytes == 81559 * MIB
            await watch.reading(lambda reading: reading.devices[0].memory is not None)

    node.write(start)
    asyncio.run(life())


@pytest.mark.parametrize("code", [4, 7, 20, 777, 999])
def test_a_failing_question_for_bar1_is_no_evidence(double: Node, code: int) -> None:
    """Only a driver that says there is none tells that the memory is the host's."""
    double.write(replace(ONE, devices=(sized(121 * GIB),), host=HOST, faults=(("bar1", 0, code),)))

    found = double.first_device()

    assert found.memory_kind == "device"
    assert found.memory is not None


def test_host_figures_that_can_not_be_read(node: Node) -> None:
    """Then there is no figure, and the reason names the file."""
    node.write(shared(host=None))

    found = node.first_device()

    assert found.memory is None
    assert found.memory_fault is not None
    assert found.memory_fault.reason == "host_figures"


def test_a_card_once_seen_stays_a_card(node: Node) -> None:
    """A driver that ceases to answer for memory does not turn the device into one with the host's memory."""

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(lambda reading: reading.devices[0].memory is not None)
            node.write(replace(ONE, host=HOST, faults=(("memory", 0, 3), ("memory_v2", 0, 3))))
            reading = await watch.reading(lambda reading: reading.devices[0].memory is None)
            assert reading.devices[0].memory_fault is not None
            assert reading.devices[0].memory_fault.reason == "not_supported"

    node.write(replace(ONE, host=HOST))
    asyncio.run(life())


def test_memory_that_the_operating_system_uses_too(node: Node) -> None:
    """A GH200 in NUMA mode: memory is the device's own, and the node's number is known."""
    node.write(replace(ONE, numa={0: 1}, host=HOST, faults=(("bar1", 0, 3),)))

    found = node.first_device()

    assert (found.memory_kind, found.numa_node, found.addressing) == ("device", 1, "ATS")
    assert found.memory is not None


def test_driver_that_knows_no_numa_node(tmp_path: Any) -> None:
    """An older driver lacks the question; nothing else is missing for it."""
    node = Node(tmp_path / "node.state", build(tmp_path, "WITHOUT_NUMA"))
    node.write(replace(ONE, numa={0: 1}))

    found = node.first_device()

    assert (found.numa_node, found.addressing) == (None, None)
    assert found.memory is not None


def test_vgpu_guest(node: Node) -> None:
    """A virtual GPU has its profile's memory and its own processes; MIG, BAR1 and health are not for it."""
    unsupported: tuple[tuple[Call, None, int], ...] = tuple(
        (call, None, 3) for call in ("mig", "bar1", "health", "events")
    )
    node.write(replace(ONE, devices=(sized(24 * GIB),), faults=unsupported))

    found = node.first_device()

    assert found.memory is not None
    assert (found.memory_kind, found.memory.total_bytes) == ("device", 24 * GIB)
    assert bytes_by_pid(found) == {100: 19980 * MIB}
    assert found.health is None
    assert not found.events


def test_wsl(node: Node) -> None:
    """v2 is answered with UNKNOWN and processes have no bytes: the device's figures by v1, the rest not known."""
    processes = (process(100, None, "CG"), process(101, None, "C"))
    node.write(replace(ONE, gpu_processes=processes, faults=(("memory_v2", None, 999), ("mig", None, 3))))

    found = node.first_device()

    assert found.memory is not None
    assert found.memory.reserved_bytes is None
    assert found.memory.free_bytes == ONE.devices[0].free_bytes
    assert bytes_by_pid(found) == {100: None, 101: None}


def test_mps(node: Node) -> None:
    """The MPS server is a compute process; its clients are in a list of their own, or in both."""
    node.write(replace(ONE, gpu_processes=(process(50, 30, "C"), process(100, 9000, "M"), process(101, 10000, "CM"))))

    assert bytes_by_pid(node.first_device()) == {50: 30 * MIB, 100: 9000 * MIB, 101: 10000 * MIB}


def test_confidential_computing(node: Node) -> None:
    """With encrypted memory there is no static BAR1 and events may be denied; memory and processes are as ever."""
    node.write(replace(ONE, host=HOST, faults=(("bar1", None, 3), ("events", None, 4), ("health", None, 3))))

    found = node.first_device()

    assert found.memory is not None
    assert (found.memory_kind, found.memory.reserved_bytes) == ("device", 479 * MIB)
    assert bytes_by_pid(found) == {100: 19980 * MIB}
    assert (found.health, found.events) == (None, False)
