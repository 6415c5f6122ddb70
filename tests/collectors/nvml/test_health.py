"""What a GPU says about its memory cells, and the errors that the driver reports."""

import asyncio
import threading
from collections.abc import Callable
from queue import Queue
from typing import Any

import pytest
from msgspec.structs import replace

from collectors.nvml import faults
from collectors.nvml.driver import NvmlFault
from collectors.nvml.events import XidEvents
from collectors.nvml.xids import GRAVE, XIDS
from collectors.readings import NodeReading, XidEvent
from tests.collectors.nvml.node import ONE, TWO, Node, device, instance
from tests.collectors.nvml.test_child import FakeDriver, Reader


@pytest.mark.parametrize(
    ("pending", "failure"), [(False, False), (True, False), (True, True)], ids=["none", "pending", "failed"]
)
def test_ecc_and_row_remapping(node: Node, pending: bool, failure: bool) -> None:
    """Uncorrectable errors and the state of row remapping are those of the GPU."""
    node.write(replace(ONE, ecc={0: 3}, remap={0: (pending, failure)}))

    health = node.first_device().health

    assert health is not None
    assert health.ecc_uncorrected == 3
    assert (health.row_remap_pending, health.row_remap_failure) == (pending, failure)


def test_values_have_their_own_return_codes(node: Node) -> None:
    """One call answers for all facts; a GPU with ECC and without remapping has the one and not the others."""
    node.write(replace(ONE, ecc={0: 0}))

    health = node.first_device().health

    assert health is not None
    assert (health.ecc_uncorrected, health.row_remap_pending, health.row_remap_failure) == (0, None, None)


@pytest.mark.parametrize("code", [3, 4, 13, 999])
def test_health_that_is_not_to_be_had(node: Node, code: int) -> None:
    """A GPU that does not answer for its health is no worse for it."""
    node.write(replace(ONE, faults=(("health", None, code),)))

    found = node.first_device()

    assert found.health is None
    assert found.memory is not None


def test_health_is_of_the_whole_gpu(node: Node) -> None:
    """The instances of a GPU in MIG mode carry its facts."""
    node.write(replace(ONE, instances=(instance(1, "x"), instance(2, "y")), ecc={0: 7}))

    reading = node.first_pass()

    assert [found.health and found.health.ecc_uncorrected for found in reading.devices] == [7, 7]


def test_health_is_read_seldom() -> None:
    """Every 30 s, and anew when a device begins or ceases to fail."""
    reader = Reader(1000)

    read_at = []
    for second in range(70):
        reader.driver.codes = {"memory": faults.GPU_IS_LOST} if 10 <= second < 12 else {}
        reader.read()
        read_at += [second] if "health 0" in reader.steps else []

    assert read_at == [0, 10, 12, 42]


def test_health_that_can_not_be_read_any_more_is_dropped() -> None:
    """No old figure stays when a GPU is lost."""
    reader = Reader(1000)
    assert reader.read()[0]["health"]["ecc_uncorrected"] == 0

    reader.driver.codes = {"memory": faults.GPU_IS_LOST, "health": faults.GPU_IS_LOST}

    assert "health" not in reader.read()[0]


def test_an_xid_arrives_once(node: Node) -> None:
    """What happened before the agent came is not told; what happens then comes with the next pass, once, by UUID."""
    seen: list[XidEvent] = []

    async def life() -> None:
        async with node.watch() as watch:
            reading = await watch.reading(lambda _: True)
            assert all(found.events for found in reading.devices)
            node.write(replace(TWO, xids=((0, 31), (1, 48))))
            while len(seen) < 1:
                seen.extend((await watch.reading(lambda reading: bool(reading.xids))).xids)
            node.write(replace(TWO, xids=((0, 31), (1, 48), (0, 94), (1, 48))))
            while len(seen) < 3:
                seen.extend((await watch.reading(lambda reading: bool(reading.xids))).xids)
            for _ in range(10):
                seen.extend((await watch.reading(lambda _: True)).xids)

    node.write(replace(TWO, xids=((0, 31),)))
    asyncio.run(life())

    assert seen[0] == XidEvent(uuid="GPU-b", xid=48)
    assert sorted((event.uuid, event.xid) for event in seen[1:]) == [("GPU-a", 94), ("GPU-b", 48)]


def test_xids_of_other_matters_are_left_out(node: Node) -> None:
    """An NVLink error says nothing about memory."""
    seen: list[int] = []

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(lambda _: True)
            node.write(replace(ONE, xids=((0, 74), (0, 79))))
            while 79 not in seen:
                seen.extend(event.xid for event in (await watch.reading(lambda _: True)).xids)

    node.write(ONE)
    asyncio.run(life())

    assert seen == [79]


