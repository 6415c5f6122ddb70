"""The budget: what each component of a server's memory should be, from model, arguments and device.

``compute`` is the one entry. Integer parts (bytes per block, blocks, weights from tensor bytes) are exact; runtime
parts are ranges with their source. Nothing here reads a file or a clock.
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.arguments import Arguments, Resolved, Source, merge
from agent.memory.checkpoint import Loads
from agent.memory.explain import explain
from agent.memory.kv_cache import KvBudget, KvGroup
from agent.memory.layers import Heads, Latent, Layer
from agent.memory.model_config import ModelShape, parse_model
from agent.memory.planners import unsized
from agent.memory.planners.planner import Device, Planner, Settings, Stage
from agent.memory.planners.registry import PLANNERS, WITHOUT_POOL
from agent.memory.runtime import Calibration, RuntimeBudget, calibrated
from agent.memory.units import Range, Term, size_text
from agent.memory.weights import Weights, in_part_on_host, weigh, with_draft
from collectors.readings import ModelFiles

__all__ = [
    "Budget",
    "Device",
    "KvBudget",
    "KvGroup",
    "LayerGroup",
    "ModelFacts",
    "Range",
    "RankBudget",
    "RuntimeBudget",
    "Term",
    "compute",
    "model_name",
]


_NO_LIMIT = 1 << 62
_BESIDES = ("weights_bytes", "cpu_offload_gb", "draft_model", "max_loras", "max_lora_rank")


class LayerGroup(Struct, frozen=True, kw_only=True):
    """Layers of one kind in the model, in order of first appearance, and what each caches of a token.

    ``reach`` and ``tokens``: of which tokens, where not of all: the last so many (window), those since a multiple
    (chunk), or those of an encoder. Layers with caches of other kinds (states, records) give no widths.
    """

    kind: str
    count: int
    kv_heads: int | None = None
    k_dim: int | None = None
    v_dim: int | None = None
    reach: str | None = None
    tokens: int | None = None


class ModelFacts(Struct, frozen=True, kw_only=True):
    name: str
    model_type: str | None
    architecture: str | None
    parameters: int | None
    layers: tuple[LayerGroup, ...]


class RankBudget(Struct, frozen=True, kw_only=True):
    """One rank. ``weights_evidence``: computed (checkpoint's tensor bytes) or predicted (config arithmetic).

    ``lora_bytes``: of slots for LoRA adapters, which come on top of the weights; None: not known.
    """

    tp_rank: int
    pp_rank: int
    weights_bytes: int | None
    weights_evidence: str | None
    kv: KvBudget
    runtime: RuntimeBudget | None
    total_bytes: int | None
    headroom_bytes: int | None
    lora_bytes: int | None = 0

    @property
    def loaded_bytes(self) -> int:
        """Weights and slots for adapters, as far as known."""
        return (self.weights_bytes or 0) + (self.lora_bytes or 0)


class Budget(Struct, frozen=True, kw_only=True):
    """The whole prediction; its JSON form is ``vramscope.budget/1``. ``refused``: why the engine would not start.

    ``fits_if_high``: ``fits``, were every part of the runtime at its high bound.
    """

    schema: str = "vramscope.budget/1"
    model: ModelFacts
    arguments: dict[str, Resolved]
    device: Device
    ranks: tuple[RankBudget, ...]
    fits: bool | None
    fits_if_high: bool | None = None
    refused: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    terms: tuple[Term, ...] = ()


def compute(
    model: ModelFiles,
    arguments: Arguments,
    device: Device,
    *,
    draft: ModelFiles | None = None,
    shape: ModelShape | None = None,
    explained: bool = True,
    calibration: Calibration | None = None,
    engine_source: Source = "given",
) -> Budget:
    """Predict the memory of each rank of one replica; of an engine without a planner only the weights.

    Args:
        draft: the model that speculates, where it is one of its own.
        shape: the model's config as ``parse_model`` gives it, where that has been done.
        explained: with the terms.
        calibration: what is known of the runtime of such a run, in the place of ranges.
        engine_source: who says which engine it is.

    Raises:
        ModelConfigError: the config has an absurd value.
        ValueError: arguments that don't go with the model.
    """
    planner = PLANNERS.get(arguments.engine) or WITHOUT_POOL.get(arguments.engine, unsized)
    arguments = as_built(model, arguments)
    shape = shape or parse_model(model.config)
    cuda_bytes = device.visible_bytes
    drafting = parse_model(draft.config) if draft else None
    settings = planner.resolve(arguments, shape, device, draft=drafting)
    mtp = draft is None and (arguments.speculative or "none").startswith("mtp")
    weights = _weigh(shape, _measured(model, arguments), settings, settings.stages, mtp=mtp)
    weights = _of_engine(model, settings) if model.built else weights
    if draft and drafting:
        weights = with_draft(weights, _weigh(drafting, draft, settings, (len(drafting.layers),), mtp=False))
    if arguments.cpu_offload_gb:
        weights = in_part_on_host(weights, arguments.cpu_offload_gb)
    stages = _stages(planner, shape, settings, weights, calibration)
    planned = bool(shape.layers) and all(layer.known for layer in shape.layers) and not settings.unknown
    kv = planner.plan(stages, settings, cuda_bytes=cuda_bytes) if planned else [_bounded(shape)] * len(stages)
    terms = planner.explain(stages[0], settings, kv[0], cuda_bytes=cuda_bytes) if planned else ()
    ranks = tuple(_ranks(stages, kv, weights, settings, cuda_bytes))
    fits = False if settings.refused else _fits(ranks, cuda_bytes)
    return Budget(
        model=_facts(shape, model, weights.parameters),
        arguments={
            "engine": Resolved(value=arguments.engine, source=engine_source),
            **settings.resolved,
            **_besides(arguments, settings),
        },
        device=device,
        ranks=ranks,
        fits=fits,
        fits_if_high=_fits_if_high(ranks, settings, cuda_bytes) if fits else fits,
        refused=settings.refused,
        unknown=(
            *shape.unknown,
            *weights.unknown,
            *settings.unknown,
            *_unknown(planned, ranks, cuda_bytes, settings.pool_is_unknown),
        ),
        warnings=(*model.notes, *settings.warnings, *weights.warnings, *_warnings(ranks, device, settings, cuda_bytes)),
        terms=tuple(explain(settings, weights, stages[0], kv[0], terms, cuda_bytes)) if explained else (),
    )


def _besides(arguments: Arguments, settings: Settings) -> dict[str, Resolved]:
    """What was given that counts beside the planner's own values."""
    given = {name: getattr(arguments, name) for name in _BESIDES if name not in settings.resolved}
    return {
        name: Resolved(value=value, source="reported" if name in arguments.reported else "given")
        for name, value in given.items()
        if value is not None
    }


def as_built(model: ModelFiles, arguments: Arguments) -> Arguments:
    """Arguments with what was fixed when the engine was built.

    Raises:
        ValueError: another engine's, or other values were given; one sentence.
    """
    if not model.built:
        return arguments
    if arguments.engine not in WITHOUT_POOL:
        raise ValueError(f"{model.path} is an engine that TensorRT-LLM built; give --engine tensorrt_llm")
    for name, value in model.built.items():
        given = getattr(arguments, name)
        shorter = name == "max_model_len" and given is not None and given < value
        if given not in (None, "auto", value) and not shorter:
            raise ValueError(f"argument {name!r}: the engine was built for {value}, got {given}")
    if arguments.kv_cache_dtype == "auto":
        arguments = replace(arguments, kv_cache_dtype=None)
    return merge(arguments, built(model, engine=arguments.engine))


def built(model: ModelFiles, *, engine: str) -> Arguments:
    """What was fixed when the model's engine was built, as if that had reported it."""
    return Arguments(engine=engine, **cast(dict[str, Any], model.built), reported=frozenset(model.built))


def _of_engine(model: ModelFiles, settings: Settings) -> Weights:
    """The files of an engine's ranks; of each stage the largest."""
    count = len(model.rank_bytes) // settings.pp
    if not count:
        why = "weights: the files of the engine do not tell them"
        return Weights(stages=(None,) * settings.pp, evidence=None, parameters=None, unknown=(why,))
    stages = tuple(max(model.rank_bytes[stage * count : (stage + 1) * count]) for stage in range(settings.pp))
    note = "weights are the engine's files; TensorRT was seen to hold up to 1 % less"
    return Weights(stages=stages, evidence="computed", parameters=None, warnings=(note,))


def _bounded(shape: ModelShape) -> KvBudget:
    """What is known of the KV of layers that are not: between which bytes a token is."""
    bounds = shape.token_bounds
    return KvBudget(bytes_per_token_bounds=None if bounds is None else (2 * bounds.low, 2 * bounds.high))


def _measured(model: ModelFiles, arguments: Arguments) -> ModelFiles:
    """The files, of as many bytes as were given."""
    if arguments.weights_bytes is None:
        return model
    return replace(model, tensor_bytes=arguments.weights_bytes, layer_bytes=None, other_bytes={}, bytes_by_dtype={})


def _weigh(shape: ModelShape, model: ModelFiles, settings: Settings, stages: tuple[int, ...], *, mtp: bool) -> Weights:
    """Weights of one rank of each stage; ``mtp``: with the layers that predict several tokens."""
    weights = weigh(
        shape,
        model,
        shard=settings.shard,
        stages=stages,
        dtype=settings.dtype,
        quantization=settings.quantization,
        loads=Loads(mtp=mtp, embedding=settings.embedding_on_device),
    )
    return weights if settings.split_is_known or weights.evidence is None else replace(weights, evidence="predicted")


def _stages(
    planner: Planner[Any], shape: ModelShape, settings: Settings, weights: Weights, calibration: Calibration | None
) -> list[Stage]:
    stages, start = [], 0
    slots = (None,) * len(settings.stages) if settings.lora_bytes is None else settings.lora_bytes
    for number, (count, held) in enumerate(zip(settings.stages, weights.stages, strict=True)):
        layers = shape.layers[start : start + count]
        start += count
        runtime = planner.runtime(shape.decoder, layers, settings) if shape.decoder else None
        runtime = calibrated(runtime, calibration) if runtime else None
        lora = slots[number] if slots else 0
        stages.append(Stage(layers=layers, weights_bytes=held, runtime=runtime, lora_bytes=lora))
    return stages


def _ranks(
    stages: Sequence[Stage],
    kv: Sequence[KvBudget],
    weights: Weights,
    settings: Settings,
    cuda_bytes: int | None,
) -> Iterator[RankBudget]:
    """All ranks; those of one stage are alike."""
    for pp_rank, (stage, pool) in enumerate(zip(stages, kv, strict=True)):
        total = None
        if stage.loaded_bytes is not None and pool.pool_bytes is not None and stage.runtime is not None:
            total = stage.loaded_bytes + pool.pool_bytes + (pool.state_bytes or 0) + stage.runtime.likely
        for tp_rank in range(settings.tp):
            yield RankBudget(
                tp_rank=tp_rank,
                pp_rank=pp_rank,
                weights_bytes=stage.weights_bytes,
                weights_evidence=weights.evidence,
                kv=pool,
                runtime=stage.runtime,
                total_bytes=total,
                headroom_bytes=_headroom(total, cuda_bytes, stage.runtime),
                lora_bytes=stage.lora_bytes,
            )


def _headroom(total: int | None, cuda_bytes: int | None, runtime: RuntimeBudget | None) -> int | None:
    """Room for temporaries: what is left of the device, and what the likely activations are given."""
    if total is None or cuda_bytes is None or runtime is None:
        return None
    return cuda_bytes - total + runtime.activations.likely


def model_name(path: str) -> str:
    """A model by its path: the folder's name, or that of a file which is alone."""
    pure = PurePath(path)
    alone = not pure.name.endswith(("config.json", ".index.json"))
    return pure.name.removesuffix(".json") if alone else pure.parent.name


def _facts(shape: ModelShape, model: ModelFiles, parameters: int | None) -> ModelFacts:
    kinds: dict[tuple[str, object], list[Layer]] = {}
    for layer in shape.layers:
        kinds.setdefault((layer.kind, layer.caches), []).append(layer)
    return ModelFacts(
        name=model_name(model.path),
        model_type=shape.model_type,
        architecture=shape.architecture,
        parameters=parameters,
        layers=tuple(_group(layers[0], len(layers)) for layers in kinds.values()),
    )


def _group(layer: Layer, count: int) -> LayerGroup:
    match layer.caches:
        case (Heads() as cache, *_):
            return LayerGroup(
                kind=layer.kind,
                count=count,
                kv_heads=cache.heads,
                k_dim=cache.k_dim,
                v_dim=cache.v_dim,
                reach=None if cache.reach == "full" else cache.reach,
                tokens=cache.tokens,
            )
        case (Latent() as cache, *_):
            return LayerGroup(kind=layer.kind, count=count, kv_heads=1, k_dim=cache.rank + cache.rope, v_dim=0)
    return LayerGroup(kind=layer.kind, count=count)


def _fits(ranks: Sequence[RankBudget], cuda_bytes: int | None) -> bool | None:
    """Whether one request of full length fits the pool, and everything the device even if runtime is low."""
    if any(rank.kv.short or _least_bytes(rank) > (cuda_bytes or _NO_LIMIT) for rank in ranks):
        return False
    return None if any(rank.kv.blocks is None for rank in ranks) else True


def _fits_if_high(ranks: Sequence[RankBudget], settings: Settings, cuda_bytes: int | None) -> bool | None:
    """The same with the runtime at its high bound; None where no device or no runtime is known."""
    if cuda_bytes is None or any(rank.runtime is None for rank in ranks):
        return None
    return not any(_short_if_high(rank, settings) or _most_bytes(rank, settings) > cuda_bytes for rank in ranks)


def _most_bytes(rank: RankBudget, settings: Settings) -> int:
    """All of it with the runtime at its high bound: a pool that is sized by what is left gives way."""
    pool = (rank.kv.pool_bytes or 0) - (0 if settings.pool_given else _more_if_high(rank))
    runtime = rank.runtime.high if rank.runtime else 0
    return rank.loaded_bytes + max(0, pool) + (rank.kv.state_bytes or 0) + runtime


def _more_if_high(rank: RankBudget) -> int:
    return sum(part.high - part.likely for part in rank.runtime.inside) if rank.runtime else 0


def _least_bytes(rank: RankBudget) -> int:
    return (
        rank.loaded_bytes
        + (rank.kv.pool_bytes or 0)
        + (rank.kv.state_bytes or 0)
        + (rank.runtime.low if rank.runtime else 0)
    )


def _unknown(planned: bool, ranks: Sequence[RankBudget], cuda_bytes: int | None, pool: str | None) -> Iterator[str]:
    if ranks[0].lora_bytes is None:
        yield "LoRA: which of this model's modules take adapters is not known here, so neither are their bytes"
    if planned and pool is not None:
        yield f"size of the KV pool: {pool}"
    elif planned and ranks[0].kv.blocks is None:
        missing = _missing(ranks, cuda_bytes)
        yield f"size of the KV pool: {missing} not known"


def _missing(ranks: Sequence[RankBudget], cuda_bytes: int | None) -> str:
    if cuda_bytes is None:
        return "the device's memory is"
    return "the bytes of adapters are" if ranks[0].lora_bytes is None else "the weights' bytes are"


def _warnings(ranks: Sequence[RankBudget], device: Device, settings: Settings, cuda_bytes: int | None) -> Iterator[str]:
    if device.cuda_bytes is None and device.total_bytes is not None:
        yield (
            "what the driver reserves of the device is not known and taken as nothing: the pool may be up to 1 GiB less"
        )
    tight = next((rank.kv for rank in ranks if rank.kv.short), None)
    if tight is not None:
        each = " a GPU" if len(ranks) > 1 else ""
        needed = size_text(tight.request_bytes or 0)
        yield (
            f"one request of {settings.max_model_len:,} tokens needs {needed} of KV{each}, "
            f"the pool holds {size_text(tight.pool_bytes or 0)}{each}: the engine will not start"
        )
    elif any(_short_if_high(rank, settings) for rank in ranks):
        yield "if the runtime is as high as it may be, not even one request of full length fits"
    most = max(map(_least_bytes, ranks))
    if cuda_bytes is not None and most > cuda_bytes:
        each = "each device's" if len(ranks) > 1 else "the device's"
        yield f"weights, pool and the least runtime need {size_text(most)} of {each} {size_text(cuda_bytes)}"


def _short_if_high(rank: RankBudget, settings: Settings) -> bool:
    """Whether the pool would be too small if the parts that are taken off before it were at their high bound."""
    if rank.kv.pool_bytes is None or rank.kv.request_bytes is None or rank.runtime is None or settings.pool_given:
        return False
    return replace(rank.kv, pool_bytes=int(rank.kv.pool_bytes - _more_if_high(rank))).short
