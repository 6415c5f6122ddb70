"""Looks at memory between two passes: while it moves, and not too often for a slow driver."""

from collections.abc import Callable
from typing import Any

import pytest

from collectors.nvml import faults
from collectors.nvml.driver import NvmlFault
from collectors.nvml.passes import rest_seconds
from tests.collectors.nvml.node import MIB
from tests.collectors.nvml.test_child import Reader


class Rest:
    """A rest whose sleep moves the reader's clock, and the node with it: ``story`` gets the seconds since it began."""

    def __init__(self, reader: Reader, story: Callable[[float], None] = lambda _: None) -> None:
        self.naps: list[float] = []
        self._reader = reader
        self._story = story
        self._began = reader.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(round(seconds, 3))
        self._reader.now += seconds
        self._story(self._reader.now - self._began)


def rest(reader: Reader, story: Callable[[float], None] = lambda _: None, seconds: float = 1.0) -> Rest:
    """Let the reader rest; ``steps`` are those of the rest alone."""
    reader.steps.clear()
    one = Rest(reader, story)
    reader.passes.rest(seconds, sleep=one.sleep)
    return one


def moved(*allocated_mib: int) -> Reader:
    """A reader whose first device's memory has just grown by 1 GiB."""
    reader = Reader(*allocated_mib)
    reader.read()
    reader.driver.allocated_mib[0] += 1024
    reader.read()
    return reader


def memory(reader: Reader, device: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = reader.read(after_seconds=0.0)[device]["memory"]
    return found


def test_memory_at_rest_is_left_alone() -> None:
    """One pause and no call."""
    reader = Reader(1000)
    reader.read()
    reader.read()

    assert rest(reader).naps == [1.0]
    assert reader.steps == ["rest 1.000"]
    assert "used_max_bytes" not in memory(reader)


def test_memory_that_moves_is_looked_at_ten_times_a_second() -> None:
    """Memory alone, and only of the device that moved."""
    reader = moved(1000, 2000)

    assert rest(reader).naps == [0.1] * 10
    assert reader.steps.count("memory 0") == 9
    assert {step for step in reader.steps if "rest" not in step} == {"memory 0"}


def test_a_peak_between_two_passes_is_seen() -> None:
    """A spike of 0.3 s during a load is in the next pass, and not in the one after."""
    reader = moved(1000)

    def spike(seconds: float) -> None:
        reader.driver.allocated_mib[0] = 9000 if 0.35 < seconds < 0.65 else 2024

    rest(reader, spike)
    first, second = memory(reader), memory(reader)

    reserved_mib = 1024
    assert first["used_max_bytes"] == (9000 + reserved_mib) * MIB
    assert first["total_bytes"] - first["free_bytes"] == (2024 + reserved_mib) * MIB
    assert "used_max_bytes" not in second


def test_looks_go_on_while_memory_moves_and_some_seconds_longer() -> None:
    """A step in one look keeps the looks going; five seconds without one end them."""
    reader = moved(1000)

    looks = []
    for second in range(8):
        reader.driver.allocated_mib[0] += 64 if second < 2 else 0
        looks.append(len(rest(reader).naps) > 1)
        reader.read(after_seconds=0.0)

    assert looks == [True] * 7 + [False]


def test_growth_in_small_steps_is_movement() -> None:
    """Looks compare with the pass before, so that 20 MiB in each look are movement too."""
    reader = moved(1000)
    for _ in range(8):  # until the first step is forgotten

        def creep(_: float) -> None:
            reader.driver.allocated_mib[0] += 20

        looks = len(rest(reader, creep).naps)
        reader.read(after_seconds=0.0)

    assert looks > 1


@pytest.mark.parametrize(("call_seconds", "naps"), [(0.05, 7), (0.2, 3), (0.6, 2)])
def test_slow_calls_are_made_less_often(call_seconds: float, naps: int) -> None:
    """At most half of the time goes into looks: the pause is as long as the last look took."""
    reader = moved(1000)
    answer = reader.driver.memory

    def slow(*arguments: Any) -> Any:
        reader.now += call_seconds
        return answer(*arguments)

    reader.driver.memory = slow  # type: ignore[method-assign, assignment] # the fake, made slow

    assert len(rest(reader).naps) == naps


@pytest.mark.parametrize(
    ("interval", "took", "rest_for"), [(1.0, 0.0, 1.0), (1.0, 0.25, 0.75), (1.0, 0.75, 0.75), (0.1, 3.0, 3.0)]
)
def test_slow_passes_are_made_less_often(interval: float, took: float, rest_for: float) -> None:
    """The rhythm holds while a pass takes less than half of it; a slower one is followed by as long a rest."""
    assert rest_seconds(interval, took) == rest_for


def test_a_look_that_fails_is_the_next_pass_s_to_tell() -> None:
    """A device that is lost between two passes is looked at once more, by the pass."""
    reader = moved(1000)
    reader.driver.codes["memory"] = faults.GPU_IS_LOST

    rest(reader)

    assert reader.steps.count("memory 0") == 1
    assert reader.read(after_seconds=0.0)[0]["memory_fault"]["reason"] == "gpu_lost"


def test_a_driver_that_is_gone_ends_the_rest() -> None:
    """What only a fresh process heals is not waited out."""
    reader = moved(1000)
    reader.driver.codes["memory"] = faults.UNINITIALIZED

    with pytest.raises(NvmlFault):
        rest(reader)


def test_fast_passes_list_processes_at_most_twice_a_second() -> None:
    """A list locks every GPU: with memory at 10 Hz, one that moves all the time does not drag the lists along."""
    reader = Reader(1000)
    reader.read()

    listed = 0
    for _ in range(20):
        reader.driver.allocated_mib[0] += 64
        reader.read(after_seconds=0.1)
        listed += "processes 0" in reader.steps

    assert 3 <= listed <= 4
