"""vLLM's settings: what was given, and its defaults by version, checkpoint and device.

Source: vLLM 0.33 engine/arg_utils.py, config/; old rules: 0.19.1, 0.11.2.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from agent.memory.arguments import Arguments, Source
from agent.memory.checkpoint import DTYPE_BYTES
from agent.memory.kv_cache import Layouts
from agent.memory.kv_formats import ALIASES, FORMATS, FP8_INDEX, MXFP4_INDEX, STATE_BYTES, kv_format
from agent.memory.layers import Cache, Heads, IndexKeys, Latent, Layer, Record, State
from agent.memory.lora import MOST_VOCABULARY, Slots, has_tables, slot_bytes
from agent.memory.model_config import ModelShape
from agent.memory.planners import planner
from agent.memory.planners.planner import Device, Picker, split_stages
from agent.memory.planners.vllm.groups import Group, Placed, group_caches
from agent.memory.planners.vllm.rules import DEFAULT_VERSION, Rules, rules_for
from agent.memory.planners.vllm.specs import Load, PagingError, layer_specs
from agent.memory.units import GIB, shown

_DEFAULT_CONTEXT = 2048
_LORA_RANK = 16
_EIGHT_BITS = ("fp8", "fp8_e4m3", "fp8_ds_mla")
_HOPPER = ("H100", "H200", "H800", "H20", "GH200")


class Settings(planner.Settings, frozen=True, kw_only=True):
    """What only vLLM has. ``groups`` are those of the whole model, with the layers that speculate."""

    rules: Rules
    kv_cache_dtype: str
    block_size: int
    gpu_memory_utilization: float
    max_num_batched_tokens: int
    max_num_seqs: int
    enforce_eager: bool
    hybrid_manager: bool
    layouts: Layouts
    load: Load
    num_gpu_blocks: int | None
    kv_cache_memory_bytes: int | None
    kv_pool_bytes: int | None
    groups: tuple[Group, ...] = ()

    @property
    def pool_given(self) -> bool:
        return any(size is not None for size in (self.num_gpu_blocks, self.kv_cache_memory_bytes, self.kv_pool_bytes))

    @property
    def outside(self) -> tuple[str, ...]:
        """Parts of the runtime that the fraction does not cover."""
        parts = ["context"]
        if not self.rules.graphs_inside:
            parts.append("cuda_graphs")
        if self.rules.communication_outside and self.tp * self.pp > 1:
            parts.append("non_torch")
        return tuple(parts)


def resolve(arguments: Arguments, shape: ModelShape, device: Device, *, draft: ModelShape | None) -> Settings:
    """Fill in what was not given, from the checkpoint and the defaults of the version.

    Raises:
        ValueError: pipeline stages that don't match the model's layers; one sentence.
    """
    pick = Picker(arguments)
    version = pick("engine_version", DEFAULT_VERSION)
    rules, version_warning = rules_for(version)
    batched, sequences = _step_defaults(device.total_bytes or device.cuda_bytes, device.name)
    dtype = pick.unless_auto("dtype", *_checkpoint_dtype(shape))
    pp = pick("pp", 1)
    tokens = pick("max_num_batched_tokens", batched)
    by_bytes = pick.if_given("kv_cache_memory_bytes", arguments.kv_cache_memory_bytes)
    speculative = pick("speculative", "none")
    speculated, draft_layers = _speculation(speculative, shape, draft)
    stages = split_stages(pick.if_given("pp_layers", arguments.pp_layers), len(shape.layers), pp)
    kv_cache_dtype = pick.kept("kv_cache_dtype", *_kv_dtype(pick, shape, dtype, device))
    load = _load(pick, shape, rules, in_flight=tokens * (_batches(pick, pp) if rules.batches_in_flight else 1))
    settings = Settings(
        rules=rules,
        version=version,
        tp=pick("tp", 1),
        pp=pp,
        dp=pick("dp", 1),
        ep=pick("ep", False),
        stages=stages,
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
        block_size=pick("block_size", _block_size(shape)),
        max_model_len=load.max_model_len,
        gpu_memory_utilization=pick("gpu_memory_utilization", rules.fraction),
        max_num_batched_tokens=tokens,
        max_num_seqs=pick("max_num_seqs", sequences),
        enforce_eager=pick("enforce_eager", False),
        hybrid_manager=not pick("disable_hybrid_kv_cache_manager", False),
        layouts=_layouts(arguments, shape, kv_cache_dtype, dtype, speculated),
        load=replace(load, speculated=speculated),
        quantization=pick.if_given("quantization", arguments.quantization),
        num_gpu_blocks=pick.if_given("num_gpu_blocks", arguments.num_gpu_blocks),
        kv_cache_memory_bytes=by_bytes if rules.pool_by_bytes else None,
        kv_pool_bytes=pick.if_given("kv_pool_bytes", arguments.kv_pool_bytes),
        resolved=pick.resolved,
    )
    settings = replace(settings, lora_bytes=_adapters(pick, settings, shape))
    said = (version_warning,) if version_warning else ()
    settings = replace(settings, warnings=(*said, *_warnings(settings, shape, pick)))
    return _grouped(settings, shape, draft_layers, tuple(_unknown_draft(speculative, shape, draft)))


def _adapters(pick: Picker, settings: Settings, shape: ModelShape) -> tuple[int, ...] | None:
    """Bytes of the slots on a rank of each stage; without LoRA none. A number or a rank of adapters asks for LoRA."""
    asked = pick.given("enable_lora")
    if asked is False or (asked is None and pick.given("max_loras") is None and pick.given("max_lora_rank") is None):
        return ()
    dtype = pick.unless_auto("lora_dtype", settings.dtype, "default")
    slots = Slots(
        count=pick("max_loras", 1),
        rank=pick("max_lora_rank", _LORA_RANK),
        element_bytes=DTYPE_BYTES[dtype],
        sharded=pick("fully_sharded_loras", False),
    )
    return slot_bytes(shape, slots, settings.shard, settings.stages)


def _load(pick: Picker, shape: ModelShape, rules: Rules, *, in_flight: int) -> Load:
    states = any(isinstance(cache, State) for cache in _caches(shape))
    return Load(
        max_model_len=pick("max_model_len", *_context(shape)),
        in_flight=in_flight,
        dcp=pick("dcp", 1),
        aligned=pick("prefix_caching", rules.states_cached or not states) and states,
    )


def _grouped(
    settings: Settings, shape: ModelShape, draft_layers: tuple[Layer, ...], unknown: tuple[str, ...]
) -> Settings:
    """With the groups of the whole model, or why there are none."""
    unknown = (*dict.fromkeys(_unknown(settings, shape)), *unknown)
    groups, problem = ((), ()) if unknown else _groups(settings, shape, draft_layers)
    refused = (*_refused(settings, shape), *problem)
    return replace(
        settings,
        groups=groups,
        refused=refused,
        warnings=(*settings.warnings, *refused),
        unknown=(*unknown, *problem),
    )


def _caches(shape: ModelShape) -> list[Cache]:
    return [cache for layer in shape.layers for cache in layer.caches]


def _kv_dtype(pick: Picker, shape: ModelShape, dtype: str, device: Device) -> tuple[str, Source]:
    """The KV format. Sparse attention has layouts of its own for 8 bits, and compressed attention needs one."""
    name, source = pick.known("kv_cache_dtype", *_checkpoint_kv_dtype(shape, dtype))
    caches = _caches(shape)
    if any(isinstance(cache, Record) for cache in caches) and (source == "default" or name in _EIGHT_BITS):
        hopper = any(gpu in (device.name or "").upper() for gpu in _HOPPER)
        newest = (shape.model_type or "").startswith("deepseek_v41")
        return ("mxfp8_ds_mla" if newest and not hopper else "fp8_ds_mla"), source
    if any(isinstance(cache, Latent) and cache.sparse for cache in caches) and name in _EIGHT_BITS:
        return "fp8_ds_mla", source
    return name, source


def _layouts(arguments: Arguments, shape: ModelShape, kv_cache_dtype: str, dtype: str, speculated: int) -> Layouts:
    narrow = kv_cache_dtype == "nvfp4_ds_mla" and any(isinstance(cache, Record) for cache in _caches(shape))
    return Layouts(
        kv=kv_format(kv_cache_dtype) or FORMATS["bfloat16"],
        index=MXFP4_INDEX if narrow else FP8_INDEX,
        dtype=dtype,
        conv_dtype=_given_dtype(arguments.mamba_cache_dtype),
        state_dtype=_given_dtype(arguments.mamba_ssm_cache_dtype),
        columns=speculated,
    )


def _given_dtype(name: str | None) -> str | None:
    return None if name in (None, "auto") else ALIASES.get(name, name)


def _batches(pick: Picker, pp: int) -> int:
    """Batches under way at once: one for each stage, and one more that is scheduled while they compute."""
    return pp + 1 if pick("async_scheduling", True) else pp


def _speculation(speculative: str, shape: ModelShape, draft: ModelShape | None) -> tuple[int, tuple[Layer, ...]]:
    """Speculated tokens, and the layers that speculate: of a draft model, or of the model itself."""
    kind, _, tokens = speculative.partition(":")
    if draft is not None:
        return int(tokens or 1), draft.layers
    return int(tokens or 0), shape.mtp if kind == "mtp" else ()


def _block_size(shape: ModelShape) -> int:
    """What the attention's kernels prefer."""
    caches = _caches(shape)
    if any(isinstance(cache, Record) for cache in caches):
        return 256
    if any(isinstance(cache, IndexKeys) and not cache.packed for cache in caches):
        return 128
    return 64 if any(isinstance(cache, Latent) for cache in caches) else 16


