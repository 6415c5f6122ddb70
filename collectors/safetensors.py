"""The header of a safetensors file: names, types and sizes of its tensors. Tensor data is never read.

Format: huggingface/safetensors, ``README.md``: 8 bytes little-endian header length, JSON, data.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from collectors.errors import Unreadable

MAX_HEADER_BYTES = 100_000_000  # the format's own limit


class _Entry(Struct, frozen=True):
    """One entry of a header; ``__metadata__`` has neither field."""

    dtype: str | None = None
    data_offsets: tuple[int, int] | None = None


class Tensor(Struct, frozen=True):
    """One tensor: ``dtype`` as the file says it (BF16, F8_E4M3, I32 ...)."""

    name: str
    dtype: str
    bytes: int


def read_header(path: Path, *, max_bytes: int = MAX_HEADER_BYTES) -> list[Tensor]:
    """The tensors that one safetensors file holds.

    Raises:
        Unreadable: not a safetensors file, cut off, or with offsets that can't be.
        OSError: the file can't be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if start == b"version ":
            raise Unreadable("lfs_pointer", f"{path}: a git-lfs pointer instead of the weights; run git lfs pull")
        if len(start) == 8 and length > max_bytes:
            raise _damaged(path, f"expected a safetensors header of at most {max_bytes} bytes, got {length}")
        if len(start) < 8 or 8 + length > size:
            raise _cut_off(path, expected=8 + length, got=size)
        header = file.read(length)
    return list(_tensors(path, header, room=size - 8 - length))


def _tensors(path: Path, header: bytes, *, room: int) -> Iterator[Tensor]:
    try:
        entries = msgspec.json.decode(header, type=dict[str, _Entry])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise _damaged(path, "expected a safetensors header in JSON") from exc
    entries.pop("__metadata__", None)
    needed = max((entry.data_offsets[1] for entry in entries.values() if entry.data_offsets), default=0)
    if needed > room:
        raise _cut_off(path, expected=8 + len(header) + needed, got=8 + len(header) + room)
    total = 0
    for name, entry in entries.items():
        begin, end = entry.data_offsets or (0, -1)
        if entry.dtype is None or not 0 <= begin <= end:
            raise _damaged(path, f"expected dtype and ascending data_offsets of tensor {name[:100]!r}")
        total += end - begin
        yield Tensor(name, entry.dtype[:16], end - begin)
    if total > room:
        raise _damaged(path, f"expected tensors that fit into {room} bytes, got {total}")


def _damaged(path: Path, what: str) -> Unreadable:
    return Unreadable("malformed", f"{path}: {what}; it is no safetensors file or damaged: download it again")


def _cut_off(path: Path, *, expected: int, got: int) -> Unreadable:
    return Unreadable("truncated", f"{path}: cut off: expected {expected} bytes, got {got}; download it again")
