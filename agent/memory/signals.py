"""What a forecast is made from: what one reading tells of one KV pool and of the requests that fill it."""

from typing import Annotated

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""As a file may hold it."""


class PoolSignal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pool at one moment of a monotonic clock. Tokens are of one rank; counters are since the engine's start.

    ``used_ratio`` is None while there is no pool (the engine sleeps) or its use is not told. ``shortages``: requests
    that were preempted, retracted or refused for want of KV. ``prompt_tokens`` and ``generation_tokens`` count as they
    are computed, ``finished_*`` those of ``finished`` requests when they end. ``prompt_hits``: prompt tokens found in
    the prefix cache. ``lengths``: tokens of each running sequence.
    """

    at: float
    used_ratio: float | None = None
    capacity_tokens: Count | None = None
    running: Count | None = None
    waiting: Count | None = None
    shortages: Count | None = None
    prompt_tokens: Count | None = None
    prompt_hits: Count | None = None
    generation_tokens: Count | None = None
    finished: Count | None = None
    finished_prompt_tokens: Count | None = None
    finished_generation_tokens: Count | None = None
    lengths: tuple[Count, ...] | None = None


class PoolFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What does not change while an engine runs. ``max_sequences``: the most that it runs at once, None: not known."""

    engine: str
    kind: str = "full"
    max_sequences: Count | None = None
    max_model_len: Count | None = None
