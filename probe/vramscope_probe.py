"""Statistics of PyTorch's CUDA allocator, written once a second from inside an engine for vramscope to read.

vLLM and SGLang load it by themselves once it is installed; any other PyTorch server by one line,
``__import__("vramscope_probe").start()``. It patches nothing, resets nothing, imports no torch, opens no port, makes no
CUDA context, asks CUDA nothing before the engine has initialised it, and never raises. It reads what the allocator
counts on the host. Where something is odd it says so in its file and goes silent.

Environment: ``VRAMSCOPE_PROBE=off`` keeps it from starting, ``VRAMSCOPE_PROBE_DIRECTORY`` names where it writes
(``/dev/shm/vramscope-<uid>`` else), ``VRAMSCOPE_PROBE_INTERVAL`` its seconds.

The file ``<directory>/<inode of the pid namespace>-<pid in it>`` is replaced as a whole: each interval while it
reports, each minute while it waits, never again once it is silent. All numbers are little-endian:

====== ====== ==========================================================================================
offset format header
====== ====== ==========================================================================================
0      8s     ``VRMPROBE``
8      HH     version of this layout, number of devices
12     BBBx   state (0 waits for CUDA, 1 reports, 2 silent); expandable segments (0 off, 1 on, 255 not
              known); allocator (0 native, 1 cudaMallocAsync, 2 another, 255 not known)
16     II     pid in its own namespace, milliseconds between two files
24     Q      inode of its pid namespace
32     Q      start of the process, clock ticks since boot as in ``/proc/PID/stat``
40     Q      time of writing, nanoseconds of ``CLOCK_BOOTTIME``
48     Q      files written before this one
56     Q      nanoseconds of CPU that the probe has used
64     24s    version of torch, UTF-8 filled up with zeros
88     160s   why it is silent, UTF-8 filled up with zeros
248           a record for each device, then CRC-32 (I) of all that stands before it
====== ====== ==========================================================================================

A record is ``II32s`` and the ``FIELDS`` as ``q``: the device's number in this process, which fields are known (bit n
for field n; a field that is not has 0), and its UUID as 32 hexadecimal digits, zeros where torch does not tell.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import signal
import stat
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Union

__version__ = "0.1.0"

MAGIC = b"VRMPROBE"
LAYOUT = 1
HEADER = struct.Struct("<8sHHBBBxIIQQQQQ24s160s")
WAITING, REPORTING, SILENT = range(3)
NOT_KNOWN = 255
MAX_DEVICES = 16
SHORTEST_SECONDS, LONGEST_SECONDS = 0.1, 60.0
ABANDONED_SECONDS = 3600.0

# Field of a record, and where torch's statistics have it. Bytes, the last three counts since the process began.
FIELDS = {
    "allocated": ("allocated_bytes", "all", "current"),
    "allocated_peak": ("allocated_bytes", "all", "peak"),
    "active": ("active_bytes", "all", "current"),
    "active_peak": ("active_bytes", "all", "peak"),
    "reserved": ("reserved_bytes", "all", "current"),
    "reserved_peak": ("reserved_bytes", "all", "peak"),
    "requested": ("requested_bytes", "all", "current"),
    "inactive_split": ("inactive_split_bytes", "all", "current"),
    "private_pools": ("reserved_bytes_by_private_pools",),
    "parameters": (),
    "kv_tensors": (),
    "largest_free_block": (),
    "free_in_segments": (),
    "alloc_retries": ("num_alloc_retries",),
    "ooms": ("num_ooms",),
    "device_allocs": ("num_device_alloc",),
}
RECORD = struct.Struct(f"<II32s{len(FIELDS)}q")

_BACKENDS = {"native": 0, "cudaMallocAsync": 1}
_OF_EVERY_BACKEND = ("allocated", "allocated_peak", "active", "active_peak", "reserved", "reserved_peak")
_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_SEGMENTS = "segments"
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}

Sizes = Union[Mapping[int, int], Iterable[Any], None]
Known = dict[str, Union[int, None]]
Record = tuple[int, bytes, Known]

_lock = threading.Lock()
_probe: Probe | None = None
_told: dict[str, dict[int, int]] = {}


def start(directory: str | None = None, interval: float | None = None) -> None:
    """Begin in this process, and in those it forks; done already, or anything odd: nothing happens."""
    global _probe
    try:
        if os.environ.get("VRAMSCOPE_PROBE", "").strip().lower() in ("off", "0", "no", "false"):
            return
        if not _lock.acquire(blocking=False):  # another thread is here, or was when this process was forked
            return
        try:
            if _probe is not None:
                return
            _probe = Probe(directory, interval)
            os.register_at_fork(after_in_child=_forked)
            atexit.register(_ended)
        finally:
            _lock.release()
        _probe.begin()
    except Exception:  # an engine never fails for its probe
        return


def describe(parameters: Sizes = None, kv_tensors: Sizes = None) -> None:
    """Tell the bytes of weights and KV cache on each device: no engine tells them by itself.

    Both map the number of a device to bytes, or are iterables of tensors to be summed, each storage once.
    """
    with contextlib.suppress(Exception):
        for name, sizes in (("parameters", parameters), ("kv_tensors", kv_tensors)):
            if sizes is not None:
                _told[name] = _by_device(sizes)


class Probe:
    """One process: reads its own allocator, writes its own file."""

    def __init__(
        self,
        directory: str | None = None,
        interval: float | None = None,
        *,
        first_wait: float = 0.0,
        settles_in: float = 60.0,
    ) -> None:
        self._given = directory
        self._directory = os.path.abspath(directory or _directory())
        self._interval = _seconds(interval)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="vramscope-probe", daemon=True)
        self._begun_in = 0
        self._first_wait = first_wait
        self._pid = os.getpid()
        self._identity = (_namespace(), _started())
        self.name = f"{self._identity[0]}-{self._pid}"
        self._sequence = 0
        self._uuids: dict[int, bytes] = {}
        self._asked_ns = 0
        self._settles_in = self._pause = settles_in
        self._reserved: list[int | None] = []
        self._reserved_since = 0.0
        self._looked, self._looked_at = 0.0, self._reserved
        self._seen: dict[int, Known] = {}

    def begin(self) -> None:
        """Start the thread of this process."""
        self._begun_in = threading.get_native_id()
        self._thread.start()

    def of_child(self) -> Probe:
        """That of a process just forked: the thread and all that was read are its parent's.

        It writes nothing at first, so that a child which only runs another program leaves no file.
        """
        return Probe(self._given, self._interval, first_wait=self._interval)

    def end(self) -> None:
        """Stop, and take the file away: the process ends."""
        self._ended.set()
        self._thread.join(1.0)
        with contextlib.suppress(OSError), _folder(self._directory) as folder:
            os.unlink(self.name, dir_fd=folder)

    def _run(self) -> None:
        try:
            if threading.get_native_id() == self._begun_in:  # its signals are the engine's to take
                raise RuntimeError("threads here are none of the system's (gevent?): it would run in an engine's")
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)  # they are the engine's
            self._report()
        except Exception as error:  # an engine never fails for its probe
            with contextlib.suppress(Exception), _folder(self._directory) as folder:
                self._write(folder, SILENT, NOT_KNOWN, [], f"{type(error).__name__}: {error}")

    def _report(self) -> None:
        """Until the process ends. What could not be written is tried again in a minute."""
        with contextlib.suppress(OSError), _folder(self._directory) as folder:
            self._asked_ns = _touched_ns(folder)
            _sweep(folder)
        wait, renewed = self._first_wait, float("-inf")
        while not self._ended.wait(wait):
            cuda = _cuda()
            wait = self._interval
            if cuda is None and time.monotonic() < renewed + LONGEST_SECONDS:
                continue
            try:
                with _folder(self._directory) as folder:
                    if cuda is None:
                        self._write(folder, WAITING, NOT_KNOWN, [])
                        renewed = time.monotonic()
                    else:
                        backend = _backend(cuda)
                        devices = self._devices(cuda, backend, is_asked=self._is_asked(folder))
                        self._write(folder, REPORTING, backend, devices)
                        renewed = float("-inf")
            except OSError:
                wait = LONGEST_SECONDS

    def _devices(self, cuda: ModuleType, backend: int, *, is_asked: bool) -> list[Record]:
        """A record for each device whose allocator this process has used."""
        numbers = range(min(cuda.device_count(), MAX_DEVICES))
        found = {number: _known(cuda.memory_stats_as_nested_dict(number), backend) for number in numbers}
        used = {number: known for number, known in found.items() if any(known.values())}
        if is_asked or self._is_settled(used):
            self._look_through(cuda)
        elif time.monotonic() > self._looked + LONGEST_SECONDS:
            self._seen = {n: {"private_pools": seen.get("private_pools")} for n, seen in self._seen.items()}
        for number, known in used.items():
            seen = self._seen.get(number, {})
            known.update({name: value for name, value in seen.items() if known.get(name) is None})
            known.update({name: sizes.get(number) for name, sizes in _told.items()})
        return [(number, self._uuid(cuda, number), known) for number, known in used.items()]

    def _uuid(self, cuda: ModuleType, number: int) -> bytes:
        if number not in self._uuids:
            self._uuids[number] = b""
            with contextlib.suppress(Exception):  # not in every version of torch
                digits = str(cuda.get_device_properties(number).uuid)[-36:].replace("-", "")
                self._uuids[number] = bytes.fromhex(digits).hex().encode() if len(digits) == 32 else b""
        return self._uuids[number]

    def _is_asked(self, folder: int) -> bool:
        """Whether the file ``segments`` was touched since."""
        before, self._asked_ns = self._asked_ns, _touched_ns(folder)
        return before != self._asked_ns

    def _is_settled(self, used: Mapping[int, Known]) -> bool:
        """Something was loaded since the last look, and this version of torch does not count private pools by itself.

        The pause between two looks doubles, so that in all they cost next to nothing.
        """
        now, reserved = time.monotonic(), [known.get("reserved") for known in used.values()]
        if reserved != self._reserved:
            self._reserved, self._reserved_since = reserved, now
        if reserved == self._looked_at or now < max(
            self._reserved_since + self._settles_in, self._looked + self._pause
        ):
            return False
        self._pause *= 2
        return any(known.get("private_pools", 0) is None for known in used.values())

    def _look_through(self, cuda: ModuleType) -> None:
        """Through all segments. What is free in them is said for a minute, what private pools have for ever."""
        self._looked, self._looked_at = time.monotonic(), self._reserved
        with contextlib.suppress(Exception):  # a snapshot is made for people: its shape may change
            segments = _segments(cuda)
            numbers = {segment["device"] for segment in segments}
            self._seen = {n: _summary([one for one in segments if one["device"] == n]) for n in numbers}

    def _write(self, folder: int, state: int, backend: int, devices: list[Record], reason: str = "") -> None:
        """Replace the file.

        Raises:
            OSError: it can't be written there now.
        """
        said = " ".join(reason.split()).encode("utf-8", "replace")
        header = HEADER.pack(
            MAGIC, LAYOUT, len(devices), state, _expandable(), backend,
            self._pid, int(self._interval * 1000), *self._identity, time.clock_gettime_ns(time.CLOCK_BOOTTIME),
            self._sequence, time.thread_time_ns(), _torch_version(), said,
        )  # fmt: skip
        content = header + b"".join(map(_packed, devices))
        _replace(folder, self.name, content + struct.pack("<I", zlib.crc32(content)))
        self._sequence += 1


def _cuda() -> ModuleType | None:
    """torch.cuda once the engine itself has initialised it."""
    cuda = sys.modules.get("torch.cuda")
    with contextlib.suppress(Exception):  # while it is being imported
        return cuda if cuda is not None and cuda.is_initialized() else None
    return None


def _backend(cuda: ModuleType) -> int:
    with contextlib.suppress(Exception):  # not in every version of torch
        return _BACKENDS.get(cuda.get_allocator_backend(), 2)
    return NOT_KNOWN


def _expandable() -> int:
    settings = next(filter(None, map(os.environ.get, _SETTINGS)), "").replace(" ", "").lower().split(",")
    return int("expandable_segments:true" in settings or "expandable_segments:1" in settings)


def _torch_version() -> bytes:
    return str(getattr(sys.modules.get("torch"), "__version__", "")).encode("utf-8", "replace")


def _known(statistics: Any, backend: int) -> Known:
    """Fields that torch's statistics have; those that only its native allocator counts are zeros with another."""
    names = FIELDS if backend in (_BACKENDS["native"], NOT_KNOWN) else _OF_EVERY_BACKEND
    return {name: _figure(statistics, FIELDS[name]) for name in names if FIELDS[name]}


