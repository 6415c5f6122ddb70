"""The closed sum: components are >= 0 and sum to the total, whatever is missing or contradicts."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.memory.breakdown import NAMED_ORDER, Breakdown, Part, Share, attribute
from collectors.readings import MemoryKind, MemoryReading, ProcessesReading, ProcessMemory

GIB = 2**30
MIB = 2**20


def memory(*, total: int = 80 * GIB, free: int = 10 * GIB, reserved: int | None = GIB) -> MemoryReading:
    return MemoryReading(at=0.0, total_bytes=total, free_bytes=free, reserved_bytes=reserved)


def listed(used: dict[int, int | None]) -> ProcessesReading:
    return ProcessesReading(
        at=0.0, processes=tuple(ProcessMemory(pid=pid, used_bytes=count) for pid, count in used.items())
    )


def share(server: str = "chat", *pids: int, **named: int) -> Share:
    parts = tuple(
        Part(component=name, server=server, bytes=count, evidence="computed") for name, count in named.items()
    )
    return Share(server=server, pids=frozenset(pids), named=parts)


def amounts(breakdown: Breakdown) -> dict[tuple[str, str], int]:
    return {(part.server, part.component): part.bytes for part in breakdown.parts}


def test_everything_known_leaves_runtime_others_and_hidden() -> None:
    """With v2 memory, visible processes and a known model every byte has its own name."""
    result = attribute(
        memory(),
        listed({1: 60 * GIB, 2: 5 * GIB}),
        [share("chat", 1, weights=15 * GIB, kv_used=GIB, kv_available=40 * GIB)],
    )

    assert amounts(result) == {
        ("chat", "weights"): 15 * GIB,
        ("chat", "kv_used"): GIB,
        ("chat", "kv_available"): 40 * GIB,
        ("chat", "runtime"): 4 * GIB,
        ("", "other_processes"): 5 * GIB,
        ("", "reserved"): GIB,
        ("", "hidden"): 4 * GIB,
        ("", "free"): 10 * GIB,
    }
    assert result.overattributed_bytes == {"chat": 0, "": 0}


ABSORPTION = {
    "no v2 reading: reserved is inside hidden": (
        memory(reserved=None),
        listed({1: 60 * GIB}),
        [share("chat", 1, weights=15 * GIB)],
        {
            ("chat", "weights"): 15,
            ("chat", "runtime"): 45,
            ("", "other_processes"): 0,
            ("", "hidden"): 10,
            ("", "free"): 10,
        },
    ),
    "no process list: computed parts stay, the rest is hidden": (
        memory(),
        None,
        [share("chat", 1, weights=15 * GIB, kv_used=GIB)],
        {("chat", "weights"): 15, ("chat", "kv_used"): 1, ("", "reserved"): 1, ("", "hidden"): 53, ("", "free"): 10},
    ),
    "an empty list beside allocated memory is an invisible one": (
        memory(),
        listed({}),
        [share("chat", 1, weights=15 * GIB)],
        {("chat", "weights"): 15, ("", "reserved"): 1, ("", "hidden"): 54, ("", "free"): 10},
    ),
    "the server's pid is not in the list": (
        memory(),
        listed({9: 3 * GIB}),
        [share("chat", 1, weights=15 * GIB)],
        {
            ("chat", "weights"): 15,
            ("", "other_processes"): 3,
            ("", "reserved"): 1,
            ("", "hidden"): 51,
            ("", "free"): 10,
        },
    ),
    "the bytes of the server's process are hidden by the driver": (
        memory(),
        listed({1: None}),
        [share("chat", 1, weights=15 * GIB)],
        {
            ("chat", "weights"): 15,
            ("", "other_processes"): 0,
            ("", "reserved"): 1,
            ("", "hidden"): 54,
            ("", "free"): 10,
        },
    ),
    "the bytes of another process are hidden by the driver": (
        memory(),
        listed({1: 20 * GIB, 9: None}),
        [share("chat", 1, weights=15 * GIB)],
        {
            ("chat", "weights"): 15,
            ("chat", "runtime"): 5,
            ("", "other_processes"): 0,
            ("", "reserved"): 1,
            ("", "hidden"): 49,
            ("", "free"): 10,
        },
    ),
    "unknown model: all its processes hold is runtime": (
        memory(),
        listed({1: 60 * GIB}),
        [share("chat", 1)],
        {("chat", "runtime"): 60, ("", "other_processes"): 0, ("", "reserved"): 1, ("", "hidden"): 9, ("", "free"): 10},
    ),
    "two servers with invisible pids keep their computed parts": (
        memory(),
        None,
        [share("a", weights=15 * GIB), share("b", weights=20 * GIB, kv_used=2 * GIB)],
        {
            ("a", "weights"): 15,
            ("b", "weights"): 20,
            ("b", "kv_used"): 2,
            ("", "reserved"): 1,
            ("", "hidden"): 32,
            ("", "free"): 10,
        },
    ),
    "no server at all": (
        memory(),
        listed({9: 3 * GIB}),
        [],
        {("", "other_processes"): 3, ("", "reserved"): 1, ("", "hidden"): 66, ("", "free"): 10},
    ),
}


@pytest.mark.parametrize("row", ABSORPTION, ids=list(ABSORPTION))
def test_absorption_table(row: str) -> None:
    """Each row of the table of what absorbs what is missing, in GiB."""
    reading, processes, shares, expected = ABSORPTION[row]

    result = attribute(reading, processes, shares)

    assert amounts(result) == {key: count * GIB for key, count in expected.items()}
    assert sum(part.bytes for part in result.parts) == reading.total_bytes


def test_named_parts_are_cut_in_reverse_order_and_the_cut_is_told() -> None:
    """A weights figure that is right and a pool figure that is too large: the pool is cut, runtime is 0."""
    result = attribute(
        memory(), listed({1: 50 * GIB}), [share("chat", 1, weights=15 * GIB, kv_used=10 * GIB, kv_available=40 * GIB)]
    )

    assert amounts(result)["chat", "kv_available"] == 25 * GIB
    assert amounts(result)["chat", "runtime"] == 0
    assert result.overattributed_bytes == {"chat": 15 * GIB, "": 0}


def test_what_a_probe_alone_says_displaces_no_neighbour() -> None:
    """Where the driver hides processes, weights that fill the device are cut to what the others' parts leave of it."""
    boast = Part(component="weights", server="boaster", bytes=80 * GIB, evidence="measured", source="probe: parameters")

    result = attribute(
        memory(), None, [Share(server="boaster", named=(boast,)), share("chat", weights=15 * GIB, kv_used=40 * GIB)]
    )

    assert amounts(result) == {
        ("chat", "weights"): 15 * GIB,
        ("chat", "kv_used"): 40 * GIB,
        ("boaster", "weights"): 14 * GIB,
        ("", "reserved"): GIB,
        ("", "hidden"): 0,
        ("", "free"): 10 * GIB,
    }
    assert result.overattributed_bytes == {"boaster": 66 * GIB, "chat": 0}


