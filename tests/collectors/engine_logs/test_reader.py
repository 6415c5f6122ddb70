"""Reading a server's log over time: several files, a change of files, and files that can't be read."""

import errno
from pathlib import Path

import pytest

from collectors.engine_logs.reader import LogReader
from collectors.engine_logs.vllm import FORMAT
from collectors.errors import Absent, CollectorError, Refused, Unreadable
from tests.collectors.engine_logs.lines import GIB, only

SECRET = "sk-canary-4711"


def reader() -> LogReader:
    return LogReader(FORMAT, clock=lambda: 1.0)


def test_output_and_errors_may_be_two_files(tmp_path: Path) -> None:
    """What stands in either counts; without a file there is nothing to say."""
    output, errors = tmp_path / "out", tmp_path / "err"
    output.write_text("non-default args: {}\nModel loading took 2.0 GiB and 1 seconds\n")
    errors.write_text("ValueError: No available memory for the cache blocks.\n")

    reading = reader().read([output, errors])

    assert reading is not None
    assert (only(reading), reading.failures) == ({"weights_bytes": 2 * GIB}, {"no_cache_blocks": 1})
    assert reader().read([]) is None


def test_failures_are_counted_over_the_files_of_all_runs(tmp_path: Path) -> None:
    """The next run of a pod writes to the next file."""
    following = reader()
    for number in range(3):
        path = tmp_path / f"{number}.log"
        refused = "is larger than the maximum number of tokens that can be stored in KV cache (1)."
        path.write_text(f"non-default args: {{}}\nValueError: max seq len ({number}) {refused}\n")
        reading = following.read([path])

    assert reading is not None
    assert reading.failures == {"context_refused": 3}


def test_a_file_that_is_not_there_is_absent_until_it_is(tmp_path: Path) -> None:
    """A server that logs from now on is followed then."""
    path = tmp_path / "log"
    following = reader()
    with pytest.raises(Absent, match="no such log"):
        following.read([path])

    path.write_text("Model loading took 2.0 GiB and 1 seconds\n")

    reading = following.read([path])
    assert reading is not None
    assert only(reading) == {"weights_bytes": 2 * GIB}


def test_no_file_is_kept_open_between_reads(tmp_path: Path) -> None:
    """A log that was deleted takes no room on the disk, and a server that goes leaves nothing behind."""
    path = tmp_path / "log"
    path.write_text("x\n")
    before = len(list(Path("/proc/self/fd").iterdir()))

    reader().read([path])

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_folder_or_a_device_is_no_log(tmp_path: Path) -> None:
    """One sentence, with the path."""
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(Unreadable, match="expected a regular file"):
            reader().read([path])


def test_a_file_that_we_may_not_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do."""
    path = tmp_path / "log"

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("collectors.engine_logs.tail.os.open", refuse)

    with pytest.raises(Refused, match="let the user of vramscope read it"):
        reader().read([path])


@pytest.mark.parametrize("name", ["journald:--help.service", "journald:a b.service", "journald:a\nb.service", "/a\0b"])
def test_a_unit_or_path_may_be_called_anything(name: str) -> None:
    """A process's control group is named by whoever made it: what is no name of a log is one sentence."""
    with pytest.raises(Unreadable, match="can't be the name of a log") as found:
        reader().read([name])

    assert str(found.value).isprintable()


def test_nothing_of_a_line_is_kept_but_numbers(tmp_path: Path) -> None:
    """A canary in every line that is looked at shows up nowhere, not in an error either."""
    path = tmp_path / SECRET / "log"
    path.parent.mkdir()
    lines = [
        "non-default args: {'api_key': 'KEY'}",
        "Initializing a V1 LLM engine (v0.32.0) with config: model='KEY'",
        "(Worker_TP0 pid=1) KEY Model loading took 2.0 GiB and 1 seconds KEY",
        "KEY CUDA out of memory. Tried to allocate 2.00 GiB. KEY",
    ]
    path.write_text("\n".join(lines).replace("KEY", SECRET) + "\n")
    following = reader()

    assert SECRET not in repr(following.read([path]))
    path.unlink()
    with pytest.raises(CollectorError) as raised:
        reader().read([path])
    assert "KEY" not in str(raised.value)
