"""What an engine tells, in words for the table of engines, and which of it a reading holds."""

from collections.abc import Callable
from typing import Literal

from collectors.readings import ServerReading

Told = Literal[
    "capacity",
    "used",
    "cached",
    "reserved",
    "requests",
    "preemptions",
    "tokens",
    "prefix hits",
    "first token",
    "KV elsewhere",
    "adapters",
]

TOLD: dict[Told, Callable[[ServerReading], bool]] = {
    "capacity": lambda reading: any(pool.capacity_tokens is not None for pool in reading.pools),
    "used": lambda reading: any(pool.used_ratio is not None for pool in reading.pools),
    "cached": lambda reading: any(pool.cached_tokens is not None for pool in reading.pools),
    "reserved": lambda reading: any(pool.reserved_tokens is not None for pool in reading.pools),
    "requests": lambda reading: any(one.running_requests is not None for one in reading.replicas),
    "preemptions": lambda reading: any(one.preemptions is not None for one in reading.replicas),
    "tokens": lambda reading: any(one.generation_tokens is not None for one in reading.replicas),
    "prefix hits": lambda reading: any(one.prefix_hit_tokens is not None for one in reading.replicas),
    "first token": lambda reading: any(one.first_tokens is not None for one in reading.replicas),
    "KV elsewhere": lambda reading: bool(reading.offload),
    "adapters": lambda reading: bool(reading.adapters),
}


def told(reading: ServerReading) -> frozenset[Told]:
    """What of the list a reading holds."""
    return frozenset(name for name, holds in TOLD.items() if holds(reading))
