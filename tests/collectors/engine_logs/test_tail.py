"""Following a file: from its newest start, through rotation of both kinds, never more than is bounded."""

import os
from pathlib import Path

import pytest

from collectors.engine_logs.tail import BACK_BYTES, CHUNK_BYTES, MAX_LINE_BYTES, RECENT_BYTES, Tail, marked_lines

STARTS = (b"START",)


def new(following: Tail) -> bytes:
    return b"".join(following.read())


def test_what_is_appended_is_read_once_and_by_whole_lines(tmp_path: Path) -> None:
    """A line that is being written waits for its end."""
    path = tmp_path / "log"
    path.write_bytes(b"one\ntw")
    following = Tail(path, starts=STARTS)

    assert new(following) == b"one\n"
    assert new(following) == b""
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert new(following) == b"two\nthree\n"


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(tmp_path: Path) -> None:
    """It is still beside it. There may be none for a while, and its last line never ended."""
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    following = Tail(path, starts=STARTS)
    new(following)

    with path.open("ab") as file:
        file.write(b"two\nunfinished")
    path.rename(tmp_path / "log.1")
    with pytest.raises(FileNotFoundError):
        new(following)
    path.write_bytes(b"three\n")

    assert new(following) == b"two\nunfinishedthree\n"
    assert new(following) == b""


def test_a_file_cut_short_is_read_from_its_new_beginning(tmp_path: Path) -> None:
    """``copytruncate``: same file, smaller."""
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\nunfinished")
    following = Tail(path, starts=STARTS)
    new(following)

    os.truncate(path, 0)
    with path.open("ab") as file:
        file.write(b"three\n")

    assert new(following) == b"three\n"


def test_a_file_is_read_from_its_newest_start_on(tmp_path: Path) -> None:
    """From the beginning of that line, also where blocks meet within the mark."""
    path = tmp_path / "log"
    for length in (0, CHUNK_BYTES - 9, CHUNK_BYTES - 6, 3 * CHUNK_BYTES):
        filler = (b"x" * 99 + b"\n") * (length // 100) + b"y" * (length % 100 - 1) + b"\n" * (length % 100 > 0)
        path.write_bytes(b"START one\nold\nat START two\nnew\n" + filler)

        assert new(Tail(path, starts=STARTS)) == b"at START two\nnew\n" + filler


def test_a_huge_file_is_not_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start is looked for in the last 32 MiB only; without one there the last MiB is read, holes cost nothing."""
    read = 0
    pread = os.pread

    def counted(descriptor: int, size: int, position: int) -> bytes:
        nonlocal read
        read += size
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "pread", counted)
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(b"START\n")
        file.truncate(5 * 2**30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast\n")

    following = Tail(path, starts=STARTS)
    assert new(following).endswith(b"\nlast\n")
    assert read <= BACK_BYTES + RECENT_BYTES

    with path.open("ab") as file:
        file.truncate(6 * 2**30)
    read = 0
    assert sum(map(len, following.read())) <= BACK_BYTES
    assert read <= BACK_BYTES


@pytest.mark.parametrize("kind", ["folder", "fifo", "device"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    """And nothing hangs in opening another."""
    path = {"folder": tmp_path, "fifo": tmp_path / "fifo", "device": Path("/dev/zero")}[kind]
    if kind == "fifo":
        os.mkfifo(path)

    with pytest.raises(OSError, match=r"regular|directory"):
        new(Tail(path, starts=STARTS))


def test_a_line_without_an_end_is_given_up_in_pieces(tmp_path: Path) -> None:
    """Nothing grows."""
    path = tmp_path / "log"
    path.write_bytes(b"x" * (3 * CHUNK_BYTES + 1))
    following = Tail(path, starts=STARTS)

    assert [len(block) for block in following.read()] == [CHUNK_BYTES] * 3
    assert following._lines.rest == b"x"


def test_only_lines_with_a_mark_are_looked_at() -> None:
    """In their order, each once, and cut where they are too long."""
    block = b"a\nfirst mark and sign\nb\n" + b"sign" + b"x" * 9999 + b"mark\nmark"

    assert marked_lines(block, (b"mark", b"sign")) == [
        b"first mark and sign",
        b"sign" + b"x" * (MAX_LINE_BYTES - 4),
        b"mark",
    ]
