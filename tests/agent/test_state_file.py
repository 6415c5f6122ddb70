"""The state file: what is written is read again, and no fault of the disk or of the file costs what was there."""

import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from agent.memory.upgrades import Record, Run, Share, Value
from agent.state_file import MAX_ASIDE, MAX_BYTES, StateFile
from agent.upgrades import MAX_SERVERS
from collectors.errors import CollectorError

GIB = 2**30
ROOT = Path(__file__).parents[2]


def record(version: str = "0.21.0") -> Record:
    share = Share(uuid="GPU-a", components={"weights": 15 * GIB, "kv_pool": 20 * GIB})
    before = Run(engine="vllm", version="0.19.1", started_at=10.5, settled_at=90.0, devices=(share,))
    arguments: dict[str, Value] = {"tp": 2, "ubatch": 1, "ep": True, "dtype": "fp8", "pp_layers": (3,), "x": 1.0}
    current = Run(
        engine="vllm", version=version, model="llama", settled_at=200.0, arguments=arguments, devices=(share,)
    )
    return Record(current=current, before=before, since=100.0)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[StateFile]:
    one = StateFile(tmp_path / "state")
    yield one
    one.close()


def fails(action: Callable[[], object]) -> tuple[str, str]:
    """Reason and sentence of what it raises."""
    with pytest.raises(CollectorError) as raised:
        action()
    return raised.value.reason, str(raised.value)


def names(file: StateFile) -> set[str]:
    return {path.name for path in file.path.parent.iterdir()}


def test_what_was_written_is_read(file: StateFile) -> None:
    """The directory is made; nobody else but a group may read, and nothing is left beside it."""
    assert file.read() == {}

    file.write({"chat": record(), "other": Record(current=record().current)})

    assert file.read() == {"chat": record(), "other": Record(current=record().current)}
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o640
    assert stat.S_IMODE(file.path.parent.stat().st_mode) & 0o027 == 0
    assert names(file) == {"lock", "upgrades.json"}
    assert msgspec.json.decode(file.path.read_bytes())["schema"] == "vramscope.upgrades/1"


def test_it_outlives_its_writer(file: StateFile) -> None:
    """The next agent reads it once the first has gone."""
    file.write({"chat": record()})
    file.close()

    assert StateFile(file.path.parent).read() == {"chat": record()}


def test_one_agent_at_a_time(file: StateFile) -> None:
    """The second is told so and may look, but neither reads for itself nor writes; it gets the directory afterwards."""
    file.write({"chat": record()})
    second = StateFile(file.path.parent)

    for action in (second.read, lambda: second.write({})):
        reason, message = fails(action)
        assert reason == "locked"
        assert message.endswith("another agent has this directory; set state_directory to one of its own")
    assert second.look() == {"chat": record()}

    file.close()
    assert second.read() == {"chat": record()}
    second.close()


def test_a_look_changes_nothing(tmp_path: Path) -> None:
    """Not even the directory is made, and a file that can't be used stays where it is."""
    file = StateFile(tmp_path / "state")
    assert file.look() == {}
    assert not file.path.parent.exists()

    file.path.parent.mkdir()
    file.path.write_text("{")
    assert fails(file.look)[0] == "malformed"
    assert names(file) == {"upgrades.json"}


UNUSABLE = {
    "empty": b"",
    "cut off": b'{"schema":"vramscope.upgrades/1","servers":{"chat":{"curr',
    "zeros": bytes(4096),
    "not text": b"\xff\xfe\x00",
    "no object": b"[]",
    "another schema": b'{"schema":"vramscope.snapshot/1","servers":{}}',
    "no schema": b'{"servers":{}}',
    "no servers": b'{"schema":"vramscope.upgrades/1"}',
    "wrong type": b'{"schema":"vramscope.upgrades/1","servers":{"chat":{"current":{"engine":5,"settled_at":1}}}}',
    "deep": b'{"schema":"vramscope.upgrades/1","servers":' + b"[" * 100_000,
    "negative bytes": (
        b'{"schema":"vramscope.upgrades/1","servers":{"chat":{"current":{"engine":"vllm","settled_at":1,'
        b'"devices":[{"uuid":"a","components":{"weights":-1}}]}}}}'
    ),
    "huge number": (
        b'{"schema":"vramscope.upgrades/1","servers":{"chat":{"current":{"engine":"vllm","settled_at":1,'
        b'"capacity_tokens":' + b"9" * 5000 + b"}}}}"
    ),
    "too many servers": msgspec.json.encode(
        {"schema": "vramscope.upgrades/1", "servers": {str(n): record() for n in range(MAX_SERVERS + 1)}}
    ),
}


