"""An engine's life as its allocator tells it: components, fragmentation and room for transients, worked out by hand.

The device has 81,920 MiB, of which the driver keeps 512. Weights are 15,360 MiB, the KV pool 49,152, so N = 64,512 are
named once the engine serves. All figures are MiB.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from agent.memory.allocator import Allocator, joined, refined
from agent.memory.breakdown import Part, Share, attribute
from agent.memory.comparison import headroom_ratio, unexplained_bytes
from agent.memory.runtime import RuntimeBudget
from agent.memory.transients import Transient, Troughs, transient
from agent.memory.units import MIB, Range
from collectors.readings import MemoryReading, ProbeReading, ProcessesReading, ProcessMemory

LIFE = Path(__file__).parents[2] / "fixtures" / "allocator" / "life.csv"
TOTAL, DRIVER, WEIGHTS, POOL = 81_920, 512, 15_360, 49_152
PID, OTHER = 7, 9


class Moment(Struct, frozen=True, kw_only=True):
    """One row of the recording, in MiB."""

    moment: str
    state: str
    named: bool
    used_ratio: float
    active: int
    active_peak: int
    reserved: int
    private_pools: int | None
    held: int
    other: int
    logged_graphs: int | None = None

    @property
    def allocator(self) -> Allocator:
        sizes = {
            f"{name}_bytes": value * MIB
            for name in ("active", "active_peak", "reserved", "private_pools")
            if (value := getattr(self, name)) is not None
        }
        reading = ProbeReading(pid=PID, at=0.0, lasts_seconds=5.0, file="f", number=0, **sizes)
        found = joined([reading], total_bytes=TOTAL * MIB, pids={PID})
        assert found is not None
        return found

    @property
    def known(self) -> tuple[Part, ...]:
        used = int(POOL * self.used_ratio)
        sizes = {"weights": WEIGHTS, "kv_used": used, "kv_available": POOL - used} if self.named else {}
        graphs = {"cuda_graphs": self.logged_graphs} if self.logged_graphs is not None else {}
        return tuple(
            Part(component=name, server="chat", bytes=size * MIB, evidence="computed")
            for name, size in (sizes | graphs).items()
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        found = refined(self.known, self.allocator, server="chat", held_bytes=self.held * MIB)
        free = TOTAL - DRIVER - self.held - self.other
        return attribute(
            MemoryReading(at=0.0, total_bytes=TOTAL * MIB, free_bytes=free * MIB, reserved_bytes=DRIVER * MIB),
            ProcessesReading(
                at=0.0,
                processes=(
                    ProcessMemory(pid=PID, used_bytes=self.held * MIB),
                    ProcessMemory(pid=OTHER, used_bytes=self.other * MIB),
                ),
            ),
            [Share(server="chat", pids=frozenset({PID}), named=found.parts)],
        ).parts

    @property
    def live(self) -> dict[str, float]:
        return {part.component: part.bytes / MIB for part in self.parts}


def moments() -> Iterator[Moment]:
    with LIFE.open() as file:
        for row in csv.DictReader(file):
            yield Moment(
                moment=row["moment"],
                state=row["state"],
                named=row["named"] == "1",
                used_ratio=float(row["used_ratio"]),
                **{
                    name: int(row[name])
                    for name in ("active", "active_peak", "reserved", "private_pools", "held", "other")
                },
            )


MOMENTS = {one.moment: one for one in moments()}

WORKED_OUT = {
    # R - A = 7,936 - 7,700; H - R = 8,960 - 7,936; nothing is named yet, so what is active is runtime
    "loading": {"allocator_slack": 236, "cuda_graphs": 0, "context": 1024, "runtime": 7700},
    # R - A = 19,456 - 19,252; H - R = 20,480 - 19,456
    "profiling": {"allocator_slack": 204, "cuda_graphs": 0, "context": 1024, "runtime": 19_252},
    # R - A - G = 65,024 - 64,552 - 400; runtime is 64,552: 15,360 + 49,152 + 40
    "graph capture": {"allocator_slack": 72, "cuda_graphs": 400, "context": 1024, "runtime": 64_552},
    # A - N = 64,552 - 64,512; R - A - G = 65,536 - 64,552 - 832
    "serving idle": {"activations": 40, "allocator_slack": 152, "cuda_graphs": 832, "context": 1024, "runtime": 0},
    # A - N = 67,952 - 64,512; R - A - G = 69,376 - 67,952 - 832
    "prefill": {"activations": 3440, "allocator_slack": 592, "cuda_graphs": 832, "context": 1024, "runtime": 0},
    # A - N = 64,700 - 64,512; R - A - G = 75,776 - 64,700 - 832
    "fragmented": {"activations": 188, "allocator_slack": 10_244, "cuda_graphs": 832, "context": 1024, "runtime": 0},
    # A - N = 74,300 - 64,512; R - A - G = 75,776 - 74,300 - 832
    "leaked": {"activations": 9788, "allocator_slack": 644, "cuda_graphs": 832, "context": 1024, "runtime": 0},
}


@pytest.mark.parametrize("moment", WORKED_OUT)
def test_the_runtime_splits_into_what_was_worked_out(moment: str) -> None:
    """Slack, graphs, activations and context, each to the byte; what is not known apart stays in the runtime."""
    live = MOMENTS[moment].live

    assert {name: live[name] for name in live if name in {*WORKED_OUT[moment], "activations"}} == WORKED_OUT[moment]


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_the_sum_is_closed_in_each_moment(moment: Moment) -> None:
    """All components are >= 0 and sum to the device's total; the server's sum to what its process holds."""
    parts = moment.parts

    assert all(part.bytes >= 0 for part in parts)
    assert sum(part.bytes for part in parts) == TOTAL * MIB
    assert sum(part.bytes for part in parts if part.server == "chat") == moment.held * MIB


FRAGMENTED = {
    "start": 0.0,  # nothing is reserved
    "profiling": 1 - 19_252 / 19_456,  # 1.0 %
    "serving idle": 1 - 64_552 / 65_536,  # 1.5 %, most of it the graphs'
    "fragmented": 1 - 64_700 / 75_776,  # 14.6 %
    "emptied cache": 1 - 64_700 / 66_048,  # 2.0 %
}


@pytest.mark.parametrize(("moment", "ratio"), FRAGMENTED.items(), ids=FRAGMENTED)
def test_fragmentation_of_the_allocator(moment: str, ratio: float) -> None:
    """1 - active / reserved."""
    assert MOMENTS[moment].allocator.fragmentation_ratio == ratio


def transients() -> Mapping[str, Transient]:
    """The life played through."""
    troughs, found = Troughs(), {}
    for one in MOMENTS.values():
        troughs.keep(["chat"] if one.state == "serving" else [])
        allocator = one.allocator
        if one.state == "serving" and allocator.active_bytes is not None:
            troughs.see("chat", "GPU-1", pids=(PID,), active_bytes=allocator.active_bytes)
        live = {part.component: part.bytes for part in one.parts}
        found[one.moment] = transient(
            allocator,
            lowest_active_bytes=troughs.of("chat", "GPU-1"),
            reported_peak_bytes=None,
            predicted_peak_bytes=None,
            free_bytes=live["free"],
            parts=live,
            headroom_bytes=None,
        )
    return found


ROOM = {
    # highest 64,612 - lowest 64,552; free 14,848 + slack 152 + activations 40
    "serving idle": (60, 15_040),
    # 68,404 - 64,552; free 11,008 + 592 + 3,440: a peak changes where the room is, not how much there is
    "prefill": (3852, 15_040),
    # free 4,608 + 10,244 + 188
    "fragmented": (3852, 15_040),
    # the neighbour takes 12,288 of the 14,336 that were free: 2,048 + slack 576 + 128
    "neighbour": (3852, 2752),
    # 74,800 - 64,552: what is not given back looks like a peak that grows
    "leaked": (10_248, 15_040),
}


@pytest.mark.parametrize(("moment", "peak_and_room"), ROOM.items(), ids=ROOM)
def test_the_room_for_transients(moment: str, peak_and_room: tuple[int, int]) -> None:
    """The highest peak since the start, and what is there for one now."""
    found = transients()[moment]

    assert (found.peak_bytes, found.room_bytes) == tuple(size * MIB for size in peak_and_room)
    assert (found.peak_evidence, found.room_evidence) == ("measured", "measured")


def test_only_beside_the_neighbour_a_prefill_finds_no_room() -> None:
    """3,852 MiB are needed for a moment, 2,752 are there, at a KV usage of 38 %."""
    assert [moment for moment, found in transients().items() if found.is_short] == ["neighbour"]


def test_before_it_serves_no_peak_is_known() -> None:
    """The peak of a trial run is above weights alone; what is lowest with the pool is not known yet."""
    assert [one.peak_bytes for one in (transients()["profiling"], transients()["pool"])] == [None, None]


def test_headroom_uses_the_measured_parts() -> None:
    """Free, slack and activations: 15,040 of 81,920 MiB in every moment without a neighbour, with or without budget."""
    assert headroom_ratio(MOMENTS["fragmented"].parts, TOTAL * MIB, {"chat": None}) == 15_040 / 81_920
    assert headroom_ratio(MOMENTS["neighbour"].parts, TOTAL * MIB, {"chat": None}) == 2752 / 81_920


def test_a_leak_is_unexplained_however_its_bytes_are_called() -> None:
    """832 + 9,788 + 644 + 1,024 = 12,288 MiB are beside weights and pool; the budget allows 4 x 2,560."""
    part = Range(low=0, likely=MIB, high=2560 * MIB, source="test")
    budget = RuntimeBudget(activations=part, cuda_graphs=part, non_torch=part, context=part)
    beside = sum(MOMENTS["leaked"].live[name] for name in WORKED_OUT["leaked"])

    assert beside == 12_288
    assert unexplained_bytes(int(beside) * MIB, budget) == 2048 * MIB


OUTSIDE = Moment(
    moment="sleep mode",
    state="serving",
    named=True,
    used_ratio=0.25,
    active=900,
    active_peak=2000,
    reserved=2048,
    private_pools=832,
    held=67_584,
    other=0,
)


def test_weights_and_pool_outside_the_allocator() -> None:
    """Only 900 MiB are active where N = 64,512: 1,024 + 900 are not told apart and stay in the runtime, with a note."""
    found = refined(OUTSIDE.known, OUTSIDE.allocator, server="chat", held_bytes=OUTSIDE.held * MIB)
    live = OUTSIDE.live

    assert {name: live.get(name) for name in WORKED_OUT["leaked"]} == {
        "activations": None,
        "context": None,
        "allocator_slack": 316,
        "cuda_graphs": 832,
        "runtime": 1924,
    }
    assert found.note is not None
    assert "outside" in found.note


def test_weights_and_pool_in_a_private_pool() -> None:
    """65,344 MiB are private: N and the graphs, which the log knows as 832; so slack 66,560 - 832 - 65,412."""
    moment = replace(OUTSIDE, active=65_412, reserved=66_560, private_pools=65_344, logged_graphs=832)

    assert {name: moment.live[name] for name in WORKED_OUT["leaked"]} == {
        "activations": 900,
        "context": 1024,
        "allocator_slack": 316,
        "cuda_graphs": 832,
        "runtime": 0,
    }


def test_graphs_that_hold_live_tensors() -> None:
    """A + G > R: 70 of the active 64,640 MiB lie in the graphs' pools, so activations are 58 and slack is 0."""
    moment = replace(MOMENTS["serving idle"], active=64_640, reserved=65_402, held=66_426)

    live = moment.live

    assert (live["activations"], live["allocator_slack"], live["cuda_graphs"], live["runtime"]) == (58, 0, 832, 0)
    assert sum(live.values()) == TOTAL


