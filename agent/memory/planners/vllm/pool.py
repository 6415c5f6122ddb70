"""The pool of one vLLM server.

    requested = ceil(CUDA total x gpu_memory_utilization)
    available = requested - weights - activations - graphs (from 0.20.2) - libraries
    blocks    = min over ranks of available // bytes per block

Source: vLLM 0.33 v1/worker/gpu_worker.py, v1/core/kv_cache_planning.py.
"""

import math
from collections.abc import Sequence

from agent.memory.kv_cache import KvBudget, KvGroup, token_bytes
from agent.memory.kv_formats import KvFormat, kv_format
from agent.memory.layers import Layer
from agent.memory.model_config import Decoder
from agent.memory.planners.planner import Stage
from agent.memory.planners.vllm.settings import Settings
from agent.memory.runtime import Load, RuntimeBudget, estimate
from agent.memory.units import ceil_div


def plan(stages: Sequence[Stage], settings: Settings, *, cuda_bytes: int | None) -> list[KvBudget]:
    """The pool of each stage's rank; the stage with the fewest blocks decides for all.

    Fields that need memory figures are None where a stage's weights, runtime or device are not known.
    """
    layout = kv_format(settings.kv_cache_dtype)
    if layout is None:
        return [KvBudget()] * len(stages)
    pages = [_page_bytes(stage, layout, settings) for stage in stages]
    per_block = [sum(sizes) for sizes in pages]
    available = [_available(stage, settings, cuda_bytes) for stage in stages]
    blocks = settings.num_gpu_blocks
    if blocks is None and None not in available:
        blocks = min(max(0, room or 0) // size for room, size in zip(available, per_block, strict=True))
    per_request = ceil_div(settings.max_model_len, settings.block_size)
    concurrency = None if blocks is None else blocks / per_request
    return [
        KvBudget(
            bytes_per_token=size // settings.block_size,
            bytes_per_token_logical=size // settings.block_size,
            fixed_bytes_per_request=0,
            groups=(_group(stage, sizes[0], settings, per_request),),
            bytes_per_block=size,
            blocks=blocks,
            pool_bytes=None if blocks is None else blocks * size,
            pool_tokens=_log_tokens(blocks, concurrency, settings),
            request_bytes=per_request * size,
            max_concurrency=concurrency,
        )
        for stage, sizes, size in zip(stages, pages, per_block, strict=True)
    ]


def runtime(decoder: Decoder, layers: tuple[Layer, ...], settings: Settings) -> RuntimeBudget:
    """What a rank needs beside weights and KV, by the largest step of the settings."""
    load = Load(
        batched_tokens=settings.max_num_batched_tokens,
        sequences=settings.max_num_seqs,
        max_model_len=settings.max_model_len,
        block_size=settings.block_size,
    )
    return estimate(
        decoder,
        layers,
        load,
        tp=settings.tp,
        ranks=settings.tp * settings.pp,
        expert_ranks=settings.tp * settings.dp,
        eager=settings.enforce_eager,
        outside=settings.outside,
    )


def requested_bytes(cuda_bytes: int, settings: Settings) -> int:
    """The engine's own share of the device."""
    return math.ceil(cuda_bytes * settings.gpu_memory_utilization)


def _available(stage: Stage, settings: Settings, cuda_bytes: int | None) -> int | None:
    """Bytes left for KV on a rank; the arithmetic is skipped where they are given."""
    if settings.kv_pool_bytes is not None:
        return settings.kv_pool_bytes
    if settings.kv_cache_memory_bytes is not None:
        return settings.kv_cache_memory_bytes
    if cuda_bytes is None or stage.weights_bytes is None or stage.runtime is None:
        return None
    inside = sum(part.likely for part in stage.runtime.inside)
    return requested_bytes(cuda_bytes, settings) - stage.weights_bytes - inside


def _page_bytes(stage: Stage, layout: KvFormat, settings: Settings) -> list[int]:
    """Bytes of a block in each layer."""
    caches = [cache for layer in stage.layers for cache in layer.caches]
    return [settings.block_size * token_bytes(cache, layout, tp=settings.tp) for cache in caches]


def _group(stage: Stage, page_bytes: int, settings: Settings, per_request: int) -> KvGroup:
    """One group: all layers of the kinds known here have the same shape, and share one block table."""
    return KvGroup(
        kind="mla" if stage.layers[0].kind == "mla" else "full",
        layers=len(stage.layers),
        block_size=settings.block_size,
        page_bytes=page_bytes,
        blocks_per_request=per_request,
    )


def _log_tokens(blocks: int | None, concurrency: float | None, settings: Settings) -> int | None:
    """What the engine's log calls the size of the cache."""
    if blocks is None or concurrency is None:
        return None
    by_concurrency = int(concurrency * settings.max_model_len)
    return by_concurrency if settings.rules.tokens_by_concurrency else blocks * settings.block_size
