"""The header of a safetensors file: names, types and sizes of its tensors. Tensor data is never read.

Format: huggingface/safetensors, ``README.md``: 8 bytes little-endian header length, JSON, data.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from collectors.errors import Unreadable
from collectors.json_pieces import AFTER_OBJECTS, PIECE_BYTES, pieces

MAX_HEADER_BYTES = 100_000_000  # the format's own limit


class _Entry(Struct, frozen=True):
    """One entry of a header; ``__metadata__`` has neither field."""

    dtype: str | None = None
    data_offsets: tuple[int, int] | None = None


_ENTRIES = msgspec.json.Decoder(dict[str, _Entry])


class Tensor(Struct, frozen=True):
    """One tensor: ``dtype`` as the file says it (BF16, F8_E4M3, I32 ...)."""

    name: str
    dtype: str
    bytes: int


def header_bytes(path: Path) -> int:
    """How long the header of a safetensors file is.

    Raises:
        Unreadable: not a safetensors file, or cut off.
        OSError: the file can't be read.
    """
    with path.open("rb") as file:
        return _length(path, file)


def read_header(path: Path) -> Iterator[Tensor]:
    """The tensors that one safetensors file holds, read and taken apart in pieces.

    Raises:
        Unreadable: not a safetensors file, cut off, or with offsets that can't be; maybe after some tensors.
        OSError: the file can't be read.
    """
    needed = total = 0
    with path.open("rb") as file:
        length = _length(path, file)
        room = os.fstat(file.fileno()).st_size - 8 - length
        for name, entry in _entries(path, _chunks(file, length)):
            begin, end = entry.data_offsets or (0, -1)
            if entry.dtype is None or not 0 <= begin <= end:
                raise _damaged(path, f"expected dtype and ascending data_offsets of tensor {name[:100]!r}")
            needed, total = max(needed, end), total + end - begin
            yield Tensor(name, entry.dtype[:16], end - begin)
    if needed > room:
        raise _cut_off(path, expected=8 + length + needed, got=8 + length + room)
    if total > room:
        raise _damaged(path, f"expected tensors that fit into {room} bytes, got {total}")


def _length(path: Path, file: BinaryIO) -> int:
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if start == b"version ":
        raise Unreadable("lfs_pointer", f"{path}: a git-lfs pointer instead of the weights; run git lfs pull")
    if len(start) == 8 and length > MAX_HEADER_BYTES:
        raise _damaged(path, f"expected a safetensors header of at most {MAX_HEADER_BYTES} bytes, got {length}")
    if len(start) < 8 or 8 + length > size:
        raise _cut_off(path, expected=8 + length, got=size)
    return length


def _chunks(file: BinaryIO, length: int) -> Iterator[bytes]:
    while length > 0 and (chunk := file.read(min(length, PIECE_BYTES))):
        length -= len(chunk)
        yield chunk


def _entries(path: Path, chunks: Iterator[bytes]) -> Iterator[tuple[str, _Entry]]:
    try:
        for piece in pieces(chunks, AFTER_OBJECTS):
            entries = _ENTRIES.decode(piece)
            entries.pop("__metadata__", None)
            yield from entries.items()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise _damaged(path, "expected a safetensors header in JSON") from exc
    except ValueError as exc:
        raise _damaged(path, f"expected a safetensors header of tensors, got {exc}") from exc


def _damaged(path: Path, what: str) -> Unreadable:
    return Unreadable("malformed", f"{path}: {what}; it is no safetensors file or damaged: download it again")


def _cut_off(path: Path, *, expected: int, got: int) -> Unreadable:
    return Unreadable("truncated", f"{path}: cut off: expected {expected} bytes, got {got}; download it again")
