"""TensorRT-LLM: what a token and a block take of an engine that was built, or of a checkpoint on one rank.

A rank keeps its share of the KV heads of each layer of its stage; FP8 and INT8 have one scale for all, NVFP4 one byte
for 16 elements. How large the pool becomes is a share of what is free after a trial run, which nobody knows before. On
several ranks a checkpoint may be served with attention on each for itself, which no flag tells. Source:
NVIDIA/TensorRT-LLM 1.0, ``cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp``.
"""

from collections.abc import Iterator, Sequence

from agent.memory.arguments import Arguments
from agent.memory.kv_cache import KvBudget, KvGroup, token_bytes
from agent.memory.kv_formats import KvFormat, kv_format
from agent.memory.layers import Heads, Layer
from agent.memory.model_config import ModelShape
from agent.memory.planners import unsized
from agent.memory.planners.planner import Device, Picker, Stage
from agent.memory.units import Term, ceil_div

runtime = unsized.runtime


class Settings(unsized.Settings, frozen=True, kw_only=True):
    """``block_size``: tokens of a block, None where nobody says."""

    kv: KvFormat | None = None
    block_size: int | None = None

    @property
    def pool_is_unknown(self) -> str | None:
        return "a share of what is free after a trial run"


def resolve(arguments: Arguments, shape: ModelShape, device: Device, *, draft: ModelShape | None) -> Settings:
    """As given, or as the engine was built.

    Raises:
        ValueError: see ``unsized.resolve``.
    """
    base = unsized.resolve(arguments, shape, device, draft=draft)
    pick = Picker(arguments)
    name = pick.unless_auto("kv_cache_dtype", base.dtype, "checkpoint")
    is_built = "block_size" in arguments.reported
    why = None if is_built else _untold(arguments, shape)
    why = why or _odd(shape, base.tp) or (f"the KV format {name!r} is not known here" if not kv_format(name) else None)
    block = pick.if_given("block_size", arguments.block_size)
    return Settings(
        **{
            **{field: getattr(base, field) for field in unsized.Settings.__struct_fields__},
            "resolved": {**base.resolved, **pick.resolved},
            "unknown": (*base.unknown, f"KV: {why}") if why else (),
        },
        kv=kv_format(name),
        block_size=block,
    )


def _untold(arguments: Arguments, shape: ModelShape) -> str | None:
    """What a checkpoint leaves open of how its KV is kept."""
    if (arguments.tp or 1) > 1:
        return "how several ranks share the attention of a checkpoint is not known here"
    if arguments.kv_cache_dtype in (None, "auto"):
        return "a file of options may give a checkpoint another format; give --kv-cache-dtype"
    return None


def _odd(shape: ModelShape, tp: int) -> str | None:
    caches = [layer.caches for layer in shape.layers if layer.known]
    heads = {cache.heads for layer in caches for cache in layer if isinstance(cache, Heads)}
    if not all(len(layer) == 1 and isinstance(layer[0], Heads) and layer[0].reach == "full" for layer in caches):
        return "how TensorRT-LLM keeps other caches than heads of every token is not known here"
    if any(count % tp and tp % count for count in heads):
        return f"{max(heads)} KV heads do not spread evenly over {tp} ranks"
    return None


def plan(stages: Sequence[Stage], settings: Settings, *, cuda_bytes: int | None) -> list[KvBudget]:
    """The slope and the block of each stage; the pool stays unknown."""
    return [_kv(stage.layers, settings) for stage in stages]


def _kv(layers: Sequence[Layer], settings: Settings) -> KvBudget:
    sizes = [_layer_bytes(layer, settings) for layer in layers]
    token, block, length = sum(sizes), settings.block_size, settings.max_model_len
    if block is None:
        return KvBudget(bytes_per_token=token, bytes_per_token_logical=token, fixed_bytes_per_request=0)
    blocks = ceil_div(length, block) if length else None
    page = sizes[0] if len(set(sizes)) == 1 else token
    group = KvGroup(
        kind="full", layers=len(sizes), block_size=block, page_bytes=page * block, blocks_per_request=blocks
    )
    return KvBudget(
        bytes_per_token=token,
        bytes_per_token_logical=token,
        fixed_bytes_per_request=0,
        groups=(group,) if sizes else (),
        bytes_per_block=token * block,
        request_bytes=None if blocks is None else token * block * blocks,
    )


def _layer_bytes(layer: Layer, settings: Settings) -> int:
    return sum(token_bytes(cache, settings.kv, tp=settings.tp) for cache in layer.caches) if settings.kv else 0


def explain(stage: Stage, settings: Settings, kv: KvBudget, *, cuda_bytes: int | None) -> Iterator[Term]:
    """A token and a block of the first stage."""
    source = "TensorRT-LLM 1.0 kvCacheManager.cpp"
    sizes = [_layer_bytes(layer, settings) for layer in stage.layers]
    if sizes and kv.bytes_per_token is not None:
        formula = f"{len(sizes)} layers × {sizes[0]}" if len(set(sizes)) == 1 else " + ".join(map(str, sizes))
        yield Term(name="bytes_per_token", value=kv.bytes_per_token, formula=formula, source=source)
    if kv.bytes_per_block is not None:
        formula = f"{kv.bytes_per_token} × {settings.block_size} tokens"
        yield Term(name="bytes_per_block", value=kv.bytes_per_block, formula=formula, source=source)
