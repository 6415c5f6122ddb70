"""The file format: chunks that each stand for themselves, so a file ends well wherever it was cut.

A chunk is ``VRSC``, the version of the format (1 byte), the length of what follows and its length unpacked (4 bytes
each, little endian), the CRC-32 of what follows, and a zlib stream: a msgpack array of records. Files put one
behind another are a file. A segment begins with ``Start``.
"""

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from agent.errors import InputError
from agent.printable import encodable
from agent.recorder.records import Record

MAGIC = b"VRSC"
VERSION = 1
MAX_CHUNK_BYTES = 2 << 20
"""Unpacked; what it may become in memory is some fifty times as much, should a hostile file be made for that."""
MAX_FILE_BYTES = 2 << 30
_HEAD = struct.Struct("<4sBIII")
_LEVEL = 1

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Record, ...])


class RecordingError(InputError):
    """A file that is no recording, or not one that can be read; one sentence."""


def pack(records: Sequence[Record]) -> tuple[bytes, int]:
    """Chunks with these records, and how many records were left out: what can't be encoded, or is larger than a chunk.

    Records that do not fit into one chunk together are spread over several.
    """
    try:
        content = _encoder.encode(records)
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError):
        content = None
    if content is not None and len(content) <= MAX_CHUNK_BYTES:
        return _framed(content), 0
    if len(records) == 1:
        return b"", 1
    middle = len(records) // 2
    first, lost = pack(records[:middle])
    second, also = pack(records[middle:])
    return first + second, lost + also


def _framed(content: bytes) -> bytes:
    packed = zlib.compress(content, _LEVEL)
    return _HEAD.pack(MAGIC, VERSION, len(packed), len(content), zlib.crc32(packed)) + packed


def whole_bytes(file: BinaryIO) -> int:
    """How much of an open file is whole chunks, by their heads alone."""
    size = os.fstat(file.fileno()).st_size
    end = 0
    while True:
        file.seek(end)
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return end
        magic, _, length, _, _ = _HEAD.unpack(head)
        if magic != MAGIC or end + _HEAD.size + length > size:
            return end
        end += _HEAD.size + length


def contents(file: BinaryIO) -> Iterator[bytes]:
    """What is packed in each chunk of an open segment, still encoded, up to the first that is not whole."""
    with contextlib.suppress(_Damaged):
        for _, content in _chunks(file):
            yield content


class RecordingFile:
    """A file that is read from its beginning, a chunk at a time; it is anybody's, and treated like that.

    ``problem`` says, once all was read, why the end of the file could not be; None where it is whole, or was cut within
    a chunk, as of an agent that was killed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = encodable(path.name)
        self.problem: str | None = None

    def records(self) -> Iterator[Record]:
        """All records, in order.

        Raises:
            RecordingError: it can't be read, or is no recording of a version that is known; nothing was given then.
        """
        begun = False
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            with os.fdopen(descriptor, "rb") as file:
                os.set_blocking(descriptor, True)  # a pipe's writer may be slow; one that has none was not waited for
                for offset, content in _chunks(file):
                    records = _decoded(content, offset)
                    begun = True
                    yield from records
        except OSError as error:
            raise RecordingError(f"{self.path}: can't read it: {error.strerror}") from error
        except _Damaged as error:
            message = f"{self.path}: {error}"
            if not begun or error.fatal:
                raise RecordingError(message) from error
            self.problem = encodable(f"{message}; what is before that is shown")
        if not begun and self.problem is None:
            raise RecordingError(f"{self.path}: it is empty; expected a recording made by `vramscope record`")


class _Damaged(Exception):
    def __init__(self, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.fatal = fatal


def _chunks(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Where each chunk begins and what is packed in it, still encoded."""
    if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
        raise _Damaged(f"it has more than {MAX_FILE_BYTES >> 30} GiB, more than any recording", fatal=True)
    offset = 0
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        magic, version, length, unpacked, crc = _HEAD.unpack(head)
        if magic != MAGIC:
            what = "no recording of vramscope" if offset == 0 else f"damaged at byte {offset}"
            raise _Damaged(what, fatal=offset == 0)
        if version != VERSION:
            raise _Damaged(_other_version(version), fatal=True)
        if unpacked > MAX_CHUNK_BYTES or length > 2 * MAX_CHUNK_BYTES:
            raise _Damaged(f"damaged at byte {offset}: a chunk of {max(length, unpacked)} bytes")
        packed = file.read(length)
        if len(packed) < length:
            if offset == 0:
                raise _Damaged("it ends within its first second", fatal=True)
            return
        yield offset, _unpacked(packed, unpacked, crc, offset)
        offset += _HEAD.size + length
    if offset == 0 and head:
        raise _Damaged("no recording of vramscope", fatal=True)


def _other_version(version: int) -> str:
    if version > VERSION:
        return f"a recording of format {version}, written by a newer vramscope; this one reads format {VERSION}"
    return f"a recording of format {version}, which is not read any more; this vramscope reads format {VERSION}"


def _unpacked(packed: bytes, length: int, crc: int, offset: int) -> bytes:
    if zlib.crc32(packed) != crc:
        raise _Damaged(f"damaged at byte {offset}: its checksum does not hold")
    try:
        content = zlib.decompressobj().decompress(packed, length + 1)
    except zlib.error as error:
        raise _foreign(offset) from error
    if len(content) != length:
        raise _Damaged(f"damaged at byte {offset}: a chunk is not as long as it says")
    return content


def _decoded(content: bytes, offset: int) -> tuple[Record, ...]:
    try:
        return _decoder.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _foreign(offset) from error


def _foreign(offset: int) -> _Damaged:
    return _Damaged(f"damaged at byte {offset}: not records that vramscope wrote")
