"""Following the journal of a unit: real journal files through the real journalctl, and a journalctl that fails.

The files in ``fixtures/journal`` were written by systemd-journal-remote 252: ``first`` has the end of one run of
``vllm.service`` and its next, ``second`` the run after that; lines of another unit stand between.
"""

import lzma
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.engine_logs.journal import PREFIX, RETRY_SECONDS, Journal, matches_of
from collectors.engine_logs.reader import LogReader
from collectors.engine_logs.vllm import FORMAT
from collectors.errors import Absent, CollectorError, Refused, Unreadable
from collectors.readings import LogReading
from tests.collectors.engine_logs.lines import GIB
from tests.real import require

FIXTURES = Path(__file__).parents[2] / "fixtures" / "journal"
UNIT = f"{PREFIX}vllm"
STARTED_AT = 1764460000.0
LINE = "1764460020.000000 vllm[7]: Model loading took {} GiB memory and 3.6 seconds"


class Node:
    """A folder of journals, systemd's links, a clock that the test moves, and the reader of one unit's log."""

    def __init__(self, folder: Path, *program: str) -> None:
        self.now = 1.0
        self.folder = folder
        (folder / "journals").mkdir()
        self.units = folder / "units"
        self.units.mkdir()
        self.reader = LogReader(FORMAT, clock=lambda: self.now, journal=Journal(command=program, units=self.units))

    def runs_since(self, seconds: float) -> None:
        link = self.units / "invocation:vllm.service"
        link.symlink_to("c" * 32)
        os.utime(link, (seconds, seconds), follow_symlinks=False)

    def write(self, name: str) -> None:
        """A journal file, there at once as journald makes one."""
        part = self.folder / name
        part.write_bytes(lzma.decompress((FIXTURES / f"{name}.journal.xz").read_bytes()))
        part.rename(self.folder / "journals" / f"{name}.journal")

    def until(self, is_so: Callable[[LogReading], object]) -> LogReading:
        deadline = time.monotonic() + 20
        while True:
            reading = self.reader.read([UNIT])
            assert reading is not None
            if is_so(reading):
                return reading
            assert time.monotonic() < deadline, reading
            time.sleep(0.02)

    def children(self) -> list[str]:
        """Commands of the processes that this one has started and not ended."""
        found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in found]


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Node]:
    """A node with the real journalctl and the first file."""
    node = Node(tmp_path, require("journalctl"), f"--directory={tmp_path / 'journals'}")
    node.write("first")
    yield node
    node.reader.close()


def fake(folder: Path, script: str) -> Node:
    """A node whose journalctl is a script."""
    program = folder / "journalctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Node(folder, str(program))


def weights(reading: LogReading) -> list[int | None]:
    return [one.weights_bytes for one in reading.ranks]


def test_the_current_run_of_a_unit_and_the_next(real: Node) -> None:
    """From the start that systemd tells; no other unit's lines; through colours, a huge line, rotation, vacuuming."""
    real.runs_since(STARTED_AT)

    reading = real.until(lambda one: one.failures)
    assert (reading.version, reading.ready, weights(reading)) == ("0.32.0", True, [round(1.5 * GIB)])
    assert reading.failures == {"cuda_oom": 1}

    real.write("second")
    (real.folder / "journals" / "first.journal").unlink()
    real.now += 60
    reading = real.until(lambda one: weights(one) == [round(2.5 * GIB)] and one.failures["cuda_oom"] == 2)
    assert reading.ready


def test_a_unit_whose_start_is_not_known_is_read_from_a_bit_before_the_end(real: Node) -> None:
    """As that of a user, or where the links are not seen: the newest start in there counts."""
    assert weights(real.until(lambda one: one.failures)) == [round(1.5 * GIB)]


def test_a_container_that_logs_to_the_journal_is_asked_for_by_its_name(real: Node) -> None:
    """One that is not there says nothing."""
    reading = real.reader.read([f"{PREFIX}CONTAINER_NAME=vllm"])

    assert reading is not None
    assert reading.ranks == ()


def test_closed_and_read_again_goes_on_after_the_last_line(real: Node) -> None:
    """Nothing is counted twice, and no child stays behind."""
    real.runs_since(STARTED_AT)
    real.until(lambda one: one.failures)
    assert len([one for one in real.children() if "journalctl" in one]) == 1

    real.reader.close()
    assert not [one for one in real.children() if "journalctl" in one]
    real.now += 60
    real.write("second")

    reading = real.until(lambda one: weights(one) == [round(2.5 * GIB)] and one.failures["cuda_oom"] >= 2)
    assert reading.failures == {"cuda_oom": 2}


def test_a_log_that_is_not_asked_for_any_more_has_no_child(real: Node) -> None:
    """Its server has gone, or writes to a file now."""
    real.until(lambda one: one.failures)
    assert [one for one in real.children() if "journalctl" in one]

    assert real.reader.read([]) is None

    assert not [one for one in real.children() if "journalctl" in one]


