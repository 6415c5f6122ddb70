"""KV cache of one rank: bytes of what each layer keeps, and layers by pipeline stage.

A head stores a K and a V of each token (``kv_formats``). Heads are split over tensor-parallel ranks and replicated once
there are more ranks than heads; MLA's latent, index keys and records of compressed attention are one vector for all
heads and so on every rank; a recurrent state is split by heads, channels and groups. The format of the weights decides
nothing. Source: vLLM 0.33 v1/kv_cache_interface.py, model_executor/layers/mamba/mamba_utils.py, distributed/utils.py.
"""

from collections.abc import Iterable
from fractions import Fraction

from msgspec import Struct

from agent.memory.kv_formats import FP8_INDEX, STATE_BYTES, KvFormat, Packed, Side
from agent.memory.layers import Cache, Compressor, Heads, IndexKeys, Latent, Layer, Record, State
from agent.memory.units import ceil_div

COMPRESSOR_BYTES = 4


class KvGroup(Struct, frozen=True, kw_only=True):
    """Layers that share one block table. ``page_bytes`` is one layer's share of a block, or the group's where the
    layers of it have pages of different sizes."""

    kind: str
    layers: int
    block_size: int
    page_bytes: int
    blocks_per_request: int | None


class KvBudget(Struct, frozen=True, kw_only=True):
    """KV of one rank. Slopes are bytes per further token of one request; None is not known (see ``Budget.unknown``).

    ``unusable_bytes`` of the pool are never a request's. ``bytes_per_token_bounds``: least and most, in 16 bit, of an
    architecture that is not known. ``apart_block_bytes``: of a block of each pool that an engine fills beside the full
    one, by its kind; ``apart_bytes``: of caches that it allocates whole beside ``blocks`` of the full one.
    """

    bytes_per_token: int | float | None = None
    bytes_per_token_bounds: tuple[int, int] | None = None
    bytes_per_token_logical: int | float | None = None
    fixed_bytes_per_request: int | None = None
    groups: tuple[KvGroup, ...] = ()
    bytes_per_block: int | None = None
    blocks: int | None = None
    pool_bytes: int | None = None
    pool_tokens: int | None = None
    request_bytes: int | None = None
    max_concurrency: float | None = None
    state_bytes: int | None = None  # of recurrent states, where an engine allocates them beside the pool
    unusable_bytes: int = 0
    apart_block_bytes: dict[str, int] = {}
    apart_bytes: int = 0

    @property
    def short(self) -> bool:
        """Whether the pool is known not to hold one request of full length."""
        if self.pool_bytes is None or self.request_bytes is None:
            return False
        return self.pool_bytes + (self.state_bytes or 0) - self.unusable_bytes < self.request_bytes


class Layouts(Struct, frozen=True, kw_only=True):
    """How a rank stores its caches.

    Attributes:
        index: of packed index keys.
        index_bytes: of an element of plain index keys.
        dtype: the model's: of recurrent states that have none of their own.
        conv_dtype: of all convolution states, whatever their own; ``state_dtype`` likewise of recurrent ones.
        columns: more of a convolution's state than its own: one for each speculated token.
    """

    kv: KvFormat
    index: Side = FP8_INDEX
    index_bytes: int = 2
    dtype: str = "bfloat16"
    conv_dtype: str | None = None
    state_dtype: str | None = None
    columns: int = 0


class Held(Struct, frozen=True, kw_only=True):
    """What layers keep of a request on one rank: bytes for each further token, and bytes however long it gets.

    ``fixed`` holds windows, chunks and encoder outputs once they are full, and recurrent states.
    """

    per_token: Fraction
    fixed: int

    @property
    def slope(self) -> int | float:
        """``per_token`` as a number that is whole where it can be."""
        return self.per_token.numerator if self.per_token.denominator == 1 else float(self.per_token)