def test_graphs_of_the_log_where_the_allocator_does_not_tell() -> None:
    """1,000 MiB by the log: 984 of what is reserved can be theirs, the rest is outside, where the context is."""
    moment = replace(MOMENTS["serving idle"], private_pools=None, logged_graphs=1000)

    live = moment.live

    assert (live["cuda_graphs"], live["allocator_slack"], live["activations"]) == (1000, 0, 40)
    assert (live["context"], live["runtime"]) == (1008, 0)


def test_an_allocator_ahead_of_the_drivers_list() -> None:
    """Reserved 70,000 where the list still says 66,560: no context is made up, and the parts fit what is held."""
    moment = replace(MOMENTS["serving idle"], active=68_000, reserved=70_000)

    live = moment.live

    assert "context" not in live
    assert sum(live.values()) == TOTAL
    assert (
        sum(live[name] for name in ("weights", "kv_used", "kv_available", *WORKED_OUT["leaked"]) if name in live)
        == 66_560
    )


@given(
    sizes=st.lists(st.integers(0, TOTAL * MIB), min_size=5, max_size=5),
    known=st.integers(0, TOTAL * MIB),
    logged=st.none() | st.integers(0, TOTAL * MIB),
    private=st.none() | st.integers(0, TOTAL * MIB),
    held=st.integers(0, (TOTAL - DRIVER) * MIB),
)
def test_whatever_a_process_says_of_itself(
    sizes: list[int], known: int, logged: int | None, private: int | None, held: int
) -> None:
    """No part is negative, all of them fit what the driver says it holds, and its neighbour keeps what it has."""
    active, reserved = sorted(sizes[:2])
    reading = ProbeReading(
        pid=PID,
        at=0.0,
        lasts_seconds=5.0,
        file="f",
        number=0,
        active_bytes=active,
        reserved_bytes=reserved,
        private_pools_bytes=private,
    )
    allocator = joined([reading], total_bytes=TOTAL * MIB, pids={PID})
    named = [
        Part(component=name, server="chat", bytes=known // 2, evidence="computed") for name in ("weights", "kv_used")
    ]
    named += [Part(component="cuda_graphs", server="chat", bytes=logged, evidence="reported")] if logged else []
    assert allocator is not None

    found = refined(named, allocator, server="chat", held_bytes=held)
    free = TOTAL * MIB - DRIVER * MIB - held
    parts = attribute(
        MemoryReading(at=0.0, total_bytes=TOTAL * MIB, free_bytes=free, reserved_bytes=DRIVER * MIB),
        ProcessesReading(at=0.0, processes=(ProcessMemory(pid=PID, used_bytes=held),)),
        [Share(server="chat", pids=frozenset({PID}), named=found.parts)],
    ).parts

    assert all(part.bytes >= 0 for part in (*found.parts, *parts))
    assert sum(part.bytes for part in parts) == TOTAL * MIB
    assert sum(part.bytes for part in parts if part.server == "chat") == held
