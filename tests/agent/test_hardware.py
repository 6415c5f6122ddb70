"""GPUs as pieces of hardware: lost, gone and back, errors, and memory that others use too."""

from typing import Any

import pytest

from agent.snapshot import Device, Snapshot
from collectors.nvml.xids import GRAVE
from collectors.readings import DeviceHealth, DeviceReading, Fault, HostMemory, MemoryReading, NodeReading, XidEvent
from tests.agent.test_board import GIB, Bench, closed, facts, gpu

LOST = Fault(reason="gpu_lost", message="the GPU has fallen off the bus")
HUNG = Fault(reason="timeout", message="the driver did not answer in time")


@pytest.fixture
def bench() -> Bench:
    return Bench(facts())


def lost(index: int, fault: Fault = LOST) -> DeviceReading:
    return DeviceReading(index=index, uuid=f"GPU-{index}", name="H100", memory_fault=fault, processes_fault=fault)


def snapshot(bench: Bench, *devices: DeviceReading, seconds: float = 1.0, **fields: Any) -> Snapshot:
    """The next pass and the tick after it."""
    bench.clock.now += seconds
    node = NodeReading(at=bench.clock.now, driver_version="580", devices=devices, **fields)
    bench.board.took_node(node)
    return bench.board.tick().snapshot


def is_lost(devices: tuple[Device, ...]) -> dict[str, bool]:
    return {device.gpu: bool(device.health and device.health.lost) for device in devices}


def test_a_gpu_that_fell_off_the_bus_is_lost_until_it_answers(bench: Bench) -> None:
    """Its figures go, its name stays; another fault than a loss says nothing about that."""
    there = gpu(bench.clock, used={})

    assert is_lost(snapshot(bench, there, gpu(bench.clock, index=1, used={})).devices) == {"0": False, "1": False}
    gone = snapshot(bench, there, lost(1))
    assert is_lost(gone.devices) == {"0": False, "1": True}
    assert gone.devices[1].components == ()
    assert is_lost(snapshot(bench, there, lost(1, HUNG)).devices) == {"0": False, "1": True}
    assert is_lost(snapshot(bench, there, gpu(bench.clock, index=1, used={})).devices) == {"0": False, "1": False}
    assert is_lost(snapshot(bench, there, lost(1, HUNG)).devices) == {"0": False, "1": False}


def test_a_gpu_that_was_taken_out_is_remembered_for_ten_minutes(bench: Bench) -> None:
    """It stands there by its old index, as a source that fails, and then it and its source are forgotten."""
    there = gpu(bench.clock, used={})
    snapshot(bench, there, gpu(bench.clock, index=1, used={}))

    gone = snapshot(bench, there)
    assert is_lost(gone.devices) == {"0": False, "1": True}
    assert (gone.devices[1].uuid, gone.devices[1].name, gone.devices[1].total_bytes) == ("GPU-1", "H100", None)
    failing = {(source.name, source.target) for source in gone.collectors if not source.success}
    assert failing == {("nvml", "GPU-1"), ("processes", "GPU-1")}

    snapshot(bench, there, seconds=598)
    assert is_lost(snapshot(bench, there).devices) == {"0": False, "1": True}
    forgotten = snapshot(bench, there, seconds=2)
    assert is_lost(forgotten.devices) == {"0": False}
    assert "GPU-1" not in {source.target for source in forgotten.collectors}


def test_a_gpu_whose_index_another_has_now_is_called_by_its_uuid(bench: Bench) -> None:
    """After a fresh start the indexes close up: no two devices bear one label."""
    first, second, third = (gpu(bench.clock, index=index, used={}) for index in range(3))
    snapshot(bench, first, second, third)

    moved = gpu(bench.clock, index=1, uuid="GPU-2", used={})
    found = snapshot(bench, first, moved)

    assert is_lost(found.devices) == {"0": False, "1": False, "GPU-1": True}
    assert 'device_lost{gpu="GPU-1"} 1' in bench.board.metrics.decode()


def test_instances_of_a_gpu_come_and_go(bench: Bench) -> None:
    """Somebody who partitions a GPU anew takes nothing out: the GPU is there, and what is gone is forgotten at once."""

    def instance(number: int) -> DeviceReading:
        return gpu(bench.clock, uuid=f"MIG-{number}", instance=number, parent_uuid="GPU-0", memory_kind="mig", used={})

    snapshot(bench, gpu(bench.clock, used={}))
    split = snapshot(bench, instance(1), instance(2))
    assert is_lost(split.devices) == {"0:1": False, "0:2": False}
    assert {source.target for source in split.collectors if source.name == "nvml"} == {"", "MIG-1", "MIG-2"}
    again = snapshot(bench, instance(3))
    assert is_lost(again.devices) == {"0:3": False}
    assert {device.health.gpu for device in again.devices if device.health} == {"0"}
    nobody = snapshot(bench)
    assert [(device.gpu, device.uuid, device.name) for device in nobody.devices] == [("0", "GPU-0", None)]
    assert is_lost(nobody.devices) == {"0": True}


