"""The account of a vLLM rank's KV and pool: each term with its formula, numbers filled in."""

from collections.abc import Iterator

from agent.memory.kv_cache import KvBudget, heads_per_rank
from agent.memory.kv_formats import kv_format
from agent.memory.layers import Heads, Latent
from agent.memory.planners.planner import Stage
from agent.memory.planners.vllm.pool import requested_bytes
from agent.memory.planners.vllm.settings import Settings
from agent.memory.units import Term

_PLANNER = "vLLM 0.33 v1/core/kv_cache_planning.py"
_WORKER = "vLLM 0.33 v1/worker/gpu_worker.py"


def explain(stage: Stage, settings: Settings, kv: KvBudget, *, cuda_bytes: int | None) -> Iterator[Term]:
    """Slope, bytes available, blocks and concurrency."""
    yield from _slope(settings, stage, kv)
    if cuda_bytes is not None and not settings.pool_given:
        yield from _available(settings, stage, cuda_bytes)
    yield from _pool(settings, kv)


def _slope(settings: Settings, stage: Stage, kv: KvBudget) -> Iterator[Term]:
    layout = kv_format(settings.kv_cache_dtype)
    cache = stage.layers[0].caches[0]
    if (
        layout is None
        or not isinstance(cache, Heads | Latent)
        or kv.bytes_per_token is None
        or kv.bytes_per_block is None
    ):
        return
    heads = heads_per_rank(cache.heads, settings.tp) if isinstance(cache, Heads) else 1
    widths = (cache.rank, cache.rope) if isinstance(cache, Latent) else (cache.k_dim, cache.v_dim)
    vectors = (
        [layout.k.formula(widths[0]), layout.v.formula(widths[1])]
        if isinstance(cache, Heads)
        else [layout.latent.formula(*widths) if layout.latent else layout.k.formula(sum(widths))]
    )
    yield Term(
        name="bytes_per_token",
        value=kv.bytes_per_token,
        formula=f"{len(stage.layers)} layers × {heads} heads × ({' + '.join(vectors)})",
        source=f"{stage.layers[0].kind}: vLLM 0.33 v1/kv_cache_interface.py",
    )
    yield Term(
        name="bytes_per_block",
        value=kv.bytes_per_block,
        formula=f"{kv.bytes_per_token:,} × {settings.block_size} tokens",
        source=_PLANNER,
    )


def _available(settings: Settings, stage: Stage, cuda_bytes: int) -> Iterator[Term]:
    requested = requested_bytes(cuda_bytes, settings)
    yield Term(
        name="requested",
        value=requested,
        formula=f"ceil({cuda_bytes:,} × {settings.gpu_memory_utilization})",
        source=_WORKER,
    )
    if stage.weights_bytes is None or stage.runtime is None:
        return
    parts = [part.likely for part in stage.runtime.inside]
    yield Term(
        name="available",
        value=requested - stage.weights_bytes - sum(parts),
        formula=" - ".join(f"{size:,}" for size in (requested, stage.weights_bytes, *parts)),
        source=_WORKER,
    )


def _pool(settings: Settings, kv: KvBudget) -> Iterator[Term]:
    per_request = kv.groups[0].blocks_per_request if kv.groups else None
    if per_request is None or kv.bytes_per_block is None or kv.request_bytes is None:
        return
    yield Term(
        name="blocks_per_request",
        value=per_request,
        formula=f"ceil({settings.max_model_len:,} / {settings.block_size})",
        source=_PLANNER,
    )
    yield Term(
        name="request_bytes",
        value=kv.request_bytes,
        formula=f"{per_request:,} blocks × {kv.bytes_per_block:,}",
        source=_PLANNER,
    )
    if kv.blocks is None or kv.pool_bytes is None or kv.max_concurrency is None:
        return
    yield Term(
        name="pool_bytes",
        value=kv.pool_bytes,
        formula=f"{kv.blocks:,} blocks × {kv.bytes_per_block:,}",
        source=f"{_PLANNER}; the rank with the fewest blocks decides",
    )
    yield Term(
        name="max_concurrency",
        value=kv.max_concurrency,
        formula=f"{kv.blocks:,} blocks / {per_request:,}",
        source=_PLANNER,
    )