def test_processes_that_exceed_the_device_cut_the_others_first() -> None:
    """Shared memory counted in two processes: the device's own allocation wins, others are cut before servers."""
    result = attribute(
        memory(total=80 * GIB, free=30 * GIB), listed({1: 45 * GIB, 2: 8 * GIB}), [share("chat", 1, weights=15 * GIB)]
    )

    assert amounts(result)["", "other_processes"] == 4 * GIB
    assert amounts(result)["", "hidden"] == 0
    assert result.overattributed_bytes == {"chat": 0, "": 4 * GIB}


UNIFIED = {
    "all known": (
        listed({1: 60 * GIB, 2: 5 * GIB}),
        [share("chat", 1, weights=15 * GIB, kv_used=GIB, kv_available=40 * GIB)],
        {
            ("chat", "weights"): 15,
            ("chat", "kv_used"): 1,
            ("chat", "kv_available"): 40,
            ("chat", "runtime"): 4,
            ("", "other_processes"): 5,
            ("", "host"): 25,
            ("", "free"): 30,
        },
    ),
    "an empty list is an answer: the host always uses memory": (
        listed({}),
        [],
        {("", "other_processes"): 0, ("", "host"): 90, ("", "free"): 30},
    ),
    "no process list: computed parts stay, the rest is the host's": (
        None,
        [share("chat", weights=15 * GIB)],
        {("chat", "weights"): 15, ("", "host"): 75, ("", "free"): 30},
    ),
}


@pytest.mark.parametrize("row", UNIFIED, ids=list(UNIFIED))
def test_memory_that_is_the_hosts(row: str) -> None:
    """120 GiB of which 30 are available: what no GPU process holds is the host's; nothing is reserved or hidden."""
    processes, shares, expected = UNIFIED[row]

    result = attribute(memory(total=120 * GIB, free=30 * GIB, reserved=None), processes, shares, kind="unified")

    assert amounts(result) == {key: count * GIB for key, count in expected.items()}


def test_processes_that_exceed_what_the_host_uses_are_cut() -> None:
    """Where available memory counts pages of the GPU's processes, the sum still closes and the cut is told."""
    result = attribute(
        memory(total=120 * GIB, free=80 * GIB, reserved=None), listed({1: 50 * GIB}), [share("chat", 1)], kind="unified"
    )

    assert amounts(result) == {
        ("chat", "runtime"): 40 * GIB,
        ("", "other_processes"): 0,
        ("", "host"): 0,
        ("", "free"): 80 * GIB,
    }
    assert result.overattributed_bytes == {"chat": 10 * GIB, "": 0}


sizes = st.integers(min_value=0, max_value=100 * GIB)
servers = st.lists(
    st.tuples(
        st.sets(st.integers(min_value=1, max_value=6), max_size=3),
        st.dictionaries(st.sampled_from(NAMED_ORDER), sizes, max_size=5),
    ),
    max_size=4,
)


@given(
    total=st.integers(min_value=1, max_value=200 * GIB),
    split=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    v2=st.booleans(),
    processes=st.none() | st.dictionaries(st.integers(min_value=1, max_value=9), st.none() | sizes, max_size=6),
    specs=servers,
    kind=st.sampled_from(get_args(MemoryKind)),
)
def test_any_reading_closes(
    total: int,
    split: tuple[float, float],
    v2: bool,
    processes: dict[int, int | None] | None,
    specs: list[tuple[set[int], dict[str, int]]],
    kind: MemoryKind,
) -> None:
    """Components are >= 0 and sum to the total for any reading, list and servers; no cut is lost."""
    free = min(total, int(total * split[0]))
    reserved = min(total - free, int(total * split[1])) if v2 else None
    taken: set[int] = set()
    shares = []
    for number, (pids, named) in enumerate(specs):
        shares.append(share(f"s{number}", *(pids - taken), **named))
        taken |= pids

    result = attribute(
        memory(total=total, free=free, reserved=reserved),
        None if processes is None else listed(processes),
        shares,
        kind=kind,
    )

    assert all(part.bytes >= 0 for part in result.parts)
    assert sum(part.bytes for part in result.parts) == total
    assert all(count >= 0 for count in result.overattributed_bytes.values())
    shown = amounts(result)
    assert len(shown) == len(result.parts)
    for one in shares:
        for part in one.named:
            assert shown[one.server, part.component] <= part.bytes