def test_the_child_is_given_nothing_of_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys may be in there."""
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    node = fake(tmp_path, f"env > {tmp_path / 'env'}; echo '{LINE.format(1)}'; exec sleep 60")

    node.until(lambda one: weights(one) == [GIB])
    node.reader.close()

    assert "canary" not in (tmp_path / "env").read_text()


def test_without_journalctl_it_is_absent(tmp_path: Path) -> None:
    """What to do is in the sentence; it is looked for again later."""
    node = Node(tmp_path, str(tmp_path / "none"))

    with pytest.raises(Absent, match="there is no journalctl here"):
        node.reader.read([UNIT])


@pytest.mark.parametrize(
    "script",
    [
        "echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1",
        "echo 'Hint: You are currently not seeing messages from other users and the system.' >&2; exec sleep 60",
    ],
)
def test_a_journal_that_may_not_be_read_is_refused(tmp_path: Path, script: str) -> None:
    """Whether journalctl ends over it or waits for what it will never see."""
    node = fake(tmp_path, script)

    with pytest.raises(Refused, match="group systemd-journal"):
        node.until(lambda _: False)
    node.reader.close()


def test_a_hint_does_not_matter_where_lines_come(tmp_path: Path) -> None:
    """A user may read its own."""
    hint = "Hint: You are currently not seeing messages from other users"
    node = fake(tmp_path, f"echo '{hint}'; echo '{LINE.format(1)}'; exec sleep 60")

    node.until(lambda one: weights(one) == [GIB])
    node.reader.close()


def test_words_of_a_log_are_not_those_of_journalctl(tmp_path: Path) -> None:
    """A line of the log has its time in front."""
    line = "1764460001.000000 x[1]: Hint: insufficient permissions"
    node = fake(tmp_path, f"echo '{line}'; sleep 0.1; echo '{LINE.format(1)}'; exec sleep 60")

    node.until(lambda one: weights(one) == [GIB])
    node.reader.close()


def test_a_child_that_ends_is_a_failure_until_another_goes_on(tmp_path: Path) -> None:
    """Not more often than each half minute; what it had said stays, and lines it tells again do not count again."""
    oom = "1764460030.000001 vllm[7]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    node = fake(tmp_path, f"echo run >> {tmp_path / 'runs'}; echo '{LINE.format(1)}'; echo '{oom}'; kill -9 $$")
    for _ in range(2):
        with pytest.raises(Unreadable, match="journalctl ended"):
            node.until(lambda _: False)
    assert (tmp_path / "runs").read_text() == "run\n"

    (tmp_path / "journalctl").write_text(f"#!/bin/sh\necho $* > {tmp_path / 'flags'}\necho '{oom}'\nexec sleep 60\n")
    node.now += RETRY_SECONDS

    reading = node.until(lambda _: (tmp_path / "flags").exists())
    assert (weights(reading), reading.failures) == ([GIB], {"cuda_oom": 1})
    assert "--since=@1764460030.000001" in (tmp_path / "flags").read_text()
    node.reader.close()


def test_a_child_that_hangs_says_nothing_and_holds_nobody_up(tmp_path: Path) -> None:
    """It can't be told from a unit that is silent."""
    node = fake(tmp_path, "exec sleep 60")

    reading = node.reader.read([UNIT])

    assert reading is not None
    assert reading.ranks == ()
    node.reader.close()


def test_a_flood_is_read_in_bounded_pieces_and_its_end_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start too far behind is not waited for: the newest lines are read then."""
    monkeypatch.setattr("collectors.engine_logs.journal.BACK_BYTES", 2**20)
    filler = "1764460001.000000 x[1]: " + "x" * 8000
    node = fake(
        tmp_path,
        f"""case "$*" in *--lines=*) echo '{LINE.format(2)}'; exec sleep 60;; esac
        exec yes '{filler}'""",
    )
    node.runs_since(STARTED_AT)

    node.until(lambda one: weights(one) == [2 * GIB])
    assert len([one for one in node.children() if str(tmp_path) in one or "sleep" in one]) == 1
    node.reader.close()


def test_names_of_units_and_containers() -> None:
    """A suffix may be left out; nothing that journalctl would take for a flag or another field."""
    expected = ("_SYSTEMD_UNIT=vllm@1.service", "+", "_SYSTEMD_USER_UNIT=vllm@1.service")
    assert matches_of("vllm@1") == matches_of("vllm@1.service") == expected
    assert matches_of("CONTAINER_NAME=vllm-1") == ("CONTAINER_NAME=vllm-1",)
    for name in ("", "--help", "-u", "a b", "a/b", "_UID=0", "x" * 300, "a\nb", "MESSAGE=x"):
        with pytest.raises(ValueError, match="expected a unit"):
            matches_of(name)


def test_what_journalctl_itself_says_is_in_no_sentence(tmp_path: Path) -> None:
    """Only how it ended."""
    node = fake(tmp_path, "echo 'Failed to open canary' >&2; exit 3")

    with pytest.raises(CollectorError, match="status 3") as raised:
        node.until(lambda _: False)
    assert "canary" not in str(raised.value)
