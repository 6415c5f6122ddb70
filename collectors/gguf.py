"""The header of a GGUF file: metadata and the table of tensors. Tensor data is never read.

Format: ggml-org/ggml ``docs/gguf.md``, versions 2 and 3: little-endian counts, metadata, tensor table, then data at a
multiple of ``general.alignment``. Block sizes: ggml ``ggml-common.h``.
"""

import re
import struct
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from collectors.errors import Unreadable
from collectors.safetensors import Tensor

MAX_HEADER_BYTES = 256 * 1024 * 1024
MAX_PARTS = 4096

# of each tensor type by its number: name, elements of a block, bytes of a block
TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}

Value = int | float | bool | str | list[int | float | bool]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_ENTRIES = 65_536
_MAX_TENSORS = 1_000_000
_MAX_TEXT = 1 << 16  # a chat template is longer than any name; what is longer is skipped
_MAX_KEPT = 10_000  # entries of an array that is kept: one for each layer
_CHUNK = 1 << 20
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


class Header(Struct, frozen=True, kw_only=True):
    """Metadata and tensors. Of lists of texts (a vocabulary) and of long ones only ``lengths`` are kept."""

    values: dict[str, Value]
    lengths: dict[str, int]
    tensors: tuple[Tensor, ...]
    elements: int


def parts(path: Path) -> tuple[Path, ...]:
    """All files of a model that is split, by the name of one of them; else the file alone.

    Raises:
        Unreadable: the name counts absurdly.
    """
    found = _PART.fullmatch(path.name)
    if found is None:
        return (path,)
    stem, number, count = found[1], int(found[2]), int(found[3])
    if not 1 <= number <= count <= MAX_PARTS:
        raise Unreadable("absurd", f"{path}: expected part 1 to {MAX_PARTS} at most, got {number} of {count}")
    return tuple(path.parent / f"{stem}-{part:05}-of-{count:05}.gguf" for part in range(1, count + 1))


def read_header(path: Path, *, max_bytes: int = MAX_HEADER_BYTES) -> Header:
    """The header of one GGUF file.

    Raises:
        Unreadable: no GGUF, cut off, of an unknown version or tensor type, or with sizes that can't be.
        OSError: the file can't be read.
    """
    if path.exists() and not path.is_file():
        raise Unreadable("not_regular", f"{path}: expected a regular file")
    with path.open("rb") as file:
        cursor = _Cursor(file, path, size=path.stat().st_size, most=max_bytes)
        tensor_count, entry_count = _counts(cursor)
        values, lengths = _metadata(cursor, entry_count)
        alignment = values.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20 or alignment % 8:
            raise cursor.damaged(f"expected a multiple of 8 as general.alignment, got {str(alignment)[:40]!r}")
        table = [_tensor(cursor) for _ in range(tensor_count)]
    start = -(-cursor.position // alignment) * alignment
    _check_room(cursor, table, room=cursor.size - start)
    return Header(
        values=values,
        lengths=lengths,
        tensors=tuple(tensor for tensor, _, _ in table),
        elements=sum(elements for _, elements, _ in table),
    )


class _Cursor:
    """Reads a header front to back: never past the end of the file, never more than ``most`` bytes."""

    def __init__(self, file: BinaryIO, path: Path, *, size: int, most: int) -> None:
        self.file, self.path, self.size, self.most = file, path, size, most
        self.position = 0
        self._buffer = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._buffer):
            self._fill(count)
        taken = self._buffer[self._at : self._at + count]
        self._at += count
        self.position += count
        return taken

    def skip(self, count: int) -> None:
        self._check(count)
        while count > 0:
            count -= len(self.take(min(count, _CHUNK)))

    def number(self) -> int:
        return int(_U64.unpack(self.take(8))[0])

    def kind(self) -> int:
        return int(_U32.unpack(self.take(4))[0])

    def text(self) -> str | None:
        """A text; None where it is too long to be kept."""
        length = self.number()
        if length > _MAX_TEXT:
            self.skip(length)
            return None
        return self.take(length).decode("utf-8", "replace")

    def damaged(self, what: str) -> Unreadable:
        return Unreadable("malformed", f"{self.path}: {what}; it is no GGUF file or damaged: download it again")

    def _fill(self, count: int) -> None:
        self._check(count)
        rest = self._buffer[self._at :]
        self._buffer = rest + self.file.read(max(count - len(rest), _CHUNK))
        self._at = 0
        if len(self._buffer) < count:
            raise _cut_off(self.path, expected=self.position + count, got=self.position + len(self._buffer))

    def _check(self, count: int) -> None:
        if self.position + count > self.size:
            raise _cut_off(self.path, expected=self.position + count, got=self.size)
        if self.position + count > self.most:
            raise self.damaged(f"expected a header of at most {self.most} bytes, got more")


