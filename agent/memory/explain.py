"""The account behind a budget: each term with its formula, numbers filled in, and its source.

The formulas are plain arithmetic once words are taken out (a test computes them again), for rank (0, 0).
"""

from collections.abc import Iterable, Iterator

from agent.memory.kv_cache import KvBudget
from agent.memory.planners.planner import Settings, Stage
from agent.memory.runtime import RuntimeBudget
from agent.memory.units import Term
from agent.memory.weights import Weights


def explain(
    settings: Settings, weights: Weights, stage: Stage, kv: KvBudget, planned: Iterable[Term], cuda_bytes: int | None
) -> Iterator[Term]:
    """All terms that are known, in the order they build on each other; ``planned`` are those of the engine."""
    yield from _weights(weights, settings)
    yield from _adapters(stage, settings)
    yield from _runtime(stage.runtime)
    yield from planned
    yield from _headroom(stage, kv, cuda_bytes)


def _weights(weights: Weights, settings: Settings) -> Iterator[Term]:
    held = weights.stages[0]
    if held is None:
        return
    if weights.whole_bytes is None and weights.checkpoint_bytes is None:
        formula = f"the largest file of the {settings.tp} rank(s) of this stage"
        yield Term(name="weights", value=held, formula=formula, source="files of the engine")
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


def _adapters(stage: Stage, settings: Settings) -> Iterator[Term]:
    if stage.lora_bytes:
        slots, rank = settings.resolved["max_loras"].value, settings.resolved["max_lora_rank"].value
        yield Term(
            name="lora",
            value=stage.lora_bytes,
            formula=f"{slots} slots of rank {rank}: rank x (outputs + inputs) of each layer that takes adapters",
            source="vLLM 0.32 lora/layers",
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


def _headroom(stage: Stage, kv: KvBudget, cuda_bytes: int | None) -> Iterator[Term]:
    loaded = stage.loaded_bytes
    if loaded is None or stage.runtime is None or kv.pool_bytes is None or cuda_bytes is None:
        return
    parts = (loaded, kv.pool_bytes, stage.runtime.likely)
    yield Term(
        name="headroom_bytes",
        value=cuda_bytes - sum(parts) + stage.runtime.activations.likely,
        formula=f"{' - '.join(f'{size:,}' for size in (cuda_bytes, *parts))} + {stage.runtime.activations.likely:,}",
        source="device - weights - pool - likely runtime + its activations: room for temporaries",
    )