def test_without_a_driver_no_gpu_is_called_lost(bench: Bench) -> None:
    """Then nothing is known: no device, and no source that seems to work."""
    snapshot(bench, gpu(bench.clock, used={}))

    bench.board.lost_node(Fault(reason="child_died", message="the process that reads NVML ended"))
    found = bench.board.tick().snapshot

    assert found.devices == ()
    assert [(source.name, source.target, source.success) for source in found.collectors] == [("nvml", "", False)]
    assert is_lost(snapshot(bench, gpu(bench.clock, used={})).devices) == {"0": False}


def test_facts_about_memory_cells(bench: Bench) -> None:
    """What the GPU says is passed on; what it does not have is not known."""
    health = DeviceHealth(at=bench.clock.now, ecc_uncorrected=2, row_remap_pending=True, row_remap_failure=False)
    known, unknown = snapshot(
        bench, gpu(bench.clock, used={}, health=health), gpu(bench.clock, index=1, used={})
    ).devices

    assert known.health is not None
    assert (known.health.ecc_uncorrected, known.health.row_remap_pending, known.health.row_remap_failure) == (
        2,
        True,
        False,
    )
    assert unknown.health is not None
    assert (unknown.health.ecc_uncorrected, unknown.health.row_remap_pending) == (None, None)
    assert 'vramscope_device_row_remap_pending{gpu="1"}' not in bench.board.metrics.decode()


def test_errors_add_up(bench: Bench) -> None:
    """The grave ones are there at 0 where events can be heard; each one is counted for its GPU."""
    heard, deaf = gpu(bench.clock, used={}, events=True), gpu(bench.clock, index=1, used={})
    first, other = snapshot(bench, heard, deaf).devices
    assert first.health is not None
    assert other.health is not None
    assert first.health.xids == dict.fromkeys(GRAVE, 0)
    assert other.health.xids == {}

    events = (XidEvent(uuid="GPU-0", xid=48), XidEvent(uuid="GPU-0", xid=31))
    snapshot(bench, heard, deaf, xids=events)
    first, _ = snapshot(bench, heard, deaf, xids=events[:1]).devices

    assert first.health is not None
    assert first.health.xids == {**dict.fromkeys(GRAVE, 0), 48: 2, 31: 1}


def test_peaks_between_two_passes_are_extremes(bench: Bench) -> None:
    """What the child saw in between counts, and is over when its minute is."""
    peak = MemoryReading(at=1001.0, total_bytes=80 * GIB, free_bytes=20 * GIB, used_max_bytes=75 * GIB)
    found = snapshot(bench, gpu(bench.clock, used={}, memory=peak)).devices[0]
    assert found.used_max_bytes == {"60s": 75 * GIB, "start": 75 * GIB}
    assert found.free_min_bytes == {"60s": 5 * GIB, "start": 5 * GIB}

    found = snapshot(bench, gpu(bench.clock, used={}), seconds=30).devices[0]
    later = gpu(bench.clock, used={}, memory=MemoryReading(at=1091.0, total_bytes=80 * GIB, free_bytes=20 * GIB))
    found = snapshot(bench, later, seconds=60).devices[0]

    assert found.used_max_bytes == {"60s": 60 * GIB, "start": 75 * GIB}


def test_a_gpu_that_shares_the_hosts_memory(bench: Bench) -> None:
    """What no GPU process holds is the host's, the budget has all of it, and the host's own figures are exported."""
    shared = MemoryReading(at=bench.clock.now, total_bytes=120 * GIB, free_bytes=30 * GIB)
    host = HostMemory(total_bytes=120 * GIB, available_bytes=30 * GIB, pressure_seconds={"some": 2.0})
    bench.server()
    bench.tree(7)
    bench.model()
    found = snapshot(
        bench, gpu(bench.clock, used={7: 60 * GIB}, memory=shared, memory_kind="unified"), host_memory=host
    )

    parts = closed(found.devices[0])
    assert parts["host"] == 30 * GIB
    assert parts["weights"] + parts["kv_used"] + parts["kv_available"] + parts["runtime"] == 60 * GIB
    assert not {"hidden", "reserved"} & parts.keys()
    assert found.devices[0].budget
    assert any("shares the host's memory" in note for note in found.devices[0].notes)
    text = bench.board.metrics.decode()
    assert f"vramscope_host_memory_available_bytes {30 * GIB}" in text
    assert 'memory_kind="unified"' in text


@pytest.mark.parametrize(("used_gib", "known"), [(59, False), (59.5, True)])
def test_no_alarm_on_memory_that_the_operating_system_borrowed(bench: Bench, used_gib: float, known: bool) -> None:
    """On a GH200 pages of the OS in GPU memory are hidden; while there are many, the headroom is not known."""
    reading = gpu(bench.clock, used={9: int(used_gib * GIB)}, numa_node=1, addressing="ATS")

    device = snapshot(bench, reading).devices[0]

    assert closed(device)["hidden"] == int((59.5 - used_gib) * GIB)
    assert (device.headroom_ratio is not None) == known
    assert any("NUMA node 1 (ATS)" in note for note in device.notes)
