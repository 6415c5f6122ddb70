"""What the slots of a llama.cpp server hold of its cache, and what they show of a cache that ran full.

    used   = tokens of slots that work on a request
    cached = tokens that idle slots keep of their last one, for its prefix
    free   = capacity - used - cached

In a unified cache all slots share the cells that each of them may fill: the capacity is that of one slot. Otherwise
each has cells of its own. Which of both it is the server does not say: by its flags it is unified where
``--kv-unified`` is given, or no number of slots. A slot counts a token before it has a cell for it, so all together
may count one more each than there are cells. When a unified cache is full, all running requests fail ("Context size has
been exceeded") and their slots are emptied. Source: ggml-org/llama.cpp ``tools/server/server-context.cpp``, b11549.
"""

from collections.abc import Mapping, Sequence

from collectors.discovery.command import Value
from collectors.llama_cpp.answers import Slot
from collectors.readings import PoolReading

Flags = Mapping[str, Value]


def is_unified(flags: Flags | None) -> bool | None:
    """Whether all slots share one cache; None where the flags are not known."""
    if flags is None:
        return None
    given = flags.get("kv-unified")
    slots = flags.get("parallel")
    return given if isinstance(given, bool) else not (isinstance(slots, int) and slots > 0)


def pool_of(slots: Sequence[Slot], *, unified: bool | None) -> PoolReading | None:
    """The cache of all slots; parts that are not known are left out."""
    contexts = [slot.n_ctx for slot in slots if slot.n_ctx]
    if not contexts or len(contexts) != len(slots):
        return None
    used, cached = (_held(slots, is_processing=busy) for busy in (True, False))
    is_split = unified is None and (used or 0) + (cached or 0) > max(contexts) + len(slots)
    if len(slots) == 1 or unified is False or is_split:
        capacity: int | None = sum(contexts)
    else:
        capacity = max(contexts) if unified else None
    if capacity is not None:
        used = None if used is None else min(used, capacity)
        cached = None if cached is None else min(cached, capacity - (used or 0))
    free = max(0, capacity - used - cached) if None not in (capacity, used, cached) else None  # type: ignore[operator]
    return PoolReading(
        replica="0",
        used_ratio=used / capacity if capacity and used is not None else None,
        capacity_tokens=capacity,
        used_tokens=used,
        cached_tokens=cached,
        free_tokens=free,
        blocks=capacity,
        used_blocks=used,
        block_size_tokens=1,
    )


def refused(before: Sequence[Slot], now: Sequence[Slot]) -> int:
    """Requests that ended between two looks because the cache was full: at least so many.

    All requests of the first look have ended, and a slot of one of them is idle and empty: one that completes keeps
    its tokens. Not seen where waiting requests have taken every slot by then.
    """
    pairs = [(old, new) for old, new in zip(before, now, strict=False) if old.is_processing]
    ended = [new for old, new in pairs if not new.is_processing or new.id_task != old.id_task]
    emptied = [
        new for old, new in pairs if not new.is_processing and new.id_task == old.id_task and new.n_prompt_tokens == 0
    ]
    return len(pairs) if emptied and len(ended) == len(pairs) else 0


def sequences(slots: Sequence[Slot]) -> tuple[int, ...] | None:
    """Tokens of each request that is worked on; None where a busy slot does not tell."""
    held = [slot.held for slot in slots if slot.is_processing]
    return None if None in held else tuple(count for count in held if count is not None)


def _held(slots: Sequence[Slot], *, is_processing: bool) -> int | None:
    held = [slot.held for slot in slots if slot.is_processing == is_processing]
    return sum(count for count in held if count is not None) if None not in held else None
