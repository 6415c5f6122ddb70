"""Every error code of NVML, and every trap of its bindings and platforms that no other file here covers."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from collectors.nvml.faults import MEANINGS
from collectors.readings import DeviceReading, NodeReading
from collectors.simulated.state import Call
from tests.collectors.nvml.node import MIB, ONE, TWO, Node, device, process
from tests.collectors.nvml.test_kinds import HOST
from tests.collectors.nvml.test_source import answers, children, fails
from tests.double.build import build

OF_ONE_DEVICE = {
    2: "invalid_argument",
    4: "no_permission",
    6: "not_found",
    14: "corrupted_inforom",
    15: "gpu_lost",
    16: "reset_required",
    17: "operating_system",
    19: "in_use",
    20: "host_memory",
    23: "resources",
    27: "not_ready",
    28: "gpu_not_found",
    29: "invalid_state",
}
OF_THE_DRIVER = {1: "uninitialized", 9: "no_driver", 12: "no_library", 18: "version_mismatch"}
MEMORY_CALLS: tuple[Call, ...] = ("memory_v2", "memory")


@pytest.mark.parametrize("code", OF_ONE_DEVICE)
def test_a_code_about_one_device(double: Node, code: int) -> None:
    """Its figures go within one pass, with the reason; the other device goes on; what passes heals by itself."""

    async def life() -> None:
        async with double.watch() as watch:
            await watch.reading(answers)
            double.write(replace(TWO, faults=tuple((call, 1, code) for call in MEMORY_CALLS)))
            reading = await watch.reading(lambda reading: fails(reading, 1, OF_ONE_DEVICE[code]))
            assert reading.devices[1].uuid == "GPU-b"
            assert reading.devices[0].memory is not None
            double.write(TWO)
            await watch.reading(answers)
            assert watch.faults.empty()

    double.write(TWO)
    asyncio.run(life())


@pytest.mark.parametrize("code", OF_THE_DRIVER)
def test_a_code_about_the_driver(double: Node, code: int) -> None:
    """Whichever device it is answered for, no pass is possible, which is said; a fresh process heals it."""

    async def life() -> None:
        async with double.watch() as watch:
            await watch.reading(answers)
            double.write(replace(TWO, faults=(("memory_v2", 1, code),)))
            fault = await watch.fault()
            assert fault.reason == OF_THE_DRIVER[code]
            double.write(TWO)
            while not watch.readings.empty():
                watch.readings.get_nowait()
            await watch.reading(answers)

    double.write(TWO)
    asyncio.run(life())


def test_every_known_code_is_in_a_table() -> None:
    """Those left out here have tests of their own: not supported, list sizes, timeouts, versions, unknown."""
    elsewhere = {3, 7, 10, 13, 25, 26, 999}

    assert {code for code in MEANINGS if code > 0} == {*OF_ONE_DEVICE, *OF_THE_DRIVER, *elsewhere}


@pytest.mark.parametrize("code", [2, 4, 7, 20, 777, 999])
def test_a_fact_that_fails_costs_itself_alone(double: Node, code: int) -> None:
    """Which NUMA node a GPU is, is not what its memory hangs on."""
    double.write(replace(ONE, numa={0: 1}, faults=(("numa", 0, code),)))

    found = double.first_device()

    assert (found.uuid, found.numa_node) == ("GPU-a", None)
    assert found.memory is not None
    assert found.processes is not None


def test_a_gpu_that_is_lost_is_lost_whatever_was_asked(double: Node) -> None:
    """That is about the GPU, not about the fact."""
    double.write(replace(ONE, faults=(("numa", 0, 15),)))

    found = double.first_device()

    assert found.memory_fault is not None
    assert found.memory_fault.reason == "gpu_lost"


def test_what_is_not_supported_is_not_asked_again(double: Node) -> None:
    """NOT_SUPPORTED is remembered for the life of a process: the same call is not made each time."""

    async def life() -> None:
        async with double.watch(processes_interval_seconds=0.02) as watch:
            await watch.reading(lambda reading: reading.devices[0].processes is None)
            double.write(ONE)
            for _ in range(10):
                reading = await watch.reading(lambda _: True)
                assert reading.devices[0].processes is None
            children()[0].kill()
            await watch.reading(lambda reading: reading.devices[0].processes is not None)

    double.write(replace(ONE, faults=(("processes", None, 3),)))
    asyncio.run(life())


def test_two_devices_with_one_uuid(node: Node) -> None:
    """The second is no device to rely on: it has that fault and no figures, so nothing is counted twice."""
    node.write(replace(TWO, devices=(device(0, "a"), device(1, "a", allocated_mib=400))))

    first, second = node.first_pass().devices

    assert (first.uuid, second.uuid) == ("GPU-a", None)
    assert first.memory is not None
    assert (second.memory, second.processes) == (None, None)
    assert second.memory_fault is not None
    assert second.memory_fault.reason == "inconsistent"
    assert "devices 0 and 1 have one UUID" in second.memory_fault.message


def test_devices_that_deny_access_are_counted(node: Node) -> None:
    """The count includes a GPU that a container did not get: it is there with its reason, the next one is read."""
    three = (*TWO.devices, device(2, "c"))
    node.write(replace(TWO, devices=three, faults=(("handle", 1, 4),)))

    first, denied, last = node.first_pass().devices

    assert (first.uuid, denied.uuid, last.uuid) == ("GPU-a", None, "GPU-c")
    assert denied.memory_fault is not None
    assert denied.memory_fault.reason == "no_permission"
    assert last.memory is not None


def test_container_that_lost_its_devices(node: Node) -> None:
    """After a daemon-reload a process that has the device open goes on and a new one can't: what to do is said."""

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(answers)
            node.write(replace(TWO, faults=(("init", None, 999),)))
            for _ in range(5):
                await watch.reading(answers)
            children()[0].kill()
            assert (await watch.fault()).reason == "child_died"
            fault = await watch.fault()
            assert fault.reason == "unknown"
            assert "recreate the container" in fault.message
            node.write(TWO)
            await watch.reading(answers)

    node.write(TWO)
    asyncio.run(life())