def _figure(statistics: Any, path: tuple[str, ...]) -> int | None:
    """What stands there; None where this version of torch has no such figure."""
    value = statistics
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, Mapping):  # of private pools, each with figures of its own
        pools = [_figure(pool, ("all", "current")) for pool in value.values()]
        known = [pool for pool in pools if pool is not None]
        return sum(known) if len(known) == len(pools) else None
    return value if isinstance(value, int) else None


def _segments(cuda: ModuleType) -> list[Any]:
    """All segments of the allocator, without the history of allocations where torch can leave it out."""
    try:
        return list(cuda.memory_snapshot(include_traces=False))
    except TypeError:
        return list(cuda.memory_snapshot())


def _summary(segments: list[Any]) -> Known:
    """What is free in the segments of the ordinary pool, and what private pools have reserved."""
    ordinary = [segment for segment in segments if tuple(segment.get("segment_pool_id", (0, 0))) == (0, 0)]
    free = [block["size"] for segment in ordinary for block in segment["blocks"] if block["state"] == "inactive"]
    private = sum(segment["total_size"] for segment in segments) - sum(segment["total_size"] for segment in ordinary)
    return {"largest_free_block": max(free, default=0), "free_in_segments": sum(free), "private_pools": private}


def _by_device(sizes: Mapping[int, int] | Iterable[Any]) -> dict[int, int]:
    if isinstance(sizes, Mapping):
        return dict(sizes)
    storages = {}
    tensors: Iterable[Any] = sizes
    for tensor in tensors:
        if tensor.device.type == "cuda":
            storage = tensor.untyped_storage()
            storages[tensor.device.index, storage.data_ptr()] = storage.nbytes()
    found: dict[int, int] = {}
    for (number, _), size in storages.items():
        found[number] = found.get(number, 0) + size
    return found


