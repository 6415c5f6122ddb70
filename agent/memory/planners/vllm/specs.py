"""What vLLM allocates for each cache of a layer: a page of so many tokens, and how many of them one request may hold.

    attention     page = block size x bytes of a token; ceil(tokens / block) blocks
    window w      ceil(min(w - 1 + in flight, tokens) / block) + 1: it may begin anywhere in a block
    chunk c       ceil(min(c + in flight, tokens) / block)
    encoder       ceil(encoder tokens / block)
    state         1 + speculated tokens; with prefix caching 2, and 1 more where prefill leaves checkpoints

``in flight`` are the tokens of all batches under way, whose blocks are not given back yet. Decode context parallelism
splits the tokens of full attention over ranks. Where layers with attention and with states are mixed, the attention's
block is made so large that its page holds a state, and the state's page is padded to it.

Source: vLLM 0.33 v1/kv_cache_interface.py, platforms/interface.py (_align_hybrid_block_size), models/deepseek_v4.
"""

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.kv_cache import Layouts, entry_bytes, tokens_per_entry
from agent.memory.layers import Cache, Compressor, Heads, IndexKeys, Latent, Layer, Record, State
from agent.memory.units import ceil_div

KERNEL_BLOCK = 16
_LATENT_BLOCK = 128  # of a model that also keeps states
_WINDOW_RECORDS_BLOCK = 64
_COMPRESSOR_BLOCKS = {4: 4, 128: 8}
_RING_BLOCK = 8


class PagingError(ValueError):
    """vLLM would not start: caches that can't be put into pages of one pool; one sentence."""


class Load(Struct, frozen=True, kw_only=True):
    """What decides how much one request holds."""

    max_model_len: int
    in_flight: int
    dcp: int = 1
    speculated: int = 0
    aligned: bool = False  # states are kept at block boundaries, for prefix caching


