"""Writes GGUF files: true headers, and data that is a hole."""

import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from collectors.gguf import TYPES

Value = int | float | bool | str | Sequence[int] | Sequence[float] | Sequence[bool] | Sequence[str]
Shapes = Mapping[str, tuple[str, tuple[int, ...]]]  # name: type, lengths of dimensions, a row first

_NUMBER = {name: number for number, (name, _, _) in TYPES.items()}


def header_of(metadata: Mapping[str, Value], tensors: Shapes, *, version: int = 3) -> bytes:
    """Counts, metadata and the table of tensors that lie one behind the other."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata))
    head += b"".join(_text(key) + _typed(value) for key, value in metadata.items())
    offset = 0
    for name, (kind, shape) in tensors.items():
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, _NUMBER[kind], offset)
        offset += _aligned(_size(kind, shape))
    return head


def write_gguf(path: Path, metadata: Mapping[str, Value], tensors: Shapes) -> None:
    header = header_of(metadata, tensors)
    data = sum(_aligned(_size(kind, shape)) for kind, shape in tensors.values())
    with path.open("wb") as file:
        file.write(header)
        file.truncate(_aligned(len(header)) + data)


def _typed(value: Value) -> bytes:
    kind, data = _data(value)
    return struct.pack("<I", kind) + data


def _data(value: Value) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, _text(value)
    entries = [_entry(entry) for entry in value]
    kind = entries[0][0] if entries else 4
    return 9, struct.pack("<IQ", kind, len(entries)) + b"".join(data for _, data in entries)


def _entry(value: int | float | bool | str) -> tuple[int, bytes]:
    """Integers of a list are signed, as gguf-py writes them: llama.cpp takes token types in no other form."""
    if isinstance(value, int) and not isinstance(value, bool):
        return 5, struct.pack("<i", value)
    return _data(value)


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _size(kind: str, shape: tuple[int, ...]) -> int:
    _, block, block_bytes = TYPES[_NUMBER[kind]]
    return math.prod(shape) // block * block_bytes


def _aligned(size: int) -> int:
    return -(-size // 32) * 32