def _checkpoint_dtype(shape: ModelShape) -> tuple[str, Source]:
    """The checkpoint's dtype; fp32 and unnamed ones are held in 16 bit."""
    return (shape.dtype, "checkpoint") if shape.dtype in ("bfloat16", "float16") else ("bfloat16", "default")


def _checkpoint_kv_dtype(shape: ModelShape, dtype: str) -> tuple[str, Source]:
    """The KV format the checkpoint declares, else that of the model; the format of the weights decides nothing."""
    declared = shape.quantization.kv_cache_dtype if shape.quantization else None
    return (declared, "checkpoint") if declared else (dtype, "default")


def _context(shape: ModelShape) -> tuple[int, Source]:
    return (shape.max_positions, "checkpoint") if shape.max_positions else (_DEFAULT_CONTEXT, "default")


def _step_defaults(device_bytes: int | None, device_name: str | None) -> tuple[int, int]:
    """Batched tokens and sequences of a server, by device size (A100s get the small step)."""
    size = device_bytes or 0
    if size >= 160 * GIB:
        return 16_384, 1024
    if size >= 70 * GIB and "a100" not in (device_name or "").lower():
        return 8192, 1024
    return 2048, 256


def _unknown(settings: Settings, shape: ModelShape) -> Iterator[str]:
    if kv_format(settings.kv_cache_dtype) is None:
        yield f"KV cache: the layout of {settings.kv_cache_dtype!r} is not known here"
    layouts = settings.layouts
    for state in (cache for cache in _caches(shape) if isinstance(cache, State)):
        for name in (layouts.conv_dtype or state.conv_dtype, layouts.state_dtype or state.state_dtype):
            if name is not None and name not in STATE_BYTES:
                yield f"KV cache: the bytes of a recurrent state in {shown(name)} are not known here"


