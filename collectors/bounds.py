"""What a server can say of itself: figures beyond are not known, whichever of its endpoints they come from.

Readers pass on what they are told, and a product of two possible numbers may be none. So each reading passes here once,
and none leaves with what can't be recorded, added up or divided by.
"""

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from collectors.discovery.command import Value
from collectors.readings import PoolReading, ServerReading

MOST_TOKENS = 1 << 40
"""Tokens, or blocks, of a pool: at a KiB each they are a PiB."""
MOST_BYTES = 1 << 50
MOST_COUNT = 1 << 53
MOST_TEXT = 256
_SIZES = frozenset(
    {
        *("capacity_tokens", "used_tokens", "cached_tokens", "free_tokens", "available_tokens", "reserved_tokens"),
        *("blocks", "used_blocks", "block_size_tokens"),
    }
)

R = TypeVar("R", bound=Struct)


def whole(value: object, *, most: int = MOST_TOKENS) -> int | None:
    """A number of things, of which there is at least one; anything else is not known."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most else None


def bounded(reading: ServerReading) -> ServerReading:
    """The reading without figures that can't be, which a note names."""
    records = (*reading.pools, *reading.replicas, *reading.ranks, *reading.offload, *reading.adapters)
    arguments = {name: value for name, value in reading.arguments.items() if _can_be(name, value)}
    if all(map(_is_usual, records)) and len(arguments) == len(reading.arguments):
        return reading
    beyond = [name for record in records for name in _beyond(record)]
    beyond += reading.arguments.keys() - arguments.keys()
    if not beyond:
        return reading
    return replace(
        reading,
        pools=tuple(map(_without, reading.pools)),
        replicas=tuple(map(_without, reading.replicas)),
        ranks=tuple(map(_without, reading.ranks)),
        offload=tuple(map(_without, reading.offload)),
        adapters=tuple(map(_without, reading.adapters)),
        arguments=arguments,
        notes=(*reading.notes, note_of(beyond)),
    )


def note_of(names: Iterable[str]) -> str:
    """What to say of values that are left out."""
    found = sorted(set(names))
    others = " and others" if len(found) > 4 else ""
    return f"values beyond what can be, which are not shown: {', '.join(found[:4])}{others}"


def _is_usual(record: Struct) -> bool:
    """Below all bounds, as nearly every record is; names are not looked at."""
    for value in astuple(record):
        if isinstance(value, int | float) and not 0 <= value <= MOST_TOKENS:
            return False
    return not isinstance(record, PoolReading) or _room(record) <= MOST_TOKENS


def _beyond(record: Struct) -> set[str]:
    """The fields that can't be. A pool's sizes are made of each other: where one can't be, none is known."""
    values = zip(record.__struct_fields__, astuple(record), strict=True)
    found = {name for name, value in values if isinstance(value, int | float) and not 0 <= value <= _most(record, name)}
    if isinstance(record, PoolReading) and (found & _SIZES or _room(record) > MOST_TOKENS):
        found |= {name for name in _SIZES if getattr(record, name) is not None}
    return found


def _most(record: Struct, name: str) -> int:
    if name.endswith("_bytes"):
        return MOST_BYTES
    return MOST_TOKENS if isinstance(record, PoolReading) else MOST_COUNT


def _room(pool: PoolReading) -> int:
    return (pool.blocks or 0) * (pool.block_size_tokens or 0)


def _without(record: R) -> R:
    return replace(record, **dict.fromkeys(_beyond(record)))


def _can_be(argument: str, value: Value) -> bool:
    if isinstance(value, str):
        return len(value) <= MOST_TEXT
    most = MOST_BYTES if argument.endswith("_bytes") else MOST_TOKENS
    return -most <= value <= most