def _counts(cursor: _Cursor) -> tuple[int, int]:
    magic = cursor.take(min(4, cursor.size))
    if magic == b"vers":
        raise Unreadable("lfs_pointer", f"{cursor.path}: a git-lfs pointer instead of the weights; run git lfs pull")
    if magic != b"GGUF":
        raise cursor.damaged(f"expected a file that begins with GGUF, got {magic!r}")
    version = cursor.kind()
    if version not in (2, 3):
        turned = " (big-endian)" if version >> 24 in (1, 2, 3) and not version & 0xFFFF else ""
        raise Unreadable("version", f"{cursor.path}: expected GGUF version 2 or 3, got {version}{turned}; convert it")
    tensors, entries = cursor.number(), cursor.number()
    if tensors > _MAX_TENSORS or entries > _MAX_ENTRIES:
        raise cursor.damaged(
            f"expected at most {_MAX_TENSORS} tensors and {_MAX_ENTRIES} entries, got {tensors} and {entries}"
        )
    return tensors, entries


def _metadata(cursor: _Cursor, count: int) -> tuple[dict[str, Value], dict[str, int]]:
    values: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    for _ in range(count):
        key = cursor.text()
        if key is None or key in values or key in lengths:
            what = "a key of a sane length" if key is None else f"key {key[:60]!r} once"
            raise cursor.damaged(f"expected {what} in the metadata")
        kind = cursor.kind()
        if kind == _ARRAY:
            lengths[key], kept = _array(cursor, key)
            if kept is not None:
                values[key] = kept
        elif kind == _STRING:
            text = cursor.text()
            if text is not None:
                values[key] = text
        else:
            values[key] = _scalars(cursor, kind, 1, key)[0]
    return values, lengths


def _array(cursor: _Cursor, key: str) -> tuple[int, list[int | float | bool] | None]:
    kind, length = cursor.kind(), cursor.number()
    if kind == _STRING:
        if 8 * length > cursor.size:
            raise _cut_off(cursor.path, expected=cursor.position + 8 * length, got=cursor.size)
        for _ in range(length):
            cursor.skip(cursor.number())
        return length, None
    if length <= _MAX_KEPT:
        return length, _scalars(cursor, kind, length, key)
    cursor.skip(length * struct.calcsize(_scalar_code(cursor, kind, key)))
    return length, None


def _scalars(cursor: _Cursor, kind: int, count: int, key: str) -> list[int | float | bool]:
    form = f"<{count}{_scalar_code(cursor, kind, key)}"
    return list(struct.unpack(form, cursor.take(struct.calcsize(form))))


def _scalar_code(cursor: _Cursor, kind: int, key: str) -> str:
    code = _SCALARS.get(kind)
    if code is None:
        raise cursor.damaged(f"expected a type of value from 0 to 12 for key {key[:60]!r}, got {kind}")
    return code


def _tensor(cursor: _Cursor) -> tuple[Tensor, int, int]:
    """One entry of the table: the tensor, its elements, and its offset."""
    name = cursor.text()
    dimensions = cursor.kind()
    if name is None or dimensions > 4:
        raise cursor.damaged(f"expected a name and at most 4 dimensions of a tensor, got {dimensions}")
    lengths = [cursor.number() for _ in range(dimensions)]
    kind, offset = cursor.kind(), cursor.number()
    if kind not in TYPES:
        raise Unreadable(
            "tensor_type", f"{cursor.path}: tensor {name[:100]!r} has type {kind}, which is not known here; update"
        )
    type_name, block, block_bytes = TYPES[kind]
    elements = 1
    for length in lengths:
        elements *= length
    if (lengths[0] if lengths else 1) % block:
        raise cursor.damaged(f"expected rows of a multiple of {block} elements in {type_name} tensor {name[:100]!r}")
    return Tensor(name, type_name, elements // block * block_bytes), elements, offset


def _check_room(cursor: _Cursor, table: list[tuple[Tensor, int, int]], *, room: int) -> None:
    needed = max((offset + tensor.bytes for tensor, _, offset in table), default=0)
    if needed > room:
        start = cursor.size - room
        raise _cut_off(cursor.path, expected=start + needed, got=cursor.size)
    total = sum(tensor.bytes for tensor, _, _ in table)
    if total > room:
        raise cursor.damaged(f"expected tensors that fit into {room} bytes, got {total}")


def _cut_off(path: Path, *, expected: int, got: int) -> Unreadable:
    return Unreadable("truncated", f"{path}: cut off: expected {expected} bytes, got {got}; download it again")
