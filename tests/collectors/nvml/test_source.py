"""What an ``NvmlSource`` makes of a driver that hangs, dies, comes and goes."""

import asyncio
import ctypes.util
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from collectors.nvml.process import LINE_LIMIT_BYTES, Child
from collectors.nvml.step import Step
from collectors.readings import DeviceReading, Fault, NodeReading, XidEvent
from collectors.simulated.state import Call, write_state
from tests.collectors.nvml.node import ONE, TWO, WAIT_SECONDS, Node, device
from tests.double.build import build

DEADLINE_SECONDS = 0.5
DEVICE_CALLS: tuple[Call, ...] = ("handle", "identity", "memory_v2", "memory", "processes")


def children() -> list[psutil.Process]:
    """The living processes that read a driver for this one."""
    found = []
    for child in psutil.Process().children():
        if child.status() != psutil.STATUS_ZOMBIE and "collectors.nvml.child" in child.cmdline():
            found.append(child)
    return found


def answers(reading: NodeReading, count: int = 2) -> bool:
    """Whether ``count`` devices are there and all give memory and processes."""
    devices = reading.devices
    return len(devices) == count and all(device.memory and device.processes for device in devices)


def fails(reading: NodeReading, index: int, reason: str) -> bool:
    """Whether this device alone gives no memory, for this reason."""
    faults = {device.index: device.memory_fault for device in reading.devices if device.memory is None}
    fault = faults.get(index)
    return faults.keys() == {index} and fault is not None and fault.reason == reason


@pytest.mark.parametrize("call", ["memory_v2", "processes", "identity"])
def test_one_device_hangs(node: Node, call: Call) -> None:
    """A device in which a call hangs is left out under its name while the other goes on, and comes back by itself."""

    async def life() -> None:
        async with node.watch(deadline_seconds=DEADLINE_SECONDS) as watch:
            await watch.reading(answers)
            node.write(replace(TWO, hangs=((call, 1),)))
            without = await watch.reading(lambda reading: fails(reading, 1, "timeout"))
            hung = without.devices[1]
            assert (hung.uuid, hung.name) == ("GPU-b", "NVIDIA H100 80GB HBM3")
            assert hung.processes is None
            assert (hung.memory_duration_seconds, hung.processes_duration_seconds) == (None, None)
            moved = replace(TWO, devices=(device(0, "a", allocated_mib=21000), TWO.devices[1]), hangs=((call, 1),))
            node.write(moved)
            await watch.reading(lambda reading: _free(reading.devices[0]) == moved.devices[0].free_bytes)
            node.write(TWO)
            await watch.reading(answers)

    node.write(TWO)
    asyncio.run(life())
    assert not children()


def test_device_hangs_before_it_is_known(node: Node) -> None:
    """A device that hung from the start has no name yet, but is there with its fault."""

    async def life() -> None:
        async with node.watch(deadline_seconds=DEADLINE_SECONDS) as watch:
            reading = await watch.reading(lambda reading: fails(reading, 0, "timeout"))
            assert reading.devices[0].uuid is None
            assert reading.devices[1].uuid == "GPU-b"

    node.write(replace(TWO, hangs=(("handle", 0),)))
    asyncio.run(life())


def test_every_device_hangs(node: Node) -> None:
    """Passes go on, saying of each device that it does not answer."""

    async def life() -> None:
        async with node.watch(deadline_seconds=DEADLINE_SECONDS) as watch:
            reading = await watch.reading(lambda reading: not any(device.memory for device in reading.devices))
            while len(reading.devices) < 2:
                reading = await watch.reading(lambda _: True)
            node.write(TWO)
            await watch.reading(answers)

    node.write(replace(TWO, hangs=(("memory_v2", None),)))
    asyncio.run(life())


