"""The allocator's statistics as versions of torch have them, and what of them stands in the file."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import vramscope_probe

from tests.probe.conftest import Begin
from tests.probe.said import REPORTING, SILENT, WAITING, Said, awaited, said

MIB = 2**20
ALLOWED = {
    *("device_count", "get_allocator_backend", "get_device_properties", "memory_stats_as_nested_dict"),
    "memory_snapshot",
}
FULL = {
    "allocated": 900 * MIB,
    "allocated_peak": 964 * MIB,
    "active": 910 * MIB,
    "active_peak": 974 * MIB,
    "reserved": 1024 * MIB,
    "reserved_peak": 1088 * MIB,
    "requested": 890 * MIB,
    "inactive_split": 20 * MIB,
    "private_pools": 96 * MIB,
    "alloc_retries": 3,
    "ooms": 1,
    "device_allocs": 41,
}


def of_an_engine(cuda: Any, **other: Any) -> dict[str, Any]:
    sizes = {"allocated": 900 * MIB, "active": 910 * MIB, "reserved": 1024 * MIB, "requested": 890 * MIB}
    pools = {(0, 1): 64 * MIB, (3, 0): 32 * MIB}
    found: dict[str, Any] = cuda.statistics(**{**sizes, "split": 20 * MIB, "peak": 64 * MIB, "pools": pools, **other})
    return found


def reported(path: Path) -> Said:
    return awaited(path, lambda one: one.state == REPORTING)


def test_the_full_set(cuda: Any, begin: Begin) -> None:
    """Of the newest torch: every figure, as the allocator has it, the private pools summed; the device by its UUID."""
    cuda.init(of_an_engine(cuda))

    found = reported(begin())

    assert (found.backend, found.torch, found.reason, found.pid) == (0, "2.13.0+cu130", "", os.getpid())
    assert [(one.number, one.uuid) for one in found.devices] == [(0, cuda.UUID.replace("-", ""))]
    assert found.devices[0].known == FULL


@pytest.mark.parametrize(
    ("version", "missing"),
    [((2, 12), {"private_pools"}), ((2, 1), {"private_pools", "device_allocs"})],
)
def test_older_versions_leave_keys_out(cuda: Any, begin: Begin, version: tuple[int, int], missing: set[str]) -> None:
    """What a version does not count is absent, all else is there."""
    cuda.properties = SimpleNamespace(name="no uuid before 2.5")
    cuda.init(of_an_engine(cuda, version=version))

    found = reported(begin())

    assert found.devices[0].known == {name: value for name, value in FULL.items() if name not in missing}
    assert found.devices[0].uuid == ""


@pytest.mark.parametrize(
    ("key", "value", "missing"),
    [
        ("num_alloc_retries", None, {"alloc_retries"}),
        ("num_ooms", "1", {"ooms"}),
        ("num_ooms", 1.0, {"ooms"}),
        ("num_device_alloc", -1, {"device_allocs"}),
        ("num_device_alloc", 2**63, {"device_allocs"}),
        ("requested_bytes", {"everything": {"current": 5}}, {"requested"}),
        ("requested_bytes", [890], {"requested"}),
        ("active_bytes", {"all": {"current": 910 * MIB}}, {"active_peak"}),
        ("reserved_bytes_by_private_pools", {(0, 1): {"all": {"now": 5}}}, {"private_pools"}),
        ("reserved_bytes_by_private_pools", None, {"private_pools"}),
    ],
)
def test_an_odd_figure_is_absent_alone(cuda: Any, begin: Begin, key: str, value: object, missing: set[str]) -> None:
    """None, another type, another shape, a name of its own, what no counter can be: all other figures are told."""
    cuda.init({**of_an_engine(cuda), key: value})

    found = reported(begin())

    assert found.devices[0].known == {name: value for name, value in FULL.items() if name not in missing}


def test_a_renamed_key_is_absent(cuda: Any, begin: Begin) -> None:
    """Not looked for under other names."""
    statistics = of_an_engine(cuda)
    statistics["retries"] = statistics.pop("num_alloc_retries")
    cuda.init(statistics)

    assert reported(begin()).devices[0].known.keys() == FULL.keys() - {"alloc_retries"}


def test_no_private_pools_are_zero_bytes(cuda: Any, begin: Begin) -> None:
    """Counted and none there is not the same as not counted."""
    cuda.init(of_an_engine(cuda, pools={}))

    assert reported(begin()).devices[0].known["private_pools"] == 0


def test_what_the_asynchronous_allocator_does_not_count_is_absent(cuda: Any, begin: Begin) -> None:
    """Its zeros for split blocks, requests, pools and retries are no figures."""
    cuda.backend = "cudaMallocAsync"
    cuda.init({**cuda.statistics(allocated=5 * MIB, active=5 * MIB, reserved=8 * MIB), "num_alloc_retries": 0})

    found = reported(begin())

    assert found.backend == 1
    current = {"allocated": 5 * MIB, "active": 5 * MIB, "reserved": 8 * MIB}
    assert found.devices[0].known == current | {f"{name}_peak": value for name, value in current.items()}


@pytest.mark.parametrize(("name", "number"), [("pluggable", 2), ("native", 0)])
def test_the_allocator_is_named(cuda: Any, begin: Begin, name: str, number: int) -> None:
    """Another than torch's two is said to be another."""
    cuda.backend = name
    cuda.init(of_an_engine(cuda))

    assert reported(begin()).backend == number