def test_an_xid_gets_out_while_a_call_hangs(node: Node) -> None:
    """The error that explains a hang is told although the process that heard it is given up."""

    async def life() -> None:
        async with node.watch(deadline_seconds=1.0) as watch:
            await watch.reading(lambda reading: len(reading.devices) == 2)
            node.write(replace(TWO, hangs=(("memory_v2", 1),), xids=((1, 119),)))
            reading = await watch.reading(lambda reading: bool(reading.xids))
            assert reading.xids == (XidEvent(uuid="GPU-b", xid=119),)
            assert reading.devices[1].memory_fault is not None
            assert reading.devices[1].memory_fault.reason == "timeout"

    node.write(TWO)
    asyncio.run(life())


def test_a_storm_of_xids_does_not_hide_a_hang(node: Node) -> None:
    """Errors that keep coming are no sign that the call will return."""

    async def life() -> None:
        async with node.watch(deadline_seconds=0.5) as watch:
            await watch.reading(lambda _: True)
            storm = tuple((0, 48) for _ in range(2000))
            node.write(replace(TWO, hangs=(("memory_v2", 1),), xids=storm))
            await watch.reading(lambda reading: _reason(reading, 1) == "timeout")

    node.write(TWO)
    asyncio.run(life())


@pytest.mark.parametrize("code", [3, 4, 13])
def test_gpu_without_events(node: Node, code: int) -> None:
    """Where events can't be had (a container, an old driver), that is known, and everything else goes on."""
    node.write(replace(ONE, faults=(("events", None, code),)))

    found = node.first_device()

    assert not found.events
    assert found.memory is not None


def test_events_of_a_gpu_that_appears(node: Node) -> None:
    """A GPU that is plugged in is waited on too."""

    async def life() -> None:
        async with node.watch() as watch:
            await watch.reading(lambda _: True)
            node.write(TWO)
            await watch.reading(lambda reading: len(reading.devices) == 2 and reading.devices[1].events)
            node.write(replace(TWO, xids=((1, 63),)))
            reading = await watch.reading(lambda reading: bool(reading.xids))
            assert reading.xids == (XidEvent(uuid="GPU-b", xid=63),)

    node.write(replace(TWO, devices=(device(0, "a"),)))
    asyncio.run(life())


class Waits(FakeDriver):
    """A driver whose waits answer what the test puts into a queue: an Xid, None for a timeout, or a fault."""

    def __init__(self) -> None:
        super().__init__(1000)
        self.answers: Queue[int | NvmlFault | None] = Queue()

    def events(self, index: int) -> Callable[[float], int | None]:
        self._fail("events")

        def wait(_: float) -> int | None:
            answer = self.answers.get()
            if isinstance(answer, NvmlFault):
                raise answer
            return answer

        return wait


def test_waits_go_on_after_timeouts_and_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeout is the normal end of a wait, and a fault (a lost GPU answers so at once) is waited out."""
    monkeypatch.setattr("collectors.nvml.events.PAUSE_SECONDS", 0.0)
    driver, heard = Waits(), Queue[tuple[str, int]]()
    events = XidEvents(driver, lambda uuid, xid: heard.put((uuid, xid)))

    assert events.watch(0, "GPU-0")
    assert events.watch(0, "GPU-0")
    for answer in (None, NvmlFault(faults.GPU_IS_LOST, ""), 13, 48, NvmlFault(999, ""), 95):
        driver.answers.put(answer)

    assert [heard.get(timeout=20), heard.get(timeout=20)] == [("GPU-0", 48), ("GPU-0", 95)]
    assert sum(thread.name == "events 0" for thread in threading.enumerate()) == 1
    driver.answers.put(NvmlFault(faults.UNINITIALIZED, "the end"))


@pytest.mark.parametrize(("code", "raised"), [(faults.UNINITIALIZED, True), (faults.NOT_SUPPORTED, False)])
def test_registration_that_fails(code: int, raised: bool) -> None:
    """No events is an answer; no driver is none."""
    driver = Waits()
    driver.codes["events"] = code
    events = XidEvents(driver, lambda *_: None)

    if raised:
        with pytest.raises(NvmlFault):
            events.watch(0, "GPU-0")
    else:
        assert not events.watch(0, "GPU-0")


def test_catalogue() -> None:
    """Those that are counted from 0 are in the catalogue; errors of programs and links are not among them."""
    assert set(GRAVE) <= XIDS.keys()
    assert not {13, 68, 74, 109} & XIDS.keys()


def _reason(reading: NodeReading, index: int) -> Any:
    found = reading.devices[index] if index < len(reading.devices) else None
    return found and found.memory_fault and found.memory_fault.reason
