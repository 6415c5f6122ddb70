"""The format: read back, readable wherever it was cut, and one sentence for everything that is no recording."""

import os
import random
import struct
import threading
import time
import zlib
from pathlib import Path

import pytest

from agent.app import replayed_board
from agent.memory.arguments import Arguments
from agent.recorder import chunks
from agent.recorder.chunks import MAX_CHUNK_BYTES, VERSION, RecordingError, RecordingFile, pack
from agent.recorder.player import Player
from agent.recorder.records import Model, Node, Processes, Record, Servers, Start, Ticked, Watched
from collectors.readings import DeviceReading, ModelFiles, NodeReading
from tests.agent.test_board import facts


def ticks(count: int, first: int = 0) -> tuple[Record, ...]:
    return tuple(Ticked(at=float(number), wall=1e9 + number) for number in range(first, first + count))


def written(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path


def framed(content: bytes, *, version: int = VERSION, length: int | None = None) -> bytes:
    packed = zlib.compress(content)
    unpacked = len(content) if length is None else length
    return struct.pack("<4sBIII", b"VRSC", version, len(packed), unpacked, zlib.crc32(packed)) + packed


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Over chunks, in order."""
    file = RecordingFile(written(tmp_path / "r", pack(ticks(3))[0], pack(ticks(2, 3))[0]))

    assert tuple(file.records()) == ticks(5)
    assert file.problem is None


def test_cut_anywhere(tmp_path: Path) -> None:
    """What is before the chunk that was cut is there, and nothing is said: that is how an agent ends that is killed."""
    first, second = pack(ticks(3))[0], pack(ticks(2, 3))[0]
    for end in range(len(first), len(first) + len(second)):
        file = RecordingFile(written(tmp_path / "r", (first + second)[:end]))

        assert tuple(file.records()) == ticks(3)
        assert file.problem is None


def test_a_byte_that_changed(tmp_path: Path) -> None:
    """In the first chunk it is a sentence; in a later one that, after all that is before it."""
    first, second = pack(ticks(3))[0], pack(ticks(50, 3))[0]
    chance = random.Random(1)
    for place in range(len(first), len(first) + len(second)):
        content = bytearray(first + second)
        content[place] ^= 1 << chance.randrange(8)
        file = RecordingFile(written(tmp_path / "r", bytes(content)))
        if content[len(first) + 4] != VERSION:
            with pytest.raises(RecordingError, match="a recording of format"):
                list(file.records())
            continue
        assert tuple(file.records()) == ticks(3)
        assert file.problem is None or "damaged at byte" in file.problem


NO_RECORDINGS = {
    b"": "it is empty; expected a recording made by `vramscope record`",
    b"VRSC": "no recording of vramscope",
    b"hello, this is some text": "no recording of vramscope",
    b"\x00" * 4096: "no recording of vramscope",
    framed(b"\x90", version=2): "a recording of format 2, written by a newer vramscope; this one reads format 1",
    framed(b"\x90", version=0): "a recording of format 0, which is not read any more; this vramscope reads format 1",
    framed(b"\xc1"): "damaged at byte 0: not records that vramscope wrote",
    framed(b"\x91" * 100_000): "damaged at byte 0: not records that vramscope wrote",
    framed(b"\x91\x81\xa4type\xa4tick"): "damaged at byte 0: not records that vramscope wrote",
    framed(b"\x91\x81\xa4type\xa4evil"): "damaged at byte 0: not records that vramscope wrote",
    framed(b"\xdd\xff\xff\xff\xff"): "damaged at byte 0: not records that vramscope wrote",
    framed(b"\x90", length=7): "damaged at byte 0: a chunk is not as long as it says",
    framed(bytes(3 * MAX_CHUNK_BYTES)): f"damaged at byte 0: a chunk of {3 * MAX_CHUNK_BYTES} bytes",
    framed(bytes(3 * MAX_CHUNK_BYTES), length=10): "damaged at byte 0: a chunk is not as long as it says",
    struct.pack("<4sBIII", b"VRSC", 1, 2**32 - 1, 2**32 - 1, 0): f"damaged at byte 0: a chunk of {2**32 - 1} bytes",
    pack(ticks(3))[0][:-1]: "it ends within its first second",
}


@pytest.mark.parametrize("content", NO_RECORDINGS, ids=list(NO_RECORDINGS.values()))
def test_what_is_no_recording_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    """With the file's name; nothing is read beyond what a chunk may have."""
    path = written(tmp_path / "r", content)
    with pytest.raises(RecordingError) as raised:
        list(RecordingFile(path).records())

    assert raised.value.message == f"{path}: {NO_RECORDINGS[content]}"


def test_what_is_no_file_is_one_sentence(tmp_path: Path) -> None:
    """A folder, a pipe that nobody writes to, and nothing."""
    os.mkfifo(tmp_path / "pipe")
    for name, said in (
        ("", "can't read it: Is a directory"),
        ("pipe", "it is empty"),
        ("no", "can't read it: No such"),
    ):
        with pytest.raises(RecordingError) as raised:
            list(RecordingFile(tmp_path / name).records())

        assert raised.value.message.startswith(f"{tmp_path / name}: {said}")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is in it."""
    monkeypatch.setattr(chunks, "MAX_FILE_BYTES", 10)
    with pytest.raises(RecordingError, match="more than any recording"):
        list(RecordingFile(written(tmp_path / "r", pack(ticks(3))[0])).records())


def test_records_are_spread_over_chunks(tmp_path: Path) -> None:
    """None is larger than what a reader takes; a record that is, or can't be written, is left out and counted."""
    text = "".join(random.Random(1).choices("abcdefgh", k=MAX_CHUNK_BYTES // 3))
    models = [Model(at=1.0, name=text, seconds=number) for number in range(5)]
    files = ModelFiles(path="m", config={"a": 1 << 70})
    bad: list[Record] = [
        Model(at=1.0, name="n", files=files, seconds=0.0),
        Processes(at=1.0, name="\udc80", seconds=0.0),
    ]
    large = Model(at=1.0, name=text * 4, seconds=0.0)
    records: list[Record] = [*models[:3], *bad, large, *models[3:]]

    content, lost = pack(records)

    assert lost == 3
    assert list(RecordingFile(written(tmp_path / "r", content)).records()) == models


SPREAD = Watched(
    facts=facts(given=Arguments(tp=1 << 40)),
    tree=None,
    processes_hidden=False,
    home=None,
    answers=False,
    has_model=False,
)
ABSURD: dict[str, list[Record]] = {
    "argument 'tp': expected an integer from 1 to 1024, got 1099511627776": [
        Start(at=1.0, wall=1.0, run="", version="", simulated=False, state=()),
        Servers(at=1.0, names=("chat",), changed=(SPREAD,)),
    ],
    "it does not begin with the beginning of a segment": list(ticks(1)),
    "a time that is none": [Ticked(at=1.0, wall=float("nan"))],
    "more than 1024 devices": [
        Start(at=1.0, wall=1.0, run="", version="", simulated=False, state=()),
        Node(
            at=1.0,
            reading=NodeReading(
                at=1.0,
                driver_version=None,
                devices=(DeviceReading(index=0),) * 1025,
            ),
        ),
    ],
}


@pytest.mark.parametrize("said", ABSURD)
def test_records_that_make_no_sense_are_one_sentence(said: str, tmp_path: Path) -> None:
    """Whatever they would break in the board."""
    path = written(tmp_path / "r", pack(ABSURD[said])[0])
    with pytest.raises(RecordingError) as raised:
        Player(path, replayed_board).open()

    assert raised.value.message == f"{path}: it has readings that make no sense: {said}"


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    """However slow its writer is: a read that finds nothing yet is no end."""
    os.mkfifo(tmp_path / "r")
    content = pack(ticks(3))[0] + pack(ticks(2, 3))[0]
    held = os.open(tmp_path / "r", os.O_RDWR)  # so that the reader finds a writer
    read: list[Record] = []
    file = RecordingFile(tmp_path / "r")
    reader = threading.Thread(target=lambda: read.extend(file.records()))
    reader.start()
    for part in (content[:5], content[5:40], content[40:]):
        time.sleep(0.05)
        os.write(held, part)
    os.close(held)
    reader.join(10)

    assert tuple(read) == ticks(5)
