"""The pools of one SGLang rank.

    available = free before the weights x mem_fraction_static - weights
    states    = slots + 1 of available x ratio / (1 + ratio); the rest is for KV
    tokens    = KV bytes // (full layers' bytes a token + window ratio x window layers'), whole pages
    pool      = (tokens + one page) x bytes a token, of full and window layers alike

Source: SGLang 0.5.23 srt/mem_cache/kv_cache_configurator.py, memory_pool.py, srt/model_executor/pool_configurator.py.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.kv_cache import KvBudget, KvGroup, entry_bytes
from agent.memory.layers import Cache, Heads, IndexKeys, Latent, Layer, State
from agent.memory.model_config import Decoder
from agent.memory.planners.planner import Stage
from agent.memory.planners.sglang.settings import Settings
from agent.memory.runtime import COMMUNICATION, CONTEXT, Load, RuntimeBudget, estimate
from agent.memory.units import ceil_div


class Cells(Struct, frozen=True, kw_only=True):
    """Bytes of a stage's layers on one rank: of a token in full and in window pools, and of a request's state.

    ``index_bytes`` is the part of ``full_bytes`` that lies in pages of its own.
    """

    kind: str
    full: tuple[int, ...]
    window: tuple[int, ...]
    state: tuple[int, ...]
    index_bytes: int = 0
    window_tokens: int = 0

    @property
    def full_bytes(self) -> int:
        return sum(self.full) + self.index_bytes

    @property
    def window_bytes(self) -> int:
        return sum(self.window)

    @property
    def state_bytes(self) -> int:
        return sum(self.state)


class Sizes(Struct, frozen=True, kw_only=True):
    """Tokens of the full and the window pool, and slots for states without the spare one."""

    full: int
    window: int
    slots: int


def plan(stages: Sequence[Stage], settings: Settings, *, cuda_bytes: int | None) -> list[KvBudget]:
    """The pools of each stage's rank; the stage with the fewest tokens decides for all."""
    cells = [stage_cells(stage.layers, settings) for stage in stages]
    sizes = [
        pool_sizes(available_bytes(stage, settings, cuda_bytes), cell, settings)
        for stage, cell in zip(stages, cells, strict=True)
    ]
    known = [size for size in sizes if size is not None]
    fewest = min(known, key=lambda size: size.full or size.window) if len(known) == len(sizes) else None
    return [_budget(cell, fewest, settings) for cell in cells]


def stage_cells(layers: Sequence[Layer], settings: Settings) -> Cells:
    """What a stage's layers keep, by the pool they lie in."""
    caches = [cache for layer in layers for cache in layer.caches]
    index = [cache for cache in caches if isinstance(cache, IndexKeys)]
    windows = [cache for cache in caches if _windowed(cache, settings)]
    full = [c for c in caches if isinstance(c, Heads | Latent) and not _windowed(c, settings)]
    return Cells(
        kind="mla" if any(isinstance(cache, Latent) for cache in caches) else "full",
        full=tuple(_entry(cache, settings) for cache in full),
        window=tuple(_entry(cache, settings) for cache in windows),
        state=tuple(_entry(cache, settings) for cache in caches if isinstance(cache, State)),
        index_bytes=sum(_entry(cache, settings) for cache in index),
        window_tokens=max((cache.tokens or 0 for cache in windows if isinstance(cache, Heads)), default=0),
    )


def available_bytes(stage: Stage, settings: Settings, cuda_bytes: int | None) -> int | None:
    """Bytes for all pools of a rank; the arithmetic is skipped where they are given."""
    if settings.kv_pool_bytes is not None:
        return settings.kv_pool_bytes
    if cuda_bytes is None or stage.weights_bytes is None or settings.mem_fraction_static is None:
        return None
    return int(free_bytes(cuda_bytes, settings) * settings.mem_fraction_static) - stage.weights_bytes


def free_bytes(cuda_bytes: int, settings: Settings) -> int:
    """What is likely free before the weights are loaded: the context and NCCL's buffers are there already."""
    ranks = settings.tp * settings.pp
    return cuda_bytes - CONTEXT.likely - (COMMUNICATION.likely if ranks > 1 else 0)


def pool_sizes(available: int | None, cells: Cells, settings: Settings) -> Sizes | None:
    """Tokens and slots for so many bytes, or as they are limited; None where neither is known."""
    slots = 0
    if available is not None and cells.state:
        slots = _state_slots(available, cells, settings)
        available -= (slots + 1) * cells.state_bytes
    elif cells.state and settings.requests and settings.state_slots == 1:
        slots = settings.requests
    limits = [
        tokens for tokens in (_fitting(available, cells, settings), settings.max_total_tokens) if tokens is not None
    ]
    if not limits:
        return None
    tokens = _pages(min(limits), settings)
    if not cells.full_bytes and cells.window:
        return Sizes(full=0, window=tokens, slots=slots)
    return Sizes(full=tokens, window=_pages(int(tokens * settings.window_ratio), settings), slots=slots)


