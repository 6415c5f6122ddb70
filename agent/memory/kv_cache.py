"""KV cache of one rank: bytes per token from layer widths and the KV format, layers by pipeline stage.

A layer stores ``heads x (k_dim + v_dim) x bits / 8`` bytes a token, plus two fp32 scales per head in the
per-token-head formats. Heads are split over tensor-parallel ranks and replicated once there are more ranks than heads,
so MLA's one latent vector is on every rank. Source: vLLM 0.33 v1/kv_cache_interface.py, distributed/utils.py.
"""

from msgspec import Struct

from agent.memory.layers import Cache, Heads, Latent
from agent.memory.units import ceil_div

_SCALES_BYTES = 8


class KvFormat(Struct, frozen=True, kw_only=True):
    """Bits of one cached element and the overhead of one head's K and V, bytes."""

    bits: int
    overhead: int = 0


FORMATS: dict[str, KvFormat] = {
    "bfloat16": KvFormat(bits=16),
    "float16": KvFormat(bits=16),
    "float32": KvFormat(bits=32),
    "fp8": KvFormat(bits=8),
    "fp8_e4m3": KvFormat(bits=8),
    "fp8_e5m2": KvFormat(bits=8),
    "int8": KvFormat(bits=8),
    "int8_per_token_head": KvFormat(bits=8, overhead=_SCALES_BYTES),
    "fp8_per_token_head": KvFormat(bits=8, overhead=_SCALES_BYTES),
    "int4_per_token_head": KvFormat(bits=4, overhead=_SCALES_BYTES),
}
ALIASES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "float": "float32", "fp32": "float32"}


class KvGroup(Struct, frozen=True, kw_only=True):
    """Layers that share one block table. ``page_bytes`` is one layer's share of a block."""

    kind: str
    layers: int
    block_size: int
    page_bytes: int
    blocks_per_request: int | None


class KvBudget(Struct, frozen=True, kw_only=True):
    """KV of one rank. Slopes are bytes per further token of one request; None is not known (see ``Budget.unknown``)."""

    bytes_per_token: int | float | None = None
    bytes_per_token_logical: int | float | None = None
    fixed_bytes_per_request: int | None = None
    groups: tuple[KvGroup, ...] = ()
    bytes_per_block: int | None = None
    blocks: int | None = None
    pool_bytes: int | None = None
    pool_tokens: int | None = None
    request_bytes: int | None = None
    max_concurrency: float | None = None


def kv_format(name: str) -> KvFormat | None:
    """A KV format by any of its names; None when its layout is not known here."""
    return FORMATS.get(ALIASES.get(name, name))


def heads_per_rank(heads: int, tp: int) -> int:
    """KV heads one rank keeps: its share, but at least one."""
    return max(1, heads // tp)


def token_bytes(cache: Cache, layout: KvFormat, *, tp: int) -> int:
    """Bytes per token of one layer on one rank."""
    match cache:
        case Heads():
            heads, elements = heads_per_rank(cache.heads, tp), cache.k_dim + cache.v_dim
        case Latent():
            heads, elements = 1, cache.rank + cache.rope
        case _:
            raise NotImplementedError(type(cache).__name__)
    return heads * (ceil_div(elements * layout.bits, 8) + layout.overhead)


def stage_layers(count: int, pp: int) -> tuple[int, ...]:
    """Layers per pipeline stage: the remainder goes one each to the stages before the last, from the back."""
    whole, remainder = divmod(count, pp)
    return tuple(whole + (pp - 1 - remainder <= stage < pp - 1) for stage in range(pp))