def test_driver_upgrade(tmp_path: Path) -> None:
    """With the kernel module upgraded the old library can't go on; once its file is replaced a fresh process can."""
    node = Node(tmp_path / "node.state", build(tmp_path, "LIBRARY_VERSION=1"))

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(lambda reading: reading.driver_version == "580.95.05")
            node.write(replace(ONE, driver_version="590.48.01"), "module 2")
            for _ in range(2):  # also a fresh process, while only half is upgraded
                fault = await watch.fault()
                assert fault.reason == "version_mismatch"
                assert "half done" in fault.message
            build(tmp_path, "LIBRARY_VERSION=2")
            reading = await watch.reading(lambda reading: reading.driver_version == "590.48.01")
            assert reading.devices[0].memory is not None

    node.write(ONE, "module 1")
    asyncio.run(life())


def test_name_that_is_no_text(double: Node) -> None:
    """A name that is not UTF-8, which the binding can't decode, is not known; nothing else is missing for it."""
    double.write(ONE, "name 0 4e56ff00fe")

    found = double.first_device()

    assert (found.uuid, found.name) == ("GPU-a", None)
    assert found.memory is not None
    assert found.processes is not None


def test_gpu_that_is_unplugged_while_it_is_read(double: Node) -> None:
    """A device that is taken out is lost to those who had it open, then counted out; the other keeps its name."""

    def only_the_other(reading: NodeReading) -> bool:
        return [found.uuid for found in reading.devices] == ["GPU-b"] and answers(reading, 1)

    async def life() -> None:
        async with double.watch() as watch:
            await watch.reading(answers)
            double.write(replace(TWO, devices=(device(0, "b", allocated_mib=400),)))
            await watch.reading(only_the_other)

    double.write(TWO)
    asyncio.run(life())


def test_agent_never_opens_the_driver_itself(node: Node) -> None:
    """The child is a program of its own, not a fork: the agent has nothing of NVML loaded that a fork would break."""

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(lambda _: True)
            (child,) = children()
            assert child.cmdline()[1:3] == ["-Im", "collectors.nvml.child"]
            assert child.ppid() == psutil.Process().pid

    node.write(ONE)
    asyncio.run(life())
    code = "import sys, agent.app; print('pynvml' in sys.modules)"
    done = subprocess.run([sys.executable, "-Ic", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_processes_that_are_hidden(node: Node) -> None:
    """Another pid namespace, or a holder that is gone: the list is empty, is passed on, and said not to be all."""

    def hidden(reading: NodeReading) -> str | None:
        fault = reading.devices[0].processes_fault
        return fault.reason if fault else None

    async def life() -> None:
        async with node.watch() as watch:
            reading = await watch.reading(lambda _: True)
            assert hidden(reading) == "hidden_processes"
            assert reading.devices[0].processes is not None
            assert reading.devices[0].processes.processes == ()
            node.write(ONE)
            await watch.reading(lambda reading: hidden(reading) is None)
            node.write(replace(ONE, devices=(device(0, "a", allocated_mib=256),), gpu_processes=()))
            await watch.reading(lambda reading: _allocated(reading.devices[0]) == 256 * MIB)
            assert hidden(await watch.reading(lambda _: True)) is None

    node.write(replace(ONE, gpu_processes=()))
    asyncio.run(life())


@pytest.mark.parametrize(
    "others", [{"numa": {0: 1}}, {"host": HOST, "faults": (("memory_v2", 0, 3), ("memory", 0, 3))}]
)
def test_memory_that_needs_no_process(node: Node, others: dict[str, Any]) -> None:
    """Where the operating system uses the memory too, an empty list is no contradiction."""
    node.write(replace(ONE, gpu_processes=(), **others))

    found = node.first_device()

    assert found.processes is not None
    assert found.processes_fault is None


def test_dead_process_that_is_still_listed(node: Node) -> None:
    """A pid that has ended stays in the driver's list for a while, and is passed on as the driver says."""
    node.write(replace(ONE, gpu_processes=(process(2**22, 19980),)))

    found = node.first_device()

    assert found.processes is not None
    assert [one.pid for one in found.processes.processes] == [2**22]


def _allocated(found: DeviceReading) -> int:
    assert found.memory is not None
    return found.memory.total_bytes - found.memory.free_bytes - (found.memory.reserved_bytes or 0)