def heads_per_rank(heads: int, tp: int) -> int:
    """KV heads one rank keeps: its share, but at least one."""
    return max(1, heads // tp)


def entry_bytes(cache: Cache, layouts: Layouts, *, tp: int) -> int:
    """Bytes of one entry of one layer on one rank: of a token, of ``ratio`` tokens, or of a whole state."""
    match cache:
        case Heads():
            return heads_per_rank(cache.heads, tp) * _head_bytes(cache, layouts.kv)
        case Latent():
            return _vector_bytes(cache.rank, cache.rope, layouts.kv, layouts.kv.latent)
        case Record():
            return _vector_bytes(cache.dim - cache.rope, cache.rope, layouts.kv, record_layout(cache, layouts.kv))
        case IndexKeys():
            return layouts.index.of(cache.dim) if cache.packed else cache.dim * layouts.index_bytes
        case Compressor():
            return cache.elements * COMPRESSOR_BYTES
        case State():
            return _state_bytes(cache, layouts, tp)


def token_bytes(cache: Cache, layout: KvFormat, *, tp: int) -> int:
    """Bytes per token of one layer on one rank."""
    return entry_bytes(cache, Layouts(kv=layout), tp=tp)


def held(layers: Iterable[Layer], layouts: Layouts, *, tp: int) -> Held:
    """What layers keep of a request, before an engine rounds it up to its blocks."""
    per_token, fixed = Fraction(0), 0
    for cache in (cache for layer in layers for cache in layer.caches):
        size = entry_bytes(cache, layouts, tp=tp)
        kept = kept_entries(cache)
        if kept is None:
            per_token += Fraction(size, tokens_per_entry(cache))
        else:
            fixed += size * kept
    return Held(per_token=per_token, fixed=fixed)


def tokens_per_entry(cache: Cache) -> int:
    """Tokens that one entry stands for."""
    return cache.ratio if isinstance(cache, IndexKeys | Record) else 1


def kept_entries(cache: Cache) -> int | None:
    """Entries kept at most, however long a request gets; None where it keeps all."""
    match cache:
        case Heads():
            return cache.tokens if cache.reach != "full" else None
        case Record() | Compressor():
            return cache.window
        case State():
            return 1
        case _:
            return None


def record_layout(record: Record, layout: KvFormat) -> Packed | None:
    """A record's own layout; None where it is a plain vector."""
    return layout.window if record.window and layout.window else layout.record


def state_groups(state: State, tp: int) -> int:
    """Groups that ranks can't share evenly are replicated for the heads of each rank."""
    return state.groups if state.groups % tp == 0 else tp


def state_columns(state: State, layouts: Layouts) -> int:
    """Columns of a convolution's state: of the kinds that can speculate, one more for each speculated token."""
    return state.conv_width + (layouts.columns if state.conv_width and state.kind != "mamba1" else 0)


def stage_layers(count: int, pp: int) -> tuple[int, ...]:
    """Layers per pipeline stage: the remainder goes one each to the stages before the last, from the back."""
    whole, remainder = divmod(count, pp)
    return tuple(whole + (pp - 1 - remainder <= stage < pp - 1) for stage in range(pp))


def _head_bytes(cache: Heads, layout: KvFormat) -> int:
    size = layout.k.of(cache.k_dim) + (layout.v.of(cache.v_dim) if cache.v_dim else 0)
    return ceil_div(size, layout.multiple) * layout.multiple


def _vector_bytes(nope: int, rope: int, layout: KvFormat, packed: Packed | None) -> int:
    """One vector; without a layout of its own it is a K with the scales of a V."""
    return packed.of(nope, rope) if packed else layout.k.of(nope + rope) + layout.v.extra


def _state_bytes(state: State, layouts: Layouts, tp: int) -> int:
    channels = ceil_div(state.conv_channels + state_groups(state, tp) * state.group_channels, tp)
    conv = STATE_BYTES[layouts.conv_dtype or state.conv_dtype or layouts.dtype]
    recurrent = STATE_BYTES[layouts.state_dtype or state.state_dtype or layouts.dtype]
    heads = ceil_div(state.heads, tp) * state.head_elements
    return channels * state_columns(state, layouts) * conv + heads * recurrent