def test_driver_hangs(node: Node) -> None:
    """A call about the driver as a whole that hangs is a fault, until it answers."""

    async def life() -> None:
        async with node.watch(deadline_seconds=DEADLINE_SECONDS) as watch:
            await watch.reading(answers)
            node.write(replace(TWO, hangs=(("count", None),)))
            fault = await watch.fault()
            assert fault.reason == "timeout"
            assert "count" in fault.message
            node.write(TWO)
            while not watch.readings.empty():
                watch.readings.get_nowait()
            await watch.reading(answers)

    node.write(TWO)
    asyncio.run(life())


def test_gpu_lost_midway(node: Node) -> None:
    """A lost GPU keeps its name and loses its values; the other goes on."""

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(answers)
            node.write(replace(TWO, faults=tuple((call, 1, 15) for call in DEVICE_CALLS)))
            reading = await watch.reading(lambda reading: fails(reading, 1, "gpu_lost"))
            assert reading.devices[1].uuid == "GPU-b"
            node.write(TWO)
            await watch.reading(answers)

    node.write(TWO)
    asyncio.run(life())


def test_gpu_that_only_a_fresh_process_sees_again(double: Node) -> None:
    """A lost GPU that was reset comes back although the driver shows it to no process that saw it gone."""

    async def life() -> None:
        async with double.watch() as watch:
            await watch.reading(answers)
            double.write(TWO, "lost 1")
            await watch.reading(lambda reading: fails(reading, 1, "gpu_lost"))
            double.write(TWO)
            await watch.reading(answers)
            assert watch.faults.empty()

    double.write(TWO)
    asyncio.run(life())


def test_devices_come_and_go(node: Node) -> None:
    """A device that is plugged in appears, one that is taken out vanishes."""

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(lambda reading: answers(reading, 1))
            node.write(TWO)
            await watch.reading(answers)
            node.write(ONE)
            await watch.reading(lambda reading: answers(reading, 1))

    node.write(ONE)
    asyncio.run(life())


def test_identity_is_the_uuid_when_the_order_changes(node: Node) -> None:
    """When indexes are dealt anew, each UUID keeps its own figures, before and after a fresh start."""
    swapped = replace(TWO, devices=(device(0, "b", allocated_mib=400), device(1, "a")))
    expected = {"GPU-a": device(0, "a").free_bytes, "GPU-b": device(0, "b", allocated_mib=400).free_bytes}

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(answers)
            node.write(swapped)
            for _ in range(10):
                reading = await watch.reading(answers)
                assert {device.uuid: _free(device) for device in reading.devices} == expected
            children()[0].kill()
            reading = await watch.reading(lambda reading: reading.devices[0].uuid == "GPU-b")
            assert {device.uuid: _free(device) for device in reading.devices} == expected

    node.write(TWO)
    asyncio.run(life())


def test_library_that_appears(library: Path, tmp_path: Path) -> None:
    """Without a driver on the host there is a fault that says what to do; the driver is taken up once it is there."""
    if ctypes.util.find_library("nvidia-ml"):
        pytest.skip("this host has an NVIDIA driver")
    node = Node(tmp_path / "node.state", tmp_path / library.name)

    async def life() -> None:
        async with node.watch() as watch:
            fault = await watch.fault()
            assert fault.reason == "no_library"
            assert "install the NVIDIA driver" in fault.message
            build(tmp_path)
            await watch.reading(answers)

    node.write(TWO)
    asyncio.run(life())


def test_child_is_killed(node: Node) -> None:
    """A child that dies is a fault that names its signal, and readings come back."""

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(answers)
            children()[0].kill()
            fault = await watch.fault()
            assert fault.reason == "child_died"
            assert "signal 9" in fault.message
            while not watch.readings.empty():
                watch.readings.get_nowait()
            await watch.reading(answers)

    node.write(TWO)
    asyncio.run(life())


def test_child_that_is_stopped(node: Node) -> None:
    """A child that falls silent for whatever reason is replaced."""

    async def life() -> None:
        async with node.watch(deadline_seconds=DEADLINE_SECONDS) as watch:
            await watch.reading(answers)
            (child,) = children()
            child.suspend()
            await watch.reading(lambda reading: answers(reading) and not child.is_running())

    node.write(TWO)
    asyncio.run(life())


