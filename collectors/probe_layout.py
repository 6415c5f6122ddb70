"""The file in which a probe inside an engine writes its allocator's statistics: bytes to figures that are in bounds.

Layout 1, little-endian: a header, a record for each device, CRC-32 of both; ``probe/vramscope_probe.py`` describes it.
Whoever can write the file decides what it says, so a figure that can't be is left out, whatever else is right.
"""

import re
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from collectors.errors import Unreadable
from collectors.readings import AllocatorBackend

MAGIC = b"VRMPROBE"
LAYOUT = 1
HEADER = struct.Struct("<8sHHBBBxIIQQQQQ24s160s")
FIELDS = (
    *("allocated", "allocated_peak", "active", "active_peak", "reserved", "reserved_peak", "requested"),
    *("inactive_split", "private_pools", "parameters", "kv_tensors", "largest_free_block", "free_in_segments"),
    *("alloc_retries", "ooms", "device_allocs"),
)
COUNTS = frozenset({"alloc_retries", "ooms", "device_allocs"})
RECORD = struct.Struct(f"<II32s{len(FIELDS)}q")
WAITING, REPORTING, SILENT = range(3)
MAX_FILE_BYTES = 8192
MAX_FIGURE = 1 << 50
_BITS = tuple(1 << bit for bit in range(len(FIELDS)))
_UUID = re.compile(r"[0-9a-f]{32}")
_CRC = struct.Struct("<I")
_BACKENDS: dict[int, AllocatorBackend] = {0: "native", 1: "cudaMallocAsync", 2: "other"}
_AT_MOST = {
    "active": "reserved",
    "allocated": "active",
    "requested": "allocated",
    "inactive_split": "reserved",
    "private_pools": "reserved",
    "active_peak": "reserved_peak",
    "allocated_peak": "active_peak",
    "largest_free_block": "free_in_segments",
}
_AT_LEAST = {"reserved_peak": "reserved", "active_peak": "active", "allocated_peak": "allocated"}


class Record(Struct, frozen=True, kw_only=True):
    """One device; ``figures`` by name in ``FIELDS``, those that are known and possible."""

    number: int
    uuid_digits: str | None
    figures: dict[str, int]


class ProbeFile(Struct, frozen=True, kw_only=True):
    """One file; ``written_at`` is in seconds of ``CLOCK_BOOTTIME``, ``reason`` why a silent probe is silent."""

    state: int
    pid: int
    namespace: int
    started_ticks: int
    written_at: float
    interval_seconds: float
    expandable_segments: bool | None
    backend: AllocatorBackend | None
    torch_version: str | None
    reason: str
    records: tuple[Record, ...]


def parse(content: bytes) -> ProbeFile:
    """What a whole file says.

    Raises:
        Unreadable: it is torn, no such file, or of another layout.
    """
    if len(content) < HEADER.size + _CRC.size or not content.startswith(MAGIC):
        raise Unreadable("malformed", "it is not the file of a probe, or cut off")
    layout = int.from_bytes(content[8:10], "little")
    if layout != LAYOUT:
        raise Unreadable(
            "layout",
            f"it has layout {layout}, and this version of vramscope reads layout {LAYOUT}: "
            "install a vramscope and a vramscope-probe of the same age",
        )
    body, (checksum,) = content[: -_CRC.size], _CRC.unpack(content[-_CRC.size :])
    fields = HEADER.unpack_from(body)
    count = fields[2]
    if len(body) != HEADER.size + count * RECORD.size or zlib.crc32(body) != checksum:
        raise Unreadable("torn", "its checksum or length is wrong: it is torn, or somebody else wrote it")
    _, _, _, state, expandable, backend, pid, interval, namespace, ticks, written, _, _, torch, reason = fields
    return ProbeFile(
        state=state,
        pid=pid,
        namespace=namespace,
        started_ticks=ticks,
        written_at=written / 1e9,
        interval_seconds=min(interval, 60_000) / 1000,
        expandable_segments={0: False, 1: True}.get(expandable),
        backend=_BACKENDS.get(backend),
        torch_version=_text(torch) or None,
        reason=_text(reason),
        records=tuple(_record(RECORD.unpack_from(body, HEADER.size + n * RECORD.size)) for n in range(count)),
    )


def _record(fields: tuple[Any, ...]) -> Record:
    number, mask, uuid, *values = fields
    known = {name: value for bit, name, value in zip(_BITS, FIELDS, values, strict=True) if mask & bit}
    digits = _text(uuid).lower()
    return Record(number=number, uuid_digits=digits if _UUID.fullmatch(digits) else None, figures=_possible(known))


def _possible(figures: Mapping[str, int]) -> dict[str, int]:
    """Those that are not negative, not absurd, and in order: allocated <= active <= reserved, none above its peak.

    What is held from the driver stands first, then each against what it is a part of.
    """
    kept = {name: value for name, value in figures.items() if 0 <= value <= MAX_FIGURE}
    for name, whole in _AT_MOST.items():
        if kept.get(name, 0) > kept.get(whole, MAX_FIGURE):
            del kept[name]
    for name, least in _AT_LEAST.items():
        if kept.get(name, MAX_FIGURE) < kept.get(least, 0):
            del kept[name]
    return kept


def _text(raw: bytes) -> str:
    """What can be printed of it, on one line."""
    text = raw.partition(b"\0")[0].decode("utf-8", "replace")
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else " " for letter in text)
    return text.strip()
