"""What one pass says, by the real binding on the double and by the simulated driver alike."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from collectors.nvml.driver import misreads_processes
from collectors.readings import NodeReading
from collectors.simulated.state import Call, GpuProcess, NodeState
from tests.collectors.nvml.node import MIB, ONE, TWO, Node, device, process
from tests.double.build import build


def used(node: Node) -> dict[int, int | None]:
    """Bytes by pid as the first pass has them."""
    return listed(node.first_pass())


def listed(reading: NodeReading) -> dict[int, int | None]:
    """Bytes by pid on the first device."""
    processes = reading.devices[0].processes
    assert processes is not None
    return {entry.pid: entry.used_bytes for entry in processes.processes}


def test_identity_and_v2_arithmetic(node: Node) -> None:
    """A device has its UUID, name and bus id, and total = reserved + allocated + free."""
    node.write(ONE)

    reading = node.first_pass()

    (found,) = reading.devices
    assert reading.driver_version == ONE.driver_version
    assert (found.index, found.uuid, found.name, found.bus_id) == (
        0,
        "GPU-a",
        "NVIDIA H100 80GB HBM3",
        "00000000:1A:00.0",
    )
    assert found.memory is not None
    assert found.memory.total_bytes == 85520809984
    assert found.memory.reserved_bytes == 479 * MIB
    assert found.memory.free_bytes == (81559 - 479 - 20000) * MIB
    assert found.memory_fault is None


def test_a_slow_driver_is_seen(node: Node) -> None:
    """How long its answer took, or its failure, call by call, and the whole pass."""
    node.write(replace(ONE, delays=(("processes", 50_000),), faults=(("memory", 0, 999), ("memory_v2", 0, 999))))

    reading = node.first_pass()

    (found,) = reading.devices
    assert found.processes_duration_seconds is not None
    assert found.processes_duration_seconds >= 0.05
    assert found.memory_fault is not None
    assert found.memory_duration_seconds is not None
    assert 0 <= found.memory_duration_seconds < found.processes_duration_seconds
    assert reading.duration_seconds is not None
    assert reading.duration_seconds >= found.memory_duration_seconds + found.processes_duration_seconds


@pytest.mark.parametrize("code", [3, 13, 25, 26, 999])
def test_v1_stands_in_for_v2_visibly(node: Node, code: int) -> None:
    """Where the v2 call fails as old drivers fail, v1 gives total and free, and reserved is not known."""
    node.write(replace(ONE, faults=(("memory_v2", None, code),)))

    memory = node.first_device().memory

    assert memory is not None
    assert (memory.total_bytes, memory.free_bytes) == (81559 * MIB, (81559 - 479 - 20000) * MIB)
    assert memory.reserved_bytes is None


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        pytest.param([(100, 50, "CG")], {100: 50 * MIB}, id="a process in two lists counts once"),
        pytest.param([(100, 50, "C"), (100, 70, "G")], {100: 70 * MIB}, id="the largest figure of a process counts"),
        pytest.param([(100, 50, "C"), (7, 9, "M")], {100: 50 * MIB, 7: 9 * MIB}, id="MPS clients are processes too"),
        pytest.param([(100, None, "C")], {100: None}, id="hidden bytes stay unknown"),
        pytest.param([(100, None, "C"), (100, 70, "G")], {100: 70 * MIB}, id="bytes known to one list are known"),
        pytest.param([(100, 0, "C")], {100: 0}, id="zero is a figure"),
        pytest.param([], {}, id="an empty list is an answer"),
    ],
)
def test_process_lists(node: Node, lists: list[tuple[int, int | None, str]], expected: dict[int, int | None]) -> None:
    """Processes are merged by pid over the compute, graphics and MPS lists."""
    node.write(replace(ONE, gpu_processes=tuple(process(*entry) for entry in lists)))

    assert used(node) == expected


@pytest.mark.parametrize(
    ("faults", "memory_reason", "processes_reason"),
    [
        pytest.param([("processes", 3)], None, "not_supported", id="no process lists at all"),
        pytest.param([("processes", 4)], None, "no_permission", id="process lists denied"),
        pytest.param([("memory_v2", 15)], "gpu_lost", None, id="v1 is not asked about a lost GPU"),
        pytest.param([("identity", 4)], "no_permission", "no_permission", id="a device without a name"),
        pytest.param([("handle", 17)], "operating_system", "operating_system", id="a device without a handle"),
        pytest.param([("memory_v2", 4711)], "other", None, id="a code from the future"),
    ],
)
def test_part_that_fails(
    node: Node, faults: list[tuple[Call, int]], memory_reason: str | None, processes_reason: str | None
) -> None:
    """A part that fails is absent and says why; the other part and the other device stay."""
    node.write(replace(TWO, faults=tuple((call, 0, code) for call, code in faults)))

    first, second = node.first_pass().devices

    assert (first.memory_fault and first.memory_fault.reason) == memory_reason
    assert (first.processes_fault and first.processes_fault.reason) == processes_reason
    assert (first.memory is None) == (memory_reason is not None)
    assert (first.processes is None) == (processes_reason is not None)
    assert second.memory is not None
    assert second.processes is not None


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"allocated_bytes": 90000 * MIB}, id="more allocated than there is"),
        pytest.param({"reserved_bytes": 90000 * MIB}, id="more reserved than there is"),
    ],
)
def test_contradicting_figures(node: Node, wrong: dict[str, int]) -> None:
    """Figures that can't hold together are no reading."""
    node.write(replace(ONE, devices=(replace(ONE.devices[0], **wrong),)))

    found = node.first_device()

    assert found.memory is None
    assert found.memory_fault is not None
    assert found.memory_fault.reason == "inconsistent"