@pytest.mark.parametrize("statistics", [{}, None, "odd"])
def test_a_device_never_used_has_no_record(cuda: Any, begin: Begin, statistics: object) -> None:
    """A worker sees all devices of the host, and uses one."""
    cuda.init(statistics, cuda.statistics(counts=(0, 0, 0)), of_an_engine(cuda), {})

    assert [one.number for one in reported(begin()).devices] == [2]


def test_devices_beyond_the_sixteenth_are_left_out(cuda: Any, begin: Begin) -> None:
    """The file stays below 4 KiB whatever a host has."""
    cuda.init(*[of_an_engine(cuda)] * 40)
    path = begin()

    assert [one.number for one in reported(path).devices] == list(range(16))
    assert path.stat().st_size < 4096


@pytest.mark.parametrize("properties", [None, SimpleNamespace(uuid="zz"), SimpleNamespace(uuid="g" * 36)])
def test_an_odd_uuid_is_absent(cuda: Any, begin: Begin, properties: object) -> None:
    """The figures are told without it."""
    cuda.properties = properties
    cuda.init(of_an_engine(cuda))

    (device,) = reported(begin()).devices

    assert (device.uuid, device.known) == ("", FULL)


def test_cuda_is_asked_nothing_before_the_engine_has_initialised_it(cuda: Any, begin: Begin) -> None:
    """It waits, also through a torch that is not imported to its end, and reports once CUDA is there."""
    path = begin()
    assert awaited(path).state == WAITING
    cuda.is_initialized, known = None, cuda.is_initialized  # half imported
    awaited(path, lambda _: True)
    cuda.is_initialized = known
    assert cuda.asked == []

    cuda.init(of_an_engine(cuda))

    assert reported(path).devices[0].known == FULL
    assert set(cuda.asked) <= ALLOWED


def test_without_torch_it_waits(begin: Begin) -> None:
    """And imports none."""
    found = awaited(begin())

    assert (found.state, found.torch, found.devices) == (WAITING, "", ())
    assert "torch" not in sys.modules


def test_an_allocator_that_raises_is_said_and_left_alone(cuda: Any, begin: Begin) -> None:
    """The reason is in the file, on one line and cut to its room, and nothing more is asked."""
    cuda.fault = RuntimeError("CUDA error: device-side assert\n triggered " + "ä" * 200)
    cuda.init(of_an_engine(cuda))
    path = begin()

    found = awaited(path, lambda one: one.state == SILENT)

    assert found.reason.startswith("RuntimeError: CUDA error: device-side assert triggered ää")
    assert found.devices == ()
    asked = cuda.asked.count("memory_stats_as_nested_dict")
    cuda.fault = None
    awaited(path, lambda one: one.state == SILENT)
    assert cuda.asked.count("memory_stats_as_nested_dict") == asked == 1


def test_a_torch_without_these_statistics_is_said(cuda: Any, begin: Begin, monkeypatch: Any) -> None:
    """A future one that has renamed the call itself."""
    monkeypatch.delattr(cuda, "memory_stats_as_nested_dict")
    cuda.__getattr__ = lambda name: (_ for _ in ()).throw(AttributeError(name))
    cuda.init({})

    found = awaited(begin(), lambda one: one.state == SILENT)

    assert found.reason == "AttributeError: memory_stats_as_nested_dict"


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64, expandable_segments : True", 1),
        ("PYTORCH_ALLOC_CONF", "expandable_segments:1", 1),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False", 0),
        ("PYTORCH_CUDA_ALLOC_CONF", "", 0),
    ],
)
def test_expandable_segments(begin: Begin, monkeypatch: Any, variable: str, value: str, expected: int) -> None:
    """On or off by torch's own settings."""
    monkeypatch.setenv(variable, value)

    assert awaited(begin()).expandable == expected


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [
        *(("nan", 1000), ("inf", 60_000), ("-1", 1000), ("0", 1000), ("abc", 1000), ("", 1000), ("1e999", 60_000)),
        *(("0.01", 100), ("2.5", 2500), ("3600", 60_000)),
    ],
)
def test_interval(folder: Path, monkeypatch: Any, given: str, expected_ms: int) -> None:
    """From 0.1 s to a minute; nonsense is a second."""
    monkeypatch.setenv("VRAMSCOPE_PROBE_INTERVAL", given)
    probe = vramscope_probe.Probe(str(folder))
    probe.begin()

    assert awaited(folder / probe.name).interval_ms == expected_ms
    probe.end()


def _segment(device: int, pool: tuple[int, int], *blocks: tuple[int, str]) -> dict[str, Any]:
    found = [{"size": size * MIB, "state": state} for size, state in blocks]
    total = sum(size * MIB for size, _ in blocks)
    return {"device": device, "segment_pool_id": pool, "total_size": total, "blocks": found}


