"""Copied beside an engine as a plugin of its own: the probe's thread is told CUDA statistics by a PyTorch for CPU.

All other threads go on seeing a torch without CUDA.
"""

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

MIB = 2**20
ACTIVE_BYTES, RESERVED_BYTES, POOL_BYTES, ALLOCATIONS = 700 * MIB, 800 * MIB, 64 * MIB, 29


def apply() -> None:
    """Answer the probe's thread in place of torch.cuda."""
    import torch.cuda  # type: ignore[import-not-found]  # of the engine's environment alone

    answers: dict[str, Callable[..., Any]] = {
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "get_allocator_backend": lambda: "native",
        "get_device_properties": lambda _number: SimpleNamespace(uuid=f"00000000-0000-4000-8000-{os.getpid():012x}"),
        "memory_stats_as_nested_dict": _statistics,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, _to_the_probe(answer, getattr(torch.cuda, name)))


def _to_the_probe(answer: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    def either(*arguments: Any, **options: Any) -> Any:
        is_probe = threading.current_thread().name == "vramscope-probe"
        return answer(*arguments) if is_probe else real(*arguments, **options)

    return either


def _statistics(_number: int) -> dict[str, Any]:
    """Built anew each time, as torch does."""
    sizes = {"allocated": ACTIVE_BYTES, "active": ACTIVE_BYTES, "reserved": RESERVED_BYTES, "requested": ACTIVE_BYTES}
    found: dict[str, Any] = {f"{name}_bytes": _stat(size) for name, size in (sizes | {"inactive_split": MIB}).items()}
    found |= {name: _stat(9) for name in ("allocation", "segment", "active", "inactive_split")}
    found |= {"num_alloc_retries": 0, "num_ooms": 0, "num_device_alloc": ALLOCATIONS, "max_split_size": -1}
    return found | {"reserved_bytes_by_private_pools": {(0, 1): _stat(POOL_BYTES)}}


def _stat(current: int) -> dict[str, dict[str, int]]:
    return {
        pool: {"current": current, "peak": current, "allocated": current, "freed": 0}
        for pool in ("all", "large_pool", "small_pool")
    }
