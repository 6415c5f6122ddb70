"""The account of llama.cpp's caches on one device: each term with its formula, numbers filled in."""

from collections.abc import Iterator

from agent.memory.kv_cache import KvBudget
from agent.memory.planners.llama_cpp.pool import Cells, caches
from agent.memory.planners.llama_cpp.settings import Settings
from agent.memory.planners.planner import Stage
from agent.memory.units import Term

_SOURCE = "llama.cpp b11549 src/llama-kv-cache.cpp"
_WINDOW = "llama.cpp b11549 src/llama-kv-cache-iswa.cpp"
_STATE = "llama.cpp b11549 src/llama-memory-recurrent.cpp"


def explain(stage: Stage, settings: Settings, kv: KvBudget, *, cuda_bytes: int | None) -> Iterator[Term]:
    """Bytes of a cell, of the full cache, of windows and of states, and what one request has of them."""
    found = caches(stage.layers, settings)
    full, window, state = found["full"], found["window"], found["state"]
    cell = full.cell_bytes + found["index"].cell_bytes
    if full.sizes:
        formula = " + ".join(_by_layer(cache) for cache in (full, found["index"]) if cache.sizes)
        yield Term(name="bytes_per_token", value=cell, formula=formula, source=_SOURCE)
    if window.sizes:
        yield Term(name="window_cell_bytes", value=window.cell_bytes, formula=_by_layer(window), source=_WINDOW)
    if kv.pool_bytes is not None:
        sizes = [(full.cells, cell), (window.cells, window.cell_bytes)]
        parts = [f"{cells:,} cells × {size:,}" for cells, size in sizes if size]
        yield Term(
            name="pool_bytes",
            value=kv.pool_bytes,
            formula=f"{settings.streams} streams × ({' + '.join(parts) or 0})",
            source=_WINDOW if window.sizes else _SOURCE,
        )
    if state.sizes:
        yield Term(
            name="state_bytes",
            value=settings.slots * state.cell_bytes,
            formula=f"{settings.slots} slots × {state.cell_bytes:,}",
            source=_STATE,
        )


def _by_layer(cache: Cells) -> str:
    """So many layers of one size, and so on."""
    sizes = sorted(set(cache.sizes), reverse=True)
    return " + ".join(f"{cache.sizes.count(size)} layers × {size:,}" for size in sizes)