def _unknown_draft(speculative: str, shape: ModelShape, draft: ModelShape | None) -> Iterator[str]:
    if draft is not None:
        if not all(layer.known for layer in draft.layers):
            yield f"KV cache: that of the draft model: {'; '.join(draft.unknown)}"
    elif speculative.startswith("draft"):
        yield "KV cache: that of the model that speculates is not known; give it as draft_model"
    elif speculative.startswith("mtp") and not shape.mtp:
        yield "KV cache: the layers that predict several tokens are not known from this config"


def _warnings(settings: Settings, shape: ModelShape, pick: Picker) -> Iterator[str]:
    if "kv_cache_memory_bytes" in settings.resolved and not settings.rules.pool_by_bytes:
        yield f"vLLM {settings.version} has no kv_cache_memory_bytes; it is ignored"
    elif settings.kv_cache_memory_bytes is not None and not pick.defaulted("gpu_memory_utilization"):
        yield "gpu_memory_utilization is ignored: kv_cache_memory_bytes sizes the pool"
    if settings.max_num_seqs > settings.max_num_batched_tokens:
        yield (
            f"vLLM refuses max_num_seqs {settings.max_num_seqs} above max_num_batched_tokens "
            f"{settings.max_num_batched_tokens}"
        )
    if not shape.max_positions and pick.defaulted("max_model_len"):
        yield f"the config has no max_position_embeddings; vLLM then assumes {_DEFAULT_CONTEXT}"
    if settings.kv_cache_dtype.startswith("turboquant") and not any(isinstance(c, State) for c in _caches(shape)):
        yield "vLLM keeps the first and last two attention layers in 16 bits beside turboquant; not counted here"
    if shape.dtype == "float32" and pick.defaulted("dtype"):
        yield "float32 weights are held in 16 bit, as vLLM does by default"
    tp, heads = settings.tp, _kv_heads(shape)
    if tp > 1 and shape.decoder and heads is None:
        yield f"the latent KV is replicated on all {tp} tensor-parallel ranks"
    elif heads and tp > heads:
        yield f"KV heads are replicated: {heads} heads for {tp} tensor-parallel ranks"


