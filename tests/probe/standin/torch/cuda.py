"""``torch.cuda`` on a host without a GPU. A test sets what the allocator has; ``asked`` is all that was called."""

from __future__ import annotations  # engines still run on Python 3.9

import os
from types import SimpleNamespace
from typing import Any

UUID = "6f1c3d52-8a0b-4c7e-9d21-00aa11bb22cc"
POOLS = ("all", "small_pool", "large_pool")

devices: list[Any] = []
segments: list[dict[str, Any]] = []
backend = "native"
fault: Exception | None = None
has_traces = True
properties: Any = SimpleNamespace(uuid=UUID)
asked: list[str] = []
_initialised_in = 0


def init(*statistics: Any) -> None:
    """As the engine's first use of a device: its allocators have these statistics from now on."""
    global _initialised_in
    devices[:] = statistics
    _initialised_in = os.getpid()


def statistics(
    *,
    version: tuple[int, int] = (2, 13),
    allocated: int = 0,
    active: int = 0,
    reserved: int = 0,
    requested: int = 0,
    split: int = 0,
    peak: int = 0,
    pools: dict[Any, int] | None = None,
    counts: tuple[int, int, int] = (3, 1, 41),
) -> dict[str, Any]:
    """Nested, with the keys of that version of torch. ``peak`` is added to the current values."""
    found: dict[str, Any] = {
        "allocated_bytes": _stat(allocated, peak),
        "active_bytes": _stat(active, peak),
        "reserved_bytes": _stat(reserved, peak),
        "requested_bytes": _stat(requested, peak),
        "inactive_split_bytes": _stat(split, peak),
        "allocation": _stat(7, 3),
        "segment": _stat(2, 1),
        "active": _stat(7, 3),
        "inactive_split": _stat(1, 1),
        "oversize_allocations": _stat(0, 0)["all"],
        "oversize_segments": _stat(0, 0)["all"],
        "max_split_size": -1,
        "num_alloc_retries": counts[0],
        "num_ooms": counts[1],
    }
    if version >= (2, 3):
        found |= {"num_sync_all_streams": 0, "num_device_alloc": counts[2], "num_device_free": 2}
    if version >= (2, 13):
        found["reserved_bytes_by_private_pools"] = {key: _stat(size, 0) for key, size in (pools or {}).items()}
    return found


def is_initialized() -> bool:
    """Not in a child that was forked after."""
    return _initialised_in == os.getpid()


def device_count() -> int:
    _ask("device_count")
    return len(devices)


def get_allocator_backend() -> str:
    _ask("get_allocator_backend")
    return backend


def get_device_properties(_number: int) -> Any:
    _ask("get_device_properties")
    return properties


def memory_stats_as_nested_dict(number: int) -> Any:
    _ask("memory_stats_as_nested_dict")
    if fault is not None:
        raise fault
    return devices[number]


def memory_snapshot(**options: Any) -> list[dict[str, Any]]:
    """Versions before 2.12 do not know ``include_traces``."""
    if options and not has_traces:
        raise TypeError("memory_snapshot() got an unexpected keyword argument")
    _ask("memory_snapshot")
    return segments


def __getattr__(name: str) -> Any:
    """Whatever else torch.cuda has is recorded too."""
    if name.startswith("__"):
        raise AttributeError(name)
    _ask(name)
    return lambda *_: None


def _ask(name: str) -> None:
    asked.append(name if is_initialized() else f"{name} before CUDA was initialised")


def _stat(current: int, more: int) -> dict[str, dict[str, int]]:
    one = {"current": current, "peak": current + more, "allocated": current + more, "freed": more}
    return {pool: dict(one) for pool in POOLS}