def runtime(decoder: Decoder, layers: tuple[Layer, ...], settings: Settings) -> RuntimeBudget:
    """All of it lies outside the share for weights and pools."""
    load = Load(
        batched_tokens=settings.chunk,
        sequences=settings.sequences,
        max_model_len=settings.max_model_len,
        block_size=settings.page_size,
    )
    return estimate(
        decoder,
        layers,
        load,
        tp=settings.attention_tp,
        ranks=settings.tp * settings.pp,
        expert_ranks=settings.tp,
        eager=settings.enforce_eager,
        outside=("activations", "cuda_graphs", "non_torch", "context"),
    )


def _state_slots(available: int, cells: Cells, settings: Settings) -> int:
    if settings.state_slots == 1 and settings.requests:
        return settings.requests
    share = available * settings.state_ratio / (1 + settings.state_ratio)
    return max(0, int((share - cells.state_bytes) // cells.state_bytes))


def _fitting(available: int | None, cells: Cells, settings: Settings) -> int | None:
    """Tokens of the full pool (of the window pool, where there is no other) that so many bytes hold."""
    if available is None:
        return None
    if cells.full_bytes:
        cell = cells.full_bytes + (settings.window_ratio * cells.window_bytes if cells.window else 0)
    else:
        cell = cells.window_bytes
    return int(max(0, available) // cell) if cell else settings.max_model_len


def _pages(tokens: int, settings: Settings) -> int:
    return tokens // settings.page_size * settings.page_size


def _budget(cells: Cells, sizes: Sizes | None, settings: Settings) -> KvBudget:
    page = settings.page_size
    fixed = cells.window_bytes * _window_request(cells, settings) + cells.state_bytes * settings.state_slots
    pages = ceil_div(settings.max_model_len, page)
    budget = KvBudget(
        bytes_per_token=cells.full_bytes,
        bytes_per_token_logical=cells.full_bytes,
        fixed_bytes_per_request=fixed,
        groups=tuple(_groups(cells, settings)),
        bytes_per_block=cells.full_bytes * page,
        request_bytes=pages * page * cells.full_bytes + fixed,
        apart_block_bytes={
            kind: size for kind, size in (("window", cells.window_bytes * page), ("state", cells.state_bytes)) if size
        },
    )
    return budget if sizes is None else _with_pool(budget, cells, sizes, settings)


def _with_pool(budget: KvBudget, cells: Cells, sizes: Sizes, settings: Settings) -> KvBudget:
    page = settings.page_size
    index_pages = (sizes.full + page + 1) // page
    pool = (sizes.full + page) * sum(cells.full) + index_pages * page * cells.index_bytes
    if cells.window:
        pool += (sizes.window + page) * cells.window_bytes
    return replace(
        budget,
        blocks=(sizes.full or sizes.window) // page,
        pool_bytes=pool,
        pool_tokens=sizes.full or sizes.window,
        max_concurrency=min(_concurrency(cells, sizes, settings), default=None),
        state_bytes=(sizes.slots + 1) * cells.state_bytes if cells.state else None,
        apart_block_bytes=budget.apart_block_bytes,
    )


def _concurrency(cells: Cells, sizes: Sizes, settings: Settings) -> Iterator[float]:
    """Requests of full length at a time, by each pool."""
    if cells.full:
        yield sizes.full / settings.max_model_len
    if cells.window:
        yield sizes.window / _window_request(cells, settings)
    if cells.state:
        yield float(sizes.slots // settings.state_slots)


def _window_request(cells: Cells, settings: Settings) -> int:
    """Tokens of the window pool that one request holds."""
    return min(settings.max_model_len, cells.window_tokens + settings.page_size)


def _groups(cells: Cells, settings: Settings) -> Iterator[KvGroup]:
    page = settings.page_size
    kinds = (
        (cells.kind, cells.full, page, ceil_div(settings.max_model_len, page)),
        ("window", cells.window, page, ceil_div(_window_request(cells, settings), page)),
        ("state", cells.state, 1, settings.state_slots),
    )
    for kind, sizes, block, blocks in kinds:
        if sizes:
            size = sizes[0] if len(set(sizes)) == 1 else sum(sizes)
            yield KvGroup(
                kind=kind, layers=len(sizes), block_size=block, page_bytes=size * block, blocks_per_request=blocks
            )


def _windowed(cache: Cache, settings: Settings) -> bool:
    return settings.window_pools and isinstance(cache, Heads) and cache.reach in ("window", "chunk")


def _entry(cache: Cache, settings: Settings) -> int:
    return entry_bytes(cache, settings.layouts, tp=settings.attention_tp)