def _packed(record: Record) -> bytes:
    number, uuid, known = record
    mask, values = 0, []
    for bit, name in enumerate(FIELDS):
        value = known.get(name)
        is_told = isinstance(value, int) and 0 <= value < 1 << 63
        mask |= is_told << bit
        values.append(value if is_told else 0)
    return RECORD.pack(number, mask, uuid, *values)


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _started() -> int:
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def _directory() -> str:
    return os.environ.get("VRAMSCOPE_PROBE_DIRECTORY") or f"/dev/shm/vramscope-{os.geteuid()}"


def _seconds(interval: float | None) -> float:
    """Between 0.1 s and a minute; what is no number above 0 is a second."""
    try:
        seconds = float(os.environ.get("VRAMSCOPE_PROBE_INTERVAL") or 1.0) if interval is None else float(interval)
    except (TypeError, ValueError):
        return 1.0
    return min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS) if seconds > 0 else 1.0


@contextlib.contextmanager
def _folder(path: str) -> Iterator[int]:
    """The directory, made where it is missing: all that is done there is done in this one, whatever its name becomes.

    Raises:
        OSError: it is a link or no directory, others can write there, or it can't be made.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o750)
        handle = os.open(path, flags)
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(errno.EPERM, "can be written by others", path)
        yield handle
    finally:
        os.close(handle)


def _sweep(folder: int) -> None:
    """Take away files of processes that have ended; of another pid namespace only age can tell."""
    ours = str(_namespace())
    for name in os.listdir(folder):
        namespace, _, pid = name.lstrip(".").partition("-")
        if not (namespace.isdigit() and pid.isdigit()):
            continue
        with contextlib.suppress(OSError):
            age = time.time() - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
            if not _lives(int(pid)) if namespace == ours else age > ABANDONED_SECONDS:
                os.unlink(name, dir_fd=folder)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _touched_ns(folder: int) -> int:
    """When a summary of segments was asked for last; 0 if never."""
    try:
        return os.stat(_SEGMENTS, dir_fd=folder, follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return 0


def _replace(folder: int, name: str, content: bytes) -> None:
    """As a whole: who reads has the old one or the new one."""
    new = f".{name}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        handle = os.open(new, flags, 0o640, dir_fd=folder)
    except FileExistsError:  # of a process of that pid that was killed here
        os.unlink(new, dir_fd=folder)
        handle = os.open(new, flags, 0o640, dir_fd=folder)
    try:
        if os.write(handle, content) != len(content):
            raise OSError(errno.ENOSPC, "no room")
        os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise
    finally:
        os.close(handle)


def _forked() -> None:
    """A child has no threads of its parent's, and a lock of its parent's may be held for ever."""
    global _lock, _probe
    with contextlib.suppress(Exception):
        _lock = threading.Lock()
        _told.clear()
        if _probe is not None:
            _probe = _probe.of_child()
            _probe.begin()


def _ended() -> None:
    with contextlib.suppress(Exception):
        if _probe is not None:
            _probe.end()
