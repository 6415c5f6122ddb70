"""What a probe's file says, read by its documented layout alone."""

import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

WAITING, REPORTING, SILENT = range(3)
NAMES = (
    *("allocated", "allocated_peak", "active", "active_peak", "reserved", "reserved_peak", "requested"),
    *("inactive_split", "private_pools", "parameters", "kv_tensors", "largest_free_block", "free_in_segments"),
    *("alloc_retries", "ooms", "device_allocs"),
)
_HEADER, _RECORD = struct.Struct("<8sHHBBBxIIQQQQQ24s160s"), struct.Struct("<II32s16q")


class Device(Struct, frozen=True, kw_only=True):
    """One record; ``known`` has only the fields that are."""

    number: int
    uuid: str
    known: dict[str, int]


class Said(Struct, frozen=True, kw_only=True):
    """One file."""

    state: int
    expandable: int
    backend: int
    pid: int
    interval_ms: int
    namespace: int
    started_ticks: int
    written_ns: int
    sequence: int
    cpu_ns: int
    torch: str
    reason: str
    devices: tuple[Device, ...]


def decoded(content: bytes) -> Said:
    """Fails on a file that is not whole."""
    body, (checksum,) = content[:-4], struct.unpack("<I", content[-4:])
    assert checksum == zlib.crc32(body)
    magic, layout, count, *fields, torch, reason = _HEADER.unpack_from(body)
    assert (magic, layout, len(body)) == (b"VRMPROBE", 1, 248 + count * _RECORD.size)
    names = ("state", "expandable", "backend", "pid", "interval_ms", "namespace", "started_ticks", "written_ns")
    header = dict(zip((*names, "sequence", "cpu_ns"), fields, strict=True))
    devices = tuple(_device(_RECORD.unpack_from(body, 248 + number * _RECORD.size)) for number in range(count))
    return Said(**header, torch=_text(torch), reason=_text(reason), devices=devices)


def said(path: Path) -> Said:
    return decoded(path.read_bytes())


def files(folder: Path) -> list[Path]:
    """All that processes wrote there, hidden ones too."""
    return sorted(path for path in folder.iterdir() if path.name.lstrip(".")[:1].isdigit()) if folder.is_dir() else []


def of_pid(folder: Path, pid: int) -> Path:
    """Where a process of this pid namespace writes."""
    return folder / f"{Path('/proc/self/ns/pid').stat().st_ino}-{pid}"


def awaited(path: Path, wanted: Callable[[Said], bool] = lambda _: True, *, seconds: float = 20.0) -> Said:
    """The first content that is as wanted; fails after the deadline."""
    deadline = time.monotonic() + seconds
    last = None
    while time.monotonic() < deadline:
        if path.exists():
            last = said(path)
            if wanted(last):
                return last
        time.sleep(0.02)
    raise AssertionError(f"not in {seconds:.0f} s; last: {last}")


def _device(fields: tuple[Any, ...]) -> Device:
    number, mask, uuid, *values = fields
    assert all(mask >> bit & 1 or value == 0 for bit, value in enumerate(values))
    known = {name: value for bit, (name, value) in enumerate(zip(NAMES, values, strict=True)) if mask >> bit & 1}
    return Device(number=number, uuid=_text(uuid), known=known)


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("utf-8", "replace")