@pytest.mark.parametrize(
    ("call", "code", "reason"),
    [
        ("init", 9, "no_driver"),
        ("init", 12, "no_library"),
        ("init", 18, "version_mismatch"),
        ("init", 999, "unknown"),
        ("count", 17, "operating_system"),
        ("memory_v2", 1, "uninitialized"),
    ],
)
def test_whole_driver_fails(node: Node, call: Call, code: int, reason: str) -> None:
    """What concerns the driver as a whole leaves no pass but a fault with a sentence."""
    node.write(replace(ONE, faults=((call, None, code),)))

    fault = node.first_fault()

    assert fault.reason == reason
    assert f"NVML error {code}" in fault.message


def test_no_driver(node: Node) -> None:
    """A node without a state has no driver."""
    assert node.first_fault().reason == "no_driver"


def test_many_processes(double: Node) -> None:
    """As many processes as the kernel shows at most (950) arrive complete."""
    processes = tuple(GpuProcess(index=0, pid=1000 + number, used_bytes=number) for number in range(950))
    double.write(replace(ONE, gpu_processes=processes))

    assert used(double) == {1000 + number: number for number in range(950)}


def test_list_that_grows_between_two_calls(double: Node) -> None:
    """A list that outgrew its buffer is fetched again."""
    double.write(ONE, "grow 0 3")

    assert used(double) == {100: 19980 * MIB}


def test_list_that_keeps_growing(double: Node) -> None:
    """A list that outgrows its buffer again and again is given up for this time."""
    double.write(ONE, "grow 0 99999")

    fault = double.first_device().processes_fault

    assert fault is not None
    assert fault.reason == "insufficient_size"


@pytest.mark.parametrize("variants", [("WITHOUT_MPS",), ("WITHOUT_MPS", "WITHOUT_GRAPHICS")])
def test_old_driver_without_lists(tmp_path: Path, variants: tuple[str, ...]) -> None:
    """Lists that an old driver does not have are left out; the others count."""
    node = Node(tmp_path / "node.state", build(tmp_path, *variants))
    node.write(ONE)

    assert used(node) == {100: 19980 * MIB}


def test_old_driver_without_v2(tmp_path: Path) -> None:
    """A driver without the v2 symbol gives a reading without reserved."""
    node = Node(tmp_path / "node.state", build(tmp_path, "WITHOUT_MEMORY_V2"))
    node.write(ONE)

    memory = node.first_device().memory

    assert memory is not None
    assert memory.reserved_bytes is None


def test_library_that_prints(tmp_path: Path) -> None:
    """What a library prints does not land between the lines of the child."""
    node = Node(tmp_path / "node.state", build(tmp_path, "TALKATIVE"))
    node.write(ONE)

    assert node.first_device().memory is not None


def test_driver_whose_process_records_are_misread(double: Node) -> None:
    """On the drivers that write longer process records, no process is shown rather than a wrong one."""
    double.write(replace(ONE, driver_version="535.54.03"))

    found = double.first_device()

    assert found.processes is None
    assert found.processes_fault is not None
    assert "535.54.03" in found.processes_fault.message
    assert found.memory is not None


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("535.43.02", True),
        ("535.98", True),
        ("535.104.05", False),
        ("535.42.01", False),
        ("525.85.12", False),
        ("580.95.05", False),
        ("535", False),
        ("", False),
    ],
)
def test_misread_drivers(version: str, expected: bool) -> None:
    """Drivers 535.43 to 535.98, and no other."""
    assert misreads_processes(version) is expected


def test_processes_keep_pace_with_a_load(node: Node) -> None:
    """While memory moves, a fresh process list comes with it, although the next list is not due for long."""
    grown = NodeState(devices=(device(0, "a", allocated_mib=30000),), gpu_processes=(process(100, 29980),))

    async def load() -> None:
        async with node.watch(processes_interval_seconds=3600.0) as watch:
            await watch.reading(lambda _: True)
            node.write(grown)
            (found,) = (await watch.reading(lambda reading: listed(reading) == {100: 29980 * MIB})).devices
            assert found.memory is not None
            assert found.memory.free_bytes == grown.devices[0].free_bytes

    node.write(ONE)
    asyncio.run(load())
