"""The account behind a budget: each term with its formula, numbers filled in, and its source.

The formulas are plain arithmetic once words are taken out (a test computes them again), for rank (0, 0).
"""

from collections.abc import Iterator

from agent.memory.kv_cache import KvBudget, heads_per_rank, kv_format
from agent.memory.model_config import ModelShape
from agent.memory.planners.vllm import Settings, Stage, requested_bytes
from agent.memory.runtime import RuntimeBudget
from agent.memory.units import Term
from agent.memory.weights import Weights

_PLANNER = "vLLM 0.33 v1/core/kv_cache_planning.py"
_WORKER = "vLLM 0.33 v1/worker/gpu_worker.py"


def explain(
    shape: ModelShape, settings: Settings, weights: Weights, stage: Stage, kv: KvBudget, cuda_bytes: int | None
) -> Iterator[Term]:
    """All terms that are known, in the order they build on each other."""
    yield from _weights(weights, settings)
    yield from _runtime(stage.runtime)
    yield from _slope(shape, settings, stage, kv)
    if cuda_bytes is not None and not settings.pool_given:
        yield from _available(settings, stage, cuda_bytes)
    yield from _pool(settings, stage, kv, cuda_bytes)


def _weights(weights: Weights, settings: Settings) -> Iterator[Term]:
    held = weights.stages[0]
    if held is None:
        return
    whole, checkpoint = weights.whole_bytes, weights.checkpoint_bytes
    share = f"this rank's share at tp {settings.tp}, pp {settings.pp}"
    if checkpoint is not None:
        arithmetic = f"; the config's arithmetic gives {whole:,}" if whole is not None else ""
        formula = f"{share} of {checkpoint:,} B of tensors{arithmetic}"
    else:
        formula = f"{share} of {whole:,} B for {weights.parameters:,} weights"
    yield Term(
        name="weights",
        value=held,
        formula=formula,
        source="tensor bytes of the checkpoint" if checkpoint is not None else "arithmetic on the config",
    )


def _runtime(runtime: RuntimeBudget | None) -> Iterator[Term]:
    if runtime is None:
        return
    for name, part in zip(("activations", "cuda_graphs", "non_torch", "context"), runtime.parts, strict=True):
        where = "outside" if name in runtime.outside else "inside"
        yield Term(
            name=name,
            value=part.likely,
            formula=f"{part.low:,} to {part.high:,}; {where} the engine's share of the device",
            source=part.source,
        )


def _slope(shape: ModelShape, settings: Settings, stage: Stage, kv: KvBudget) -> Iterator[Term]:
    layout = kv_format(settings.kv_cache_dtype)
    cache = stage.layers[0].cache if stage.layers else None
    if layout is None or cache is None or kv.bytes_per_token is None or kv.bytes_per_block is None:
        return
    heads, layers = heads_per_rank(cache, settings.tp), len(stage.layers)
    widths = f"({cache.k_dim} + {cache.v_dim}) × {layout.bits} bits / 8"
    scales = f" + {layout.overhead}" if layout.overhead else ""
    yield Term(
        name="bytes_per_token",
        value=kv.bytes_per_token,
        formula=f"{layers} layers × {heads} heads × ({widths}{scales})",
        source=f"{shape.layers[0].kind}: vLLM 0.33 v1/kv_cache_interface.py",
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


def _pool(settings: Settings, stage: Stage, kv: KvBudget, cuda_bytes: int | None) -> Iterator[Term]:
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
    if stage.weights_bytes is not None and stage.runtime is not None and cuda_bytes is not None:
        yield Term(
            name="headroom_bytes",
            value=cuda_bytes
            - stage.weights_bytes
            - kv.pool_bytes
            - stage.runtime.likely
            + stage.runtime.activations.likely,
            formula=(
                f"{cuda_bytes:,} - {stage.weights_bytes:,} - {kv.pool_bytes:,} - {stage.runtime.likely:,}"
                f" + {stage.runtime.activations.likely:,}"
            ),
            source="device - weights - pool - likely runtime + its activations: room for temporaries",
        )
