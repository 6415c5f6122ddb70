"""The caches of one llama.cpp server: allocated whole at its start, so its memory does not grow with requests.

    full cache   = streams x context of a slot x (K + V) of each layer
    index cache  = streams x context of a slot x index key of each layer that has an indexer, in the type of K
    window cache = streams x min(context, window x (slots if unified else 1) + ubatch), padded to 256, likewise
    states       = slots x (convolution + recurrent state) in fp32

Source: llama.cpp b11549 src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from agent.memory.kv_cache import KvBudget, KvGroup, Layouts, entry_bytes
from agent.memory.layers import Cache, Heads, IndexKeys, Latent, Layer, State
from agent.memory.model_config import Decoder
from agent.memory.planners.llama_cpp.settings import Settings, padded
from agent.memory.planners.planner import Stage
from agent.memory.runtime import CONTEXT, RuntimeBudget
from agent.memory.units import MIB, Range, ceil_div

_FLOAT_BYTES, _MASK_BYTES = 4, 2


class Cells(Struct, frozen=True, kw_only=True):
    """Layers of one device whose cache has so many ``cells`` in each stream. ``sizes``: bytes of a cell, by layer."""

    kind: str
    cells: int
    sizes: tuple[int, ...]

    @property
    def cell_bytes(self) -> int:
        return sum(self.sizes)


def plan(stages: Sequence[Stage], settings: Settings, *, cuda_bytes: int | None) -> list[KvBudget]:
    """The caches of each device; nothing depends on its memory."""
    return [_budget(stage.layers, settings) for stage in stages]


def caches(layers: Sequence[Layer], settings: Settings) -> dict[str, Cells]:
    """The full caches and index keys, those of windows, and the recurrent states (one cell for each slot)."""
    window = max((_window(cache, settings) for cache in _all(layers)), default=0)
    cells = {"full": settings.cells, "index": settings.cells, "window": window_cells(window, settings), "state": 1}
    return {
        name: Cells(
            kind="mla" if name == "full" and any(isinstance(cache, Latent) for cache in _all(layers)) else name,
            cells=count,
            sizes=tuple(_cell(cache, settings) for cache in _all(layers) if _place(cache, settings) == name),
        )
        for name, count in cells.items()
    }


def window_cells(window: int, settings: Settings) -> int:
    """Cells of a stream for layers that keep the last ``window`` tokens."""
    if settings.swa_full:
        return settings.max_model_len
    sequences = settings.slots if settings.streams == 1 else 1
    return padded(min(settings.max_model_len, window * sequences + settings.ubatch))


def runtime(decoder: Decoder, layers: tuple[Layer, ...], settings: Settings) -> RuntimeBudget:
    """Buffers of the largest batch: a mask over all cells, and activations in fp32."""
    found = caches(layers, settings)
    cells = sum(found[name].cells for name in ("full", "index", "window") if found[name].sizes)
    mask = settings.ubatch * cells * _MASK_BYTES
    channels = max((cache.conv_channels for cache in _all(layers) if isinstance(cache, State)), default=0)
    step = settings.ubatch * (4 * decoder.hidden + 2 * decoder.intermediate + 5 * channels) * _FLOAT_BYTES
    logits = settings.ubatch * decoder.vocabulary * _FLOAT_BYTES
    heads = settings.ubatch * decoder.heads * (decoder.mla.kv_rank + decoder.mla.rope) if decoder.mla else 0
    return RuntimeBudget(
        activations=Range(
            low=(mask + step) // 2,
            likely=mask + step + 2 * heads * _FLOAT_BYTES,
            high=2 * (mask + step) + logits + 4 * heads * _FLOAT_BYTES,
            source=(
                f"compute buffer: {settings.ubatch:,} tokens x ({cells:,} cells x 2 B mask + (4 x {decoder.hidden:,} + "
                f"2 x {decoder.intermediate:,} + 5 x {channels:,}) x 4 B), a fit; high: twice, and logits"
            ),
        ),
        cuda_graphs=Range(low=0, likely=0, high=64 * MIB, source="graphs of single steps; no size is published"),
        non_torch=Range(low=0, likely=64 * MIB, high=512 * MIB, source="cuBLAS and pools; no size is published"),
        context=CONTEXT,
    )


def _budget(layers: Sequence[Layer], settings: Settings) -> KvBudget:
    found = caches(layers, settings)
    window, state = found["window"], found["state"]
    cell = found["full"].cell_bytes + found["index"].cell_bytes
    own_window = ceil_div(settings.streams * window.cells, settings.slots)
    fixed = own_window * window.cell_bytes + state.cell_bytes
    return KvBudget(
        bytes_per_token=cell,
        bytes_per_token_logical=cell,
        fixed_bytes_per_request=fixed,
        groups=tuple(_groups(found.values())),
        bytes_per_block=cell,
        blocks=settings.streams * settings.cells,
        pool_bytes=settings.streams * (settings.cells * cell + window.cells * window.cell_bytes),
        pool_tokens=settings.streams * settings.max_model_len,
        request_bytes=settings.max_model_len * cell + fixed,
        max_concurrency=float(settings.streams),
        state_bytes=settings.slots * state.cell_bytes,
        apart_bytes=settings.streams * window.cells * window.cell_bytes + settings.slots * state.cell_bytes,
    )


def _groups(kinds: Iterable[Cells]) -> Iterator[KvGroup]:
    for cache in kinds:
        if cache.sizes:
            same = len(set(cache.sizes)) == 1
            yield KvGroup(
                kind=cache.kind,
                layers=len(cache.sizes),
                block_size=1,
                page_bytes=cache.sizes[0] if same else cache.cell_bytes,
                blocks_per_request=cache.cells,
            )


def _all(layers: Sequence[Layer]) -> Iterator[Cache]:
    return (cache for layer in layers for cache in layer.caches)


def _place(cache: Cache, settings: Settings) -> str:
    """Which cache of the engine a layer's is a part of."""
    match cache:
        case State():
            return "state"
        case IndexKeys():
            return "index"
        case _:
            return "window" if _window(cache, settings) else "full"


def _window(cache: Cache, settings: Settings) -> int:
    """The tokens that a layer keeps; 0 where it keeps all."""
    if isinstance(cache, Heads) and cache.reach in ("window", "chunk") and settings.windows:
        return cache.tokens or 0
    return 0


def _cell(cache: Cache, settings: Settings) -> int:
    """Bytes of one token, or of one state."""
    layouts = Layouts(kv=settings.kv, index=settings.kv.k, conv_dtype="float32", state_dtype="float32")
    size = entry_bytes(cache, layouts, tp=1)
    if isinstance(cache, Latent) and settings.rules.latent_values:
        size += settings.kv.v.of(cache.rank)
    return size