def _refused(settings: Settings, shape: ModelShape) -> Iterator[str]:
    yield from _refused_parallelism(settings, shape)
    length = settings.resolved.get("max_model_len")
    running = length is not None and length.source == "reported"
    if shape.max_positions and settings.max_model_len > shape.max_positions and not running:
        yield f"vLLM refuses max_model_len {settings.max_model_len} above the model's {shape.max_positions} by default"
    vocabulary = shape.decoder.vocabulary if shape.decoder else 0
    if settings.lora_bytes != () and has_tables(shape) and vocabulary > MOST_VOCABULARY:
        yield f"vLLM refuses LoRA with a vocabulary of {vocabulary:,}, above {MOST_VOCABULARY:,}"
    latent = any(isinstance(cache, Latent) for cache in _caches(shape))
    if latent and settings.kv_cache_dtype == "nvfp4":
        yield "vLLM refuses kv_cache_dtype nvfp4 with latent attention"


def _groups(
    settings: Settings, shape: ModelShape, draft_layers: tuple[Layer, ...]
) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """The groups of the whole model, the last stage with the layers that speculate; or why vLLM can't make any."""
    counts = (*settings.stages[:-1], settings.stages[-1] + len(draft_layers))
    stages = [stage for stage, count in enumerate(counts) for _ in range(count)]
    try:
        specs = layer_specs(
            (*shape.layers, *draft_layers),
            settings.layouts,
            tp=settings.tp,
            block_size=settings.block_size,
            load=settings.load,
        )
        placed = [Placed(stage=stage, spec=spec) for stage, layer in zip(stages, specs, strict=False) for spec in layer]
        return group_caches(placed, hybrid_manager=settings.hybrid_manager), ()
    except PagingError as error:
        return (), (str(error),)


def _refused_parallelism(settings: Settings, shape: ModelShape) -> Iterator[str]:
    tp, decoder, kv_heads = settings.tp, shape.decoder, _kv_heads(shape)
    if decoder and decoder.heads % tp:
        yield f"vLLM refuses tp {tp}: the model's {decoder.heads} attention heads are not divisible by it"
    dcp = settings.load.dcp
    if tp % dcp:
        yield f"vLLM refuses dcp {dcp}: tp {tp} is not divisible by it"
    elif kv_heads and dcp > max(1, tp // kv_heads):
        yield f"vLLM refuses dcp {dcp}: at tp {tp} the model's {kv_heads} KV heads allow up to {max(1, tp // kv_heads)}"
    if kv_heads and tp > kv_heads and tp % kv_heads:
        yield f"vLLM refuses tp {tp}: it is not a multiple of the model's {kv_heads} KV heads"
    elif kv_heads and tp <= kv_heads and kv_heads % tp:
        yield f"vLLM refuses tp {tp}: the model's {kv_heads} KV heads are not divisible by it"


def _kv_heads(shape: ModelShape) -> int | None:
    """The most KV heads of any layer; None where no layer has heads."""
    heads = [cache.heads for layer in shape.layers for cache in layer.caches if isinstance(cache, Heads)]
    return max(heads, default=None)
