"""The account of an SGLang rank's pools: each term with its formula, numbers filled in."""

from collections.abc import Iterator

from agent.memory.kv_cache import KvBudget
from agent.memory.planners.planner import Stage
from agent.memory.planners.sglang.pool import Cells, available_bytes, free_bytes, stage_cells
from agent.memory.planners.sglang.settings import Settings
from agent.memory.units import Term

_CONFIGURATOR = "SGLang 0.5.23 srt/model_executor/pool_configurator.py"
_FREE = "SGLang 0.5.23 srt/mem_cache/kv_cache_configurator.py"
_POOL = "SGLang 0.5.23 srt/mem_cache/memory_pool.py"


def explain(stage: Stage, settings: Settings, kv: KvBudget, *, cuda_bytes: int | None) -> Iterator[Term]:
    """Bytes of a token, what is available, and the pools."""
    cells = stage_cells(stage.layers, settings)
    yield from _cells(cells)
    if cuda_bytes is not None and settings.kv_pool_bytes is None:
        yield from _available(stage, settings, cuda_bytes)
    if kv.pool_bytes is not None and kv.pool_tokens is not None and not cells.index_bytes and not cells.window:
        yield Term(
            name="pool_bytes",
            value=kv.pool_bytes,
            formula=f"({kv.pool_tokens:,} + {settings.page_size} tokens) × {cells.full_bytes:,}",
            source=_POOL,
        )
    if kv.state_bytes:
        yield Term(
            name="state_bytes",
            value=kv.state_bytes,
            formula=f"{kv.state_bytes // cells.state_bytes:,} slots × {cells.state_bytes:,}",
            source=_FREE,
        )


def _cells(cells: Cells) -> Iterator[Term]:
    if cells.full:
        index = f" + {cells.index_bytes:,}" if cells.index_bytes else ""
        yield Term(
            name="bytes_per_token",
            value=cells.full_bytes,
            formula=_by_layer(cells.full) + index,
            source=_CONFIGURATOR,
        )
    if cells.window:
        yield Term(
            name="window_token_bytes", value=cells.window_bytes, formula=_by_layer(cells.window), source=_CONFIGURATOR
        )


def _available(stage: Stage, settings: Settings, cuda_bytes: int) -> Iterator[Term]:
    available = available_bytes(stage, settings, cuda_bytes)
    if available is None or stage.weights_bytes is None:
        return
    free = free_bytes(cuda_bytes, settings)
    yield Term(name="free_before_weights", value=free, formula=f"{cuda_bytes:,} - {cuda_bytes - free:,}", source=_FREE)
    yield Term(
        name="available",
        value=available,
        formula=f"floor({free:,} × {settings.mem_fraction_static}) - {stage.weights_bytes:,}",
        source=_FREE,
    )


def _by_layer(sizes: tuple[int, ...]) -> str:
    kinds = sorted(set(sizes), reverse=True)
    return " + ".join(f"{sizes.count(size)} layers × {size:,}" for size in kinds)
