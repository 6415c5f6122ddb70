"""Files as a probe writes them, put together byte by byte from the description of their layout."""

import os
import struct
import zlib
from pathlib import Path

FIELDS = [
    *("allocated", "allocated_peak", "active", "active_peak", "reserved", "reserved_peak", "requested"),
    *("inactive_split", "private_pools", "parameters", "kv_tensors", "largest_free_block", "free_in_segments"),
    *("alloc_retries", "ooms", "device_allocs"),
]
WAITING, REPORTING, SILENT = 0, 1, 2


def record(number: int = 0, uuid: str = "", **figures: int) -> bytes:
    """One device; fields that are not given are not known."""
    mask = sum(1 << FIELDS.index(name) for name in figures)
    return struct.pack("<II32s16q", number, mask, uuid.encode(), *(figures.get(name, 0) for name in FIELDS))


def file(
    *records: bytes,
    pid: int,
    namespace: int,
    ticks: int,
    written: float,
    interval: float = 1.0,
    state: int = REPORTING,
    layout: int = 1,
    expandable: int = 0,
    backend: int = 0,
    reason: bytes = b"",
) -> bytes:
    """A whole file; ``written`` in seconds of the clock since boot."""
    header = struct.pack(
        "<8sHHBBBxIIQQQQQ24s160s",
        b"VRMPROBE",
        layout,
        len(records),
        state,
        expandable,
        backend,
        pid,
        int(interval * 1000),
        namespace,
        ticks,
        int(written * 1e9),
        7,
        1_000_000,
        b"2.9.0",
        reason,
    )
    content = header + b"".join(records)
    return content + struct.pack("<I", zlib.crc32(content))


class Proc:
    """A ``/proc`` with processes in it, each with a root of its own; the inode of its namespace is that of a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "proc"
        self.roots = folder / "roots"
        self._namespaces = folder / "namespaces"
        for made in (self.folder / "self" / "ns", self.roots, self._namespaces):
            made.mkdir(parents=True)
        os.link(self._namespace("host"), self.folder / "self" / "ns" / "pid")

    def _namespace(self, name: str) -> Path:
        path = self._namespaces / name
        path.touch()
        return path

    def inode(self, name: str = "host") -> int:
        """The number by which a namespace is known."""
        return self._namespace(name).stat().st_ino

    def process(
        self,
        pid: int,
        *,
        ticks: int = 500,
        namespace: str = "host",
        inside: int | None = None,
        uid: int | None = None,
        uid_map: str = "0 0 4294967295",
        environment: str = "",
        root: str = "host",
        parent: int = 0,
    ) -> Path:
        """Add a process; its root."""
        uid = os.geteuid() if uid is None else uid
        folder = self.folder / str(pid)
        (folder / "ns").mkdir(parents=True)
        os.link(self._namespace(namespace), folder / "ns" / "pid")
        pids = f"{pid}" if inside is None else f"{pid}\t{inside}"
        (folder / "status").write_text(
            f"Name:\tvllm\nPPid:\t{parent}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{pids}\n"
        )
        (folder / "stat").write_text(f"{pid} (vllm) S 1 " + "0 " * 17 + f"{ticks} 0 0\n")
        (folder / "environ").write_bytes(environment.encode())
        (folder / "uid_map").write_text(uid_map + "\n")
        where = self.roots / root
        where.mkdir(exist_ok=True)
        (folder / "root").symlink_to(where)
        return where