@pytest.mark.parametrize("content", UNUSABLE.values(), ids=UNUSABLE)
def test_a_file_that_can_not_be_used_is_kept_aside(file: StateFile, content: bytes) -> None:
    """One sentence with its new name; then the agent begins anew, and the file is there for who wants to look."""
    file.path.parent.mkdir()
    file.path.write_bytes(content)

    reason, message = fails(file.read)

    aside = file.path.with_name("upgrades.json.unusable-1")
    assert reason == "malformed"
    assert message.endswith(f"; it is kept as {aside}, and earlier runs are not known")
    assert aside.read_bytes() == content
    assert file.read() == {}
    file.write({"chat": record()})
    assert aside.read_bytes() == content


def test_what_was_kept_aside_is_never_written_over(file: StateFile) -> None:
    """Each has its own name, and there are only so many."""
    file.path.parent.mkdir()
    for number in range(MAX_ASIDE):
        file.path.write_text(str(number))
        assert fails(file.read)[0] == "malformed"
    file.path.write_text("one more")

    reason, message = fails(file.read)

    assert reason == "failed"
    assert message.endswith(f"can't keep it aside: {MAX_ASIDE} files were kept aside before; remove them")
    assert file.path.read_text() == "one more"
    assert file.path.with_name("upgrades.json.unusable-1").read_text() == "0"


@pytest.mark.parametrize("name", ["lock", "upgrades.json"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "large"])
def test_what_is_no_file_of_an_agent_is_left_alone(file: StateFile, name: str, kind: str) -> None:
    """One sentence that says what to do; never a wait, and no file is read whole that no agent wrote."""
    path = file.path.with_name(name)
    path.parent.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    else:
        with path.open("wb") as large:
            large.truncate(MAX_BYTES + 1)
    if name == "lock" and kind in ("pipe", "large"):  # as good as any for a lock
        assert file.read() == {}
        return

    reason, message = fails(file.read)

    assert reason == "not_ours"
    assert message.endswith("; move upgrades.json and lock away, no vramscope made them so")
    assert names(file) <= {"lock", "upgrades.json"}


def test_a_newer_agent_says_so_in_few_words(file: StateFile) -> None:
    """Also where its file's version is as long as a file may be."""
    file.path.parent.mkdir()
    file.path.write_text('{"schema":"vramscope.upgrades/' + "9" * 100_000 + '"}')

    assert len(fails(file.read)[1]) < 1000


def test_the_file_of_a_newer_agent_is_left_alone(file: StateFile) -> None:
    """After a downgrade of the agent itself: it says so, and the newer one finds its state again."""
    file.path.parent.mkdir()
    file.path.write_text('{"schema":"vramscope.upgrades/2","machines":[]}')

    reason, message = fails(file.read)

    assert reason == "newer_schema"
    assert message.endswith("written by a newer vramscope (vramscope.upgrades/2); use that, or move the file away")
    assert names(file) == {"lock", "upgrades.json"}


def test_fields_of_later_agents_are_passed_over(file: StateFile) -> None:
    """A field that is added keeps the schema."""
    file.write({"chat": record()})
    document = msgspec.json.decode(file.path.read_bytes())
    document["servers"]["chat"]["current"]["mood"] = document["note"] = "fine"
    file.path.write_bytes(msgspec.json.encode(document))

    assert file.read() == {"chat": record()}


FAULTS = {
    errno.ENOSPC: ("full", "No space left on device; make room, it is then written by itself"),
    errno.EDQUOT: ("full", "Disk quota exceeded; make room, it is then written by itself"),
    errno.EROFS: ("read_only", "Read-only file system; set state_directory to one that can be written"),
    errno.EACCES: ("permission", "Permission denied; set state_directory to one that the agent's user can write"),
    errno.EIO: ("failed", "Input/output error"),
}


