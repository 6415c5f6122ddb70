"""The child's passes, call by call, and what its process is made of."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors.nvml import faults
from collectors.nvml.driver import Health, HostFigures, Identity, Memory, NvmlFault, Place
from collectors.nvml.passes import Passes
from collectors.nvml.step import Step
from tests.collectors.nvml.node import MIB


class FakeDriver:
    """Devices that answer what the test sets: allocated bytes of each, of 80 GiB with 1 GiB reserved."""

    def __init__(self, *allocated_mib: int) -> None:
        self.allocated_mib = list(allocated_mib)
        self.codes: dict[str, int] = {}
        self.errors = 0

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def driver_version(self) -> str:
        return "580.95.05"

    def device_count(self) -> int:
        return len(self.allocated_mib)

    def places(self, index: int) -> list[Place]:
        self._fail("places")
        return [Place(index)]

    def identity(self, place: Place) -> Identity:
        return Identity(uuid=f"GPU-{place}")

    def memory(self, place: Place) -> Memory:
        self._fail("memory")
        free = (79 * 1024 - self.allocated_mib[place.gpu]) * MIB
        return Memory(80 * 1024 * MIB, free, 1024 * MIB, "device")

    def processes(self, place: Place) -> dict[int, int | None]:
        self._fail("processes")
        return {100: self.allocated_mib[place.gpu] * MIB}

    def host(self) -> HostFigures:
        raise NvmlFault(faults.HOST_FIGURES, "not here")

    def health(self, index: int) -> Health:
        self._fail("health")
        return Health(ecc_uncorrected=self.errors)

    def events(self, index: int) -> Callable[[float], int | None]:
        raise NvmlFault(faults.NOT_SUPPORTED, "not here")

    def _fail(self, call: str) -> None:
        if call in self.codes:
            raise NvmlFault(self.codes[call], "as told")


class Reader:
    """Passes over a fake driver on a clock that the test moves; ``steps`` are the calls of the last pass."""

    def __init__(self, *allocated_mib: int, **options: Any) -> None:
        self.now = 100.0
        self.steps: list[str] = []
        self.driver = FakeDriver(*allocated_mib)
        self.passes = Passes(
            self.driver,
            announce=self.steps.append,
            clock=lambda: self.now,
            processes_interval_seconds=5.0,
            **options,
        )

    def read(self, *, after_seconds: float = 1.0) -> list[dict[str, Any]]:
        self.now += after_seconds
        self.steps.clear()
        devices: list[dict[str, Any]] = self.passes.read()["devices"]
        return devices


def test_first_pass_reads_everything() -> None:
    """The first pass counts, names, lists; memory is read again right after a list, so that both are of one moment."""
    reader = Reader(1000)

    reader.read()

    found = ["count", "places 0", "identity 0", "events 0"]
    assert reader.steps == [*found, "memory 0", "processes 0", "memory 0", "health 0"]


def test_memory_every_pass_and_lists_when_due() -> None:
    """Between two lists the last one stays, with the time it was read."""
    reader = Reader(1000)
    reader.read()

    (device,) = reader.read(after_seconds=4.0)

    assert reader.steps == ["memory 0"]
    assert device["memory"]["at"] == 105.0
    assert device["processes"] == {"at": 101.0, "processes": [{"pid": 100, "used_bytes": 1000 * MIB}]}
    reader.read(after_seconds=1.0)
    assert "processes 0" in reader.steps


@pytest.mark.parametrize(("moved_mib", "listed"), [(31, False), (32, True), (-32, True), (-31, False)])
def test_list_follows_allocation(moved_mib: int, listed: bool) -> None:
    """A device whose allocation moved by 32 MiB since its list is listed at once, and only that device."""
    reader = Reader(1000, 1000)
    reader.read()

    reader.driver.allocated_mib[1] += moved_mib
    reader.read()

    assert reader.steps == ["memory 0", "memory 1", *(["processes 1", "memory 1"] if listed else [])]
    reader.read()
    assert reader.steps == ["memory 0", "memory 1"]


def test_slow_growth_adds_up() -> None:
    """Allocation is compared with the last list, not the last pass: small steps add up to one."""
    reader = Reader(1000)
    reader.read()

    listed = []
    for _ in range(4):
        reader.driver.allocated_mib[0] += 11
        reader.read()
        listed.append("processes 0" in reader.steps)

    assert listed == [False, False, True, False]


def test_failed_list_is_dropped() -> None:
    """A list that fails leaves no old one behind."""
    reader = Reader(1000)
    reader.read()
    reader.driver.codes["processes"] = 3

    (device,) = reader.read(after_seconds=5.0)

    assert "processes" not in device
    assert device["processes_fault"]["reason"] == "not_supported"


def test_faulty_device_is_looked_up_again() -> None:
    """While a device fails, devices are counted in every pass, so that a change is seen at once."""
    reader = Reader(1000)
    reader.read()
    reader.driver.codes["memory"] = faults.GPU_IS_LOST
    reader.read()

    reader.read()

    assert reader.steps == ["count", "places 0", "identity 0", "events 0", "memory 0"]


def test_left_out_devices_are_not_touched() -> None:
    """No call reaches a device that is left out."""
    reader = Reader(1, 2, 3, skip=[1])

    assert [device["index"] for device in reader.read()] == [0, 2]
    assert not [step for step in reader.steps if step.endswith(" 1")]


def test_one_device_alone() -> None:
    """Only the given device is touched; one that is not there makes an empty pass."""
    assert [device["index"] for device in Reader(1, 2, 3, only=1).read()] == [1]
    assert Reader(1, 2, 3, only=5).read() == []


@pytest.mark.parametrize("code", [faults.UNINITIALIZED, faults.VERSION_MISMATCH])
def test_fault_of_the_whole_driver_ends_the_passes(code: int) -> None:
    """What only a fresh process heals is not taken for a fault of one device."""
    reader = Reader(1000)
    reader.driver.codes["memory"] = code

    with pytest.raises(NvmlFault) as caught:
        reader.read()

    assert caught.value.code == code


def test_child_is_small() -> None:
    """The child loads nothing but the standard library, pynvml and its own few modules."""
    program = (
        "import sys; before = set(sys.modules); import collectors.nvml.child\n"
        "print(*sorted({name for name in set(sys.modules) - before\n"
        "               if name.split('.')[0] not in sys.stdlib_module_names}))"
    )

    loaded = subprocess.run([sys.executable, "-Ic", program], check=True, capture_output=True, text=True).stdout

    assert loaded.split() == [
        "collectors",
        "collectors.host_memory",
        "collectors.nvml",
        "collectors.nvml.binding",
        "collectors.nvml.child",
        "collectors.nvml.driver",
        "collectors.nvml.events",
        "collectors.nvml.faults",
        "collectors.nvml.memory",
        "collectors.nvml.passes",
        "collectors.nvml.step",
        "collectors.nvml.xids",
        "pynvml",
    ]


def test_child_ends_when_nobody_listens(tmp_path: Path) -> None:
    """A child whose output is closed ends by itself, quietly."""
    (tmp_path / "node.state").write_text("driver 580.95.05\n")
    step = Step.make()
    command = [sys.executable, "-Im", "collectors.nvml.child", "--memory-interval=0.01", "--processes-interval=1"]
    command += [f"--step={step.descriptor}", f"--simulated={tmp_path / 'node.state'}"]

    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(step.descriptor,)
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""

    step.close()
    assert child.returncode == 0


def test_child_whose_parent_was_killed_before_it_could_say_what_failed(tmp_path: Path) -> None:
    """Also a fault of the driver that nobody hears any more ends it quietly."""
    step = Step.make()
    command = [sys.executable, "-Im", "collectors.nvml.child", "--memory-interval=1", "--processes-interval=1"]
    command += [f"--step={step.descriptor}", f"--simulated={tmp_path / 'missing.state'}"]
    listener, output = os.pipe()
    os.close(listener)

    done = subprocess.run(
        command, stdout=output, stderr=subprocess.PIPE, pass_fds=(step.descriptor,), timeout=30, check=False
    )

    os.close(output)
    step.close()
    assert (done.returncode, done.stderr) == (0, b"")