class Spec(Struct, frozen=True, kw_only=True, dict=True):
    """One cache of one layer. Specs that are equal share a group.

    Attributes:
        entry_bytes: of a token, of ``ratio`` tokens, or of a state.
        alignment: of a page, bytes.
        padded_bytes: of a page that is larger than it need be; it does not grow with the block.
        sharded: its tokens are split by decode context parallelism.
    """

    kind: str
    cache: Cache
    block_size: int
    entry_bytes: int
    ratio: int = 1
    alignment: int = 1
    padded_bytes: int | None = None
    sharded: bool = False

    @cached_property
    def page_bytes(self) -> int:
        return self.padded_bytes or ceil_div(self.filled_bytes, self.alignment) * self.alignment

    @property
    def filled_bytes(self) -> int:
        """Of a page, what is not padding."""
        return self.entry_bytes if self.kind == "state" else self.entry_bytes * (self.block_size // self.ratio)

    @cached_property
    def type(self) -> tuple[object, ...]:
        """Layers of one type and block size need the same blocks of a request, whatever their pages."""
        match self.cache:
            case Heads(reach="window" | "chunk", tokens=tokens):
                return (self.kind, tokens)
            case Record(window=int(tokens)) | Compressor(window=tokens) if self.kind != "ring":
                return ("window of records", tokens)
            case State():
                return (self.kind, self.page_bytes)
            case Heads(reach="encoder"):
                return (self.kind,)
        return ("ring",) if self.kind == "ring" else ("full",)

    @cached_property
    def grows(self) -> bool:
        """Whether each further token of a request needs more of it."""
        return self.type == ("full",)


def blocks_per_request(spec: Spec, load: Load) -> int:
    """The most blocks one request may hold of a group with this spec."""
    size, tokens = spec.block_size, load.max_model_len
    match spec.cache:
        case State() as state:
            checkpoint = state.kind == "mamba2"
            return load.speculated + (2 + checkpoint if load.aligned else 1)
        case Heads(reach="encoder", tokens=int(kept)):
            return ceil_div(kept, size)
        case Heads(reach="chunk", tokens=int(kept)):
            return ceil_div(min(kept + load.in_flight, tokens), size)
    window = window_tokens(spec.cache)
    if spec.kind == "ring":
        return 1
    if window is not None:
        return ceil_div(min(window - 1 + load.in_flight, tokens), size) + 1
    return ceil_div(ceil_div(tokens, load.dcp) if spec.sharded else tokens, size)


def layer_specs(layers: Sequence[Layer], layouts: Layouts, *, tp: int, block_size: int, load: Load) -> list[list[Spec]]:
    """The specs of each layer. ``block_size`` is that of attention, before states make it larger.

    Raises:
        PagingError: a block that does not hold whole entries.
    """
    caches = list(dict.fromkeys(cache for kinds in dict.fromkeys(layer.caches for layer in layers) for cache in kinds))
    size = hybrid_block_size(caches, layouts, tp=tp, block_size=block_size)
    ratio = max((tokens_per_entry(cache) for cache in caches), default=1)
    if size % ratio:
        raise PagingError(f"vLLM refuses block_size {size}: the model keeps an entry for each {ratio} tokens")
    packed = any(isinstance(cache, Record) for cache in caches)
    alignment = record_alignment(layouts) if packed else 1
    page = size * _attention_bytes(caches, layouts, tp=tp)
    state_block = size if load.aligned else load.max_model_len

    def spec(cache: Cache) -> Spec:
        entry = entry_bytes(cache, layouts, tp=tp)
        if isinstance(cache, State):
            return Spec(kind="state", cache=cache, block_size=state_block, entry_bytes=entry, padded_bytes=page or None)
        return Spec(
            kind=_kind(cache),
            cache=cache,
            block_size=_block_size(cache, size),
            entry_bytes=entry,
            ratio=tokens_per_entry(cache),
            alignment=alignment if _kind(cache) != "ring" else 1,
            sharded=window_tokens(cache) is None and getattr(cache, "reach", "full") == "full",
        )

    specs = {cache: spec(cache) for cache in caches}
    return [[specs[cache] for cache in layer.caches] for layer in layers]


def hybrid_block_size(caches: Sequence[Cache], layouts: Layouts, *, tp: int, block_size: int) -> int:
    """The attention's block: as asked, or so large that its page holds a state."""
    states = [entry_bytes(cache, layouts, tp=tp) for cache in caches if isinstance(cache, State)]
    token = _attention_bytes(caches, layouts, tp=tp)
    if not states or not token:
        return block_size
    least = _LATENT_BLOCK if any(isinstance(cache, Latent) for cache in caches) else KERNEL_BLOCK
    step = max(least, block_size)
    return step * ceil_div(max(states), step * token)


def record_alignment(layouts: Layouts) -> int:
    """Pages of compressed attention: whole strides of the kernel that reads them."""
    apart = layouts.kv.record is not None and layouts.kv.record.rope.bytes == 2
    return 576 if apart else 512


def with_block(spec: Spec, block_size: int) -> Spec:
    return replace(spec, block_size=block_size)


def padded(spec: Spec, page_bytes: int) -> Spec:
    return replace(spec, padded_bytes=page_bytes)


def as_full(spec: Spec, block_size: int) -> Spec:
    """A window or chunk held like full attention."""
    if not isinstance(spec.cache, Heads) or spec.cache.reach not in ("window", "chunk"):
        return spec
    cache = replace(spec.cache, reach="full", tokens=None)
    return replace(spec, kind="full", cache=cache, block_size=block_size, sharded=True)


def _attention_bytes(caches: Sequence[Cache], layouts: Layouts, *, tp: int) -> int:
    """Bytes of a token in the widest attention layer."""
    sizes = (entry_bytes(cache, layouts, tp=tp) for cache in caches if isinstance(cache, Heads | Latent))
    return max(sizes, default=0)


def _kind(cache: Cache) -> str:
    match cache:
        case Heads(reach="encoder"):
            return "cross"
        case Heads():
            return cache.reach
        case Compressor() if cache.ratio not in _COMPRESSOR_BLOCKS:
            return "ring"
        case IndexKeys():
            return "index"
        case State():
            return "state"
    return "window" if window_tokens(cache) else "mla"


def window_tokens(cache: Cache) -> int | None:
    """The last tokens that a cache is kept of; None where it is kept of others."""
    match cache:
        case Heads(reach="window"):
            return cache.tokens
        case Record() | Compressor():
            return cache.window
    return None


def _block_size(cache: Cache, attention: int) -> int:
    match cache:
        case Record(window=int()):
            return _WINDOW_RECORDS_BLOCK
        case Compressor():
            return _COMPRESSOR_BLOCKS.get(cache.ratio, _RING_BLOCK)
    return attention