SEGMENTS = (
    _segment(0, (0, 0), (10, "active_allocated"), (6, "inactive"), (4, "active_awaiting_free")),
    _segment(0, (0, 0), (3, "inactive"), (1, "active_allocated"), (8, "inactive")),
    _segment(0, (0, 1), (30, "inactive"), (2, "active_allocated")),
    _segment(1, (0, 0), (2, "active_allocated")),
)


@pytest.mark.parametrize("has_traces", [True, False])
def test_segments_are_looked_through_once_when_asked(cuda: Any, begin: Begin, folder: Path, has_traces: bool) -> None:
    """After a touch: the largest free block of the ordinary pool and all that is free there, once."""
    cuda.has_traces = has_traces
    cuda.segments = list(SEGMENTS)
    cuda.init(of_an_engine(cuda), of_an_engine(cuda))
    path = begin()
    assert "largest_free_block" not in reported(path).devices[0].known

    (folder / "segments").touch()
    found = awaited(path, lambda one: "largest_free_block" in one.devices[0].known)

    assert found.devices[0].known == FULL | {"largest_free_block": 8 * MIB, "free_in_segments": 17 * MIB}
    assert found.devices[1].known == FULL | {"largest_free_block": 0, "free_in_segments": 0}
    awaited(path, lambda one: one.sequence >= found.sequence + 2)
    assert cuda.asked.count("memory_snapshot") == 1


def test_a_touch_before_the_process_began_asks_it_nothing(cuda: Any, begin: Begin, folder: Path) -> None:
    """A server that is started anew is not made to look for what was asked of its run before."""
    folder.mkdir(mode=0o750)
    (folder / "segments").touch()
    cuda.init(of_an_engine(cuda))

    awaited(begin(), lambda one: one.sequence >= 2)

    assert "memory_snapshot" not in cuda.asked


def test_private_pools_of_older_versions_are_looked_for_when_something_was_loaded(cuda: Any, begin: Begin) -> None:
    """When what is reserved has stood still. While an engine compiles it does too: its graphs come later."""
    cuda.segments = [one for one in SEGMENTS if one["segment_pool_id"] == (0, 0)]
    cuda.init(of_an_engine(cuda, version=(2, 9)))
    path = begin(settles_in=0.3)
    assert "private_pools" not in reported(path).devices[0].known
    compiling = awaited(path, lambda one: "private_pools" in one.devices[0].known)
    assert compiling.devices[0].known["private_pools"] == 0
    still = awaited(path, lambda one: one.sequence >= compiling.sequence + 9)
    assert cuda.asked.count("memory_snapshot") == 1

    cuda.segments = list(SEGMENTS)
    cuda.devices[0] = of_an_engine(cuda, version=(2, 9), reserved=1100 * MIB)

    serving = awaited(path, lambda one: one.devices[0].known["private_pools"] == 32 * MIB)
    assert serving.sequence > still.sequence
    assert cuda.asked.count("memory_snapshot") == 2


def test_segments_of_another_shape_cost_no_figure(cuda: Any, begin: Begin, folder: Path) -> None:
    """A snapshot is made for people, and may change."""
    cuda.segments = [{"device": 0, "size": 5}]
    cuda.init(of_an_engine(cuda))
    path = begin()
    reported(path)
    (folder / "segments").touch()

    found = awaited(path, lambda one: one.sequence >= 4)

    assert (found.state, found.devices[0].known) == (REPORTING, FULL)


class Tensor:
    """On a device, in a storage that others may share."""

    def __init__(self, storage: int, size: int, *, device: str = "cuda") -> None:
        self.device = SimpleNamespace(type=device, index=0 if device == "cuda" else None)
        self._storage = SimpleNamespace(data_ptr=lambda: storage, nbytes=lambda: size)

    def untyped_storage(self) -> SimpleNamespace:
        return self._storage


def test_a_server_may_tell_its_weights_and_cache(cuda: Any, begin: Begin, monkeypatch: Any) -> None:
    """As bytes by device or as tensors: tied ones count once, those on the CPU don't."""
    monkeypatch.setattr(vramscope_probe, "_told", {})
    tied = [Tensor(1, 700), Tensor(1, 700), Tensor(2, 50), Tensor(3, 9, device="cpu")]
    vramscope_probe.describe(parameters=tied)
    vramscope_probe.describe(kv_tensors={0: 4096, 1: 5})
    vramscope_probe.describe(parameters=5)  # type: ignore[arg-type]  # nonsense is not told, and raises nothing
    cuda.init(of_an_engine(cuda))

    assert reported(begin()).devices[0].known == FULL | {"parameters": 750, "kv_tensors": 4096}


def test_the_file_says_what_it_costs_and_when(cuda: Any, begin: Begin) -> None:
    """CPU time grows by less than the time that passes; the sequence counts."""
    cuda.init(of_an_engine(cuda))
    path = begin()
    first = reported(path)

    later = awaited(path, lambda one: one.sequence > first.sequence)

    assert 0 < later.cpu_ns - first.cpu_ns < later.written_ns - first.written_ns
    assert said(path).interval_ms == 100