def test_no_child_is_left(node: Node) -> None:
    """A cancelled source leaves no process behind, also when a call hangs."""

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(answers)
            node.write(replace(TWO, hangs=(("memory_v2", None),)))
            while not watch.readings.empty():
                watch.readings.get_nowait()
            assert children()

    node.write(TWO)
    asyncio.run(life())
    assert not children()


def test_a_signal_to_the_group_is_for_the_parent(node: Node) -> None:
    """Ctrl-C in a terminal and a service manager's stop reach all processes; the child leaves them to its parent."""

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(answers)
            (child,) = children()
            child.send_signal(signal.SIGINT)
            child.send_signal(signal.SIGTERM)
            for _ in range(5):
                await watch.reading(answers)
            assert children() == [child]
            assert watch.faults.empty()

    node.write(TWO)
    asyncio.run(life())


def test_child_ends_with_its_parent(tmp_path: Path) -> None:
    """When the agent is killed, its child ends too, even one that can't notice by itself."""
    write_state(tmp_path / "node.state", TWO)
    program = (
        "import asyncio, pathlib, sys\n"
        "from collectors.nvml.source import NvmlSource\n"
        "source = NvmlSource(on_reading=lambda reading: print(reading.at, flush=True), on_fault=print,\n"
        "                    simulated_state=pathlib.Path(sys.argv[1]))\n"
        "asyncio.run(source.run())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "node.state")]

    with subprocess.Popen(command, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        (child,) = psutil.Process(agent.pid).children()
        child.suspend()
        agent.kill()

    deadline = time.monotonic() + WAIT_SECONDS
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        pytest.param(b"hello\n", "protocol", "malformed", id="no JSON"),
        pytest.param(b'{"reading":{"at":1}}\n', "protocol", "driver_version", id="a part of a pass"),
        pytest.param(b"{}\n", "protocol", "neither", id="nothing"),
        pytest.param(b"x" * (LINE_LIMIT_BYTES + 2) + b"\n", "protocol", str(LINE_LIMIT_BYTES), id="an endless line"),
        pytest.param(b'{"reading"', "child_died", "exit code 0", id="half a line"),
        pytest.param(b"", "child_died", "exit code 0", id="the end"),
    ],
)
def test_lines_that_are_not_understood(text: bytes, reason: str, words: str) -> None:
    """Whatever a child writes ends in a fault with a sentence."""

    async def read(process: subprocess.Popen[bytes]) -> NodeReading | XidEvent | Fault:
        reader = asyncio.StreamReader(limit=LINE_LIMIT_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, process.stdout)
        reader.feed_data(text)
        reader.feed_eof()
        child = Child(process, reader, transport, Step.make(), deadline_seconds=WAIT_SECONDS)
        try:
            return await child.next()
        finally:
            await child.stop()

    with subprocess.Popen(["true"], stdout=subprocess.PIPE) as ended:
        ended.wait()
        fault = asyncio.run(read(ended))

    assert isinstance(fault, Fault)
    assert fault.reason == reason
    assert words in fault.message


@pytest.mark.parametrize("text", ["memory one", "rest", "memory 0 1"])
def test_a_step_that_is_none(text: str) -> None:
    """A silent child whose step makes no sense is faulty, or hangs in a call of no device; the agent goes on."""

    async def read(process: subprocess.Popen[bytes]) -> NodeReading | XidEvent | Fault | None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, process.stdout)
        step = Step.make()
        step.enter(text, time.monotonic())
        child = Child(process, reader, transport, step, deadline_seconds=0.1)
        try:
            return await child.next()
        except TimeoutError:
            assert child.index is None
            return None
        finally:
            await child.stop()

    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE) as silent:
        fault = asyncio.run(read(silent))

    assert fault is None or (isinstance(fault, Fault) and fault.reason == "protocol")


def _free(device: DeviceReading) -> int | None:
    return device.memory.free_bytes if device.memory else None