@pytest.mark.parametrize("number", FAULTS)
def test_a_disk_that_takes_half(tmp_path: Path, number: int) -> None:
    """The state is what it was before, nothing is left beside it, and once there is room it is written."""
    faults: list[int] = []

    def write(descriptor: int, content: bytes) -> None:
        half = content[: len(content) // 2] if faults else content
        os.write(descriptor, half)
        if faults:
            raise OSError(faults[0], os.strerror(faults[0]))

    file = StateFile(tmp_path, write=write)
    file.write({"chat": record()})
    faults.append(number)

    reason, message = fails(lambda: file.write({"chat": record("0.22.0")}))

    assert (reason, message) == (FAULTS[number][0], f"{file.path}: can't write it: {FAULTS[number][1]}")
    assert file.look() == {"chat": record()}
    assert names(file) == {"lock", "upgrades.json"}
    faults.clear()
    file.write({"chat": record("0.22.0")})
    assert file.read() == {"chat": record("0.22.0")}
    file.close()


def test_a_device_that_is_really_full(tmp_path: Path) -> None:
    """The kernel's own answer, from the device that is always full."""

    def write(_: int, content: bytes) -> None:
        with Path("/dev/full").open("wb", buffering=0) as device:
            device.write(content)

    assert fails(lambda: StateFile(tmp_path, write=write).write({}))[0] == "full"


ON_A_FULL_DISK = """
import sys
from pathlib import Path
from agent.state_file import StateFile
from collectors.errors import CollectorError
from tests.agent.test_state_file import record

file, filler = StateFile(Path(sys.argv[1])), Path(sys.argv[1]) / "filler"
file.write({"chat": record()})
try:
    with filler.open("wb", buffering=0) as other:
        while True:
            other.write(bytes(512))
except OSError:
    pass
try:
    file.write({"chat": record("0.22.0")})
except CollectorError as error:
    print(error.reason)
assert file.read() == {"chat": record()}
filler.unlink()
file.write({"chat": record("0.22.0")})
assert file.read() == {"chat": record("0.22.0")}
print("written")
"""


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A file system of 64 KiB that somebody else fills and clears again, mounted for one process alone."""
    program = f"exec {sys.executable} -c '{ON_A_FULL_DISK}' {tmp_path}"
    mounted = f"mount -t tmpfs -o size=64k tmpfs {tmp_path} || exit 77; {program}"
    command = ["unshare", "--mount", "sh", "-c", mounted] if shutil.which("unshare") else ["false"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)

    if done.returncode in (1, 77) and not done.stdout and "Traceback" not in done.stderr:
        pytest.skip(f"a file system can't be mounted here: {done.stderr.strip()}")
    assert (done.stdout.split(), done.stderr) == (["full", "written"], "")


@pytest.mark.parametrize("place", ["file/state", "file", "link"])
def test_a_directory_that_can_not_be(tmp_path: Path, place: str) -> None:
    """Below a file, a file itself, a link to nowhere."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "else")
    file = StateFile(tmp_path / place)

    for action in (file.read, lambda: file.write({})):
        reason, message = fails(action)
        assert reason == "absent"
        assert message.startswith(f"{file.path}: can't ")


def test_a_directory_that_is_taken_away_is_made_again(file: StateFile) -> None:
    """With its lock: a second agent does not get in meanwhile."""
    file.write({"chat": record()})
    for path in file.path.parent.iterdir():
        path.unlink()
    file.path.parent.rmdir()

    file.write({"chat": record()})

    assert file.read() == {"chat": record()}
    assert fails(StateFile(file.path.parent).read)[0] == "locked"


@pytest.mark.parametrize("name", ["upgrades.json", "lock"])
def test_what_is_no_regular_file_is_not_followed(file: StateFile, tmp_path: Path, name: str) -> None:
    """A pipe would hang, a link could lead to another's file."""
    file.path.parent.mkdir()
    if name == "lock":
        (file.path.parent / name).symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(file.path)

    assert fails(file.read)[0] == "not_ours"
    assert not (tmp_path / "elsewhere").exists()


def test_what_a_killed_writer_left_is_cleared(file: StateFile) -> None:
    """Half a new state beside the old one."""
    file.write({"chat": record()})
    file.path.with_name("upgrades.json.new").write_text('{"schema":"vramscope.upg')

    assert file.read() == {"chat": record()}
    file.write({"chat": record("0.22.0")})
    assert file.read() == {"chat": record("0.22.0")}
    assert names(file) == {"lock", "upgrades.json"}
