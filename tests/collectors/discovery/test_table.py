"""The process table: each process read once, and again when it has become something else."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.discovery.table import (
    MAX_COMMAND_BYTES,
    PARTS,
    SETTLED_PASSES,
    ProcessTable,
    children_of,
    command_line,
    family,
    started_ticks,
    words,
)
from tests.collectors.discovery.table_of import SELF, ProcFolder

KERNEL_THREAD = 0x00200000


@pytest.fixture
def proc(tmp_path: Path) -> ProcFolder:
    return ProcFolder(tmp_path / "proc")


def table_of(proc: ProcFolder) -> ProcessTable:
    return ProcessTable(proc=proc.folder, is_marked=lambda command: b"mark" in command)


def test_a_process_as_the_kernel_shows_it(proc: ProcFolder) -> None:
    """Pid, parent, start, name; the command line only where it has a mark."""
    proc.add(7, b"mark\0--x\0", parent=3, started=55, name="a) (b", program=99)
    proc.add(8, b"other\0")
    processes = table_of(proc).read()
    seven = processes[7]

    assert set(processes) == {7, 8, SELF}
    assert (seven.parent, seven.started_ticks, seven.name, seven.program) == (3, 55, "a) (b", 99)
    assert (seven.command, processes[8].command) == (b"mark\0--x\0", None)
    assert started_ticks(7, proc=proc.folder) == 55
    assert command_line(8, proc=proc.folder) == b"other\0"


def test_a_key_on_a_command_line_is_not_shown(proc: ProcFolder) -> None:
    """What is kept for reading does not come out by accident."""
    proc.add(7, b"mark\0--api-key\0sesame\0")

    assert "sesame" not in repr(table_of(proc).read())


def test_dead_processes_are_none_and_kernel_threads_have_no_command(proc: ProcFolder) -> None:
    """A zombie waits to be buried; a kernel thread may have any name."""
    proc.add(7, b"mark\0", state="Z")
    proc.add(8, b"mark\0", state="X")
    proc.add(9, b"mark\0", flags=KERNEL_THREAD, arguments=0)
    processes = table_of(proc).read()

    assert set(processes) == {9, SELF}
    assert processes[9].command is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"started": 2000}, id="another process with the same pid"),
        pytest.param({"program": 5000}, id="another program after exec"),
        pytest.param({"name": "vllm"}, id="another name"),
        pytest.param({"arguments": 9000}, id="another place of its command line"),
    ],
)
def test_a_changed_process_is_read_again(proc: ProcFolder, change: dict[str, object]) -> None:
    """Each of these means that the command line may be another."""
    proc.add(7, b"before\0")
    table = table_of(proc)
    assert table.read()[7].command is None
    proc.add(7, b"mark\0", **change)  # type: ignore[arg-type] # one of its keywords

    assert table.read()[7].command == b"mark\0"


def test_an_unchanged_process_is_not_read_again(proc: ProcFolder) -> None:
    """Its command line is the one of before, even if a file says otherwise; its parent may change."""
    proc.add(7, b"before\0", parent=3)
    table = table_of(proc)
    table.read()
    proc.add(7, b"mark\0", parent=1)
    seven = table.read()[7]

    assert (seven.command, seven.parent) == (None, 1)


def test_a_process_whose_addresses_are_hidden_is_read_each_time(proc: ProcFolder) -> None:
    """Without permission nothing else tells that it runs another program."""
    proc.add(7, b"before\0", program=1, arguments=0)
    table = table_of(proc)
    table.read()
    proc.add(7, b"mark\0", program=1, arguments=0)

    assert table.read()[7].command == b"mark\0"


def test_of_two_thousand_quiet_processes_a_quarter_is_looked_at(proc: ProcFolder) -> None:
    """What has not changed for a while is taken from memory in three of four passes; marked ones never are."""
    for pid in range(1, 2001):
        (proc.folder / str(pid)).mkdir()
        line = f"{pid} (sleep) S 1 {' '.join(['0'] * 17)} 1 0 0 0 4096 {' '.join(['0'] * 21)} 8192 0\n"
        (proc.folder / str(pid) / "stat").write_text(line)
        (proc.folder / str(pid) / "cmdline").write_bytes(b"mark\0" if pid <= 10 else b"sleep\0")
    table = table_of(proc)
    for _ in range(SETTLED_PASSES + 1):
        assert len(table.read()) == 2001
    for pid in range(1, 2001):
        (proc.folder / str(pid) / "stat").write_text("")  # one that is looked at is seen to be gone
    left = set(table.read())

    assert len(left) == 2001 - 10 - 1990 // PARTS - 1 + (SELF in left)
    assert not left & set(range(1, 11))
    for _ in range(PARTS):
        left = set(table.read())
    assert left <= {SELF}


def test_a_new_process_is_seen_at_once_among_quiet_ones(proc: ProcFolder) -> None:
    """Only what is known can be taken from memory."""
    table = table_of(proc)
    for _ in range(SETTLED_PASSES + 2):
        table.read()
    proc.add(7, b"mark\0")

    assert table.read()[7].command == b"mark\0"
    proc.remove(7)
    assert 7 not in table.read()


def test_a_long_command_line_is_cut(proc: ProcFolder) -> None:
    """A process may show megabytes."""
    proc.add(7, b"mark" * 2**20)
    command = table_of(proc).read()[7].command

    assert command is not None
    assert len(command) == MAX_COMMAND_BYTES


def test_no_process_table(tmp_path: Path) -> None:
    """That is an error, not an empty host."""
    with pytest.raises(FileNotFoundError):
        ProcessTable(proc=tmp_path / "none", is_marked=bool).read()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (b"", []),
        (b"\0\0", []),
        (b"a\0b c\0", ["a", "b c"]),
        (b"a\0\0b\0", ["a", "", "b"]),
        (b"VLLM::APIServer_0\0\0\0\0", ["VLLM::APIServer_0"]),
        (b"VLLM::Worker TP0", ["VLLM::Worker TP0"]),
        (b"\xff\0", ["\ufffd"]),
    ],
)
def test_words(command: bytes, expected: list[str]) -> None:
    """NULs part words, and fill up the room behind a title."""
    assert words(command) == expected


def test_a_family_by_generation(proc: ProcFolder) -> None:
    """The root first, then children by age; the families of others are left out, and a circle ends."""
    proc.add(10, parent=1)
    proc.add(13, parent=10, started=3)
    proc.add(12, parent=10, started=5)
    proc.add(14, parent=12)
    proc.add(15, parent=14)
    proc.add(20, parent=21)
    proc.add(21, parent=20)
    processes = table_of(proc).read()
    children = children_of(processes)

    assert [one.pid for one in family(children, processes[10])] == [10, 13, 12, 14, 15]
    assert [one.pid for one in family(children, processes[10], without=frozenset({14}))] == [10, 13, 12]
    assert [one.pid for one in family(children, processes[20])] == [20, 21]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stat=st.binary(max_size=80) | st.text("()0123 SZ", max_size=300).map(str.encode), command=st.binary(max_size=80))
def test_any_content(proc: ProcFolder, stat: bytes, command: bytes) -> None:
    """A process table of nonsense has no processes, or odd ones, and breaks nothing."""
    proc.add(7)
    (proc.folder / "7" / "stat").write_bytes(stat)
    (proc.folder / "7" / "cmdline").write_bytes(command)
    table = table_of(proc)

    assert SELF in table.read()
    assert SELF in table.read()
    assert isinstance(words(command), list)
