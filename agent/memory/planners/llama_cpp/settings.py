"""llama.cpp's settings: what was given, and its server's defaults by build.

    context of all slots = --ctx-size, padded to 256
    context of one slot  = all of that in a unified cache, else its share, padded to 256

Source: llama.cpp b11549 src/llama-context.cpp, src/llama-cparams.h (LLAMA_MAX_SEQ), common/arg.cpp.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from agent.memory.arguments import Arguments, Source
from agent.memory.kv_formats import ALIASES, FORMATS, KvFormat, kv_format, mixed
from agent.memory.layers import Cache, Compressor, Heads, IndexKeys, Latent, Record, State
from agent.memory.matrices import WHOLE, Shard
from agent.memory.model_config import ModelShape
from agent.memory.planners import planner
from agent.memory.planners.llama_cpp.rules import DEFAULT_VERSION, Rules, rules_for
from agent.memory.planners.planner import Device, Picker, split_stages
from agent.memory.units import ceil_div, shown

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")

_PADDING = 256
_BLOCK = 32
_BATCH, _UBATCH, _SLOTS = 2048, 512, 4
_MOST_SLOTS = 256
_NO_CONTEXT = 4096
_OWN_NAMES = {"auto": "f16", "float16": "f16", "bfloat16": "bf16", "float32": "f32"}
_WITHOUT_WINDOWS = ("mistral", "mixtral", "phi3", "qwen2")  # llama.cpp keeps all of their tokens
_UNPLANNED: dict[type[Cache], str] = {
    Record: "records of compressed attention",
    Compressor: "compressor states",
}


class Settings(planner.Settings, frozen=True, kw_only=True):
    """What only llama.cpp has. ``max_model_len`` is the context of one slot.

    Attributes:
        slots: requests at a time.
        streams: caches: one for each slot, or one for all where it is unified.
        cells: tokens that the full cache of a stream has room for.
        windows: whether layers with a window keep that alone.
    """

    rules: Rules
    kv: KvFormat
    slots: int
    streams: int
    cells: int
    ubatch: int
    swa_full: bool
    windows: bool

    @property
    def shard(self) -> Shard:
        """Tables are as the file has them."""
        return WHOLE

    @property
    def embedding_on_device(self) -> bool:
        """llama.cpp looks tokens up on the host."""
        return False

    @property
    def pool_given(self) -> bool:
        """The context decides, whatever the device has."""
        return True


def resolve(arguments: Arguments, shape: ModelShape, device: Device, *, draft: ModelShape | None) -> Settings:
    """Fill in what was not given, from the model and the defaults of the build.

    Raises:
        ValueError: stages that don't match the model's layers; one sentence.
    """
    pick = Picker(arguments)
    version = pick("engine_version", DEFAULT_VERSION)
    rules, version_warning = rules_for(version)
    slots = pick("parallel", _SLOTS)
    unified = pick("kv_unified", arguments.parallel is None)
    streams = 1 if unified else slots
    context, source = _context(arguments, shape, rules, streams)
    context = pick("ctx_size", context, source)
    names = [_cache_type(pick, name, arguments.kv_cache_dtype) for name in ("kv_cache_dtype_k", "kv_cache_dtype_v")]
    k, v = (kv_format(name) or FORMATS["f16"] for name in names)
    pp = pick("pp", 1)
    length = padded(context // streams)
    whole = rules.hybrid_cells_of_all and any(isinstance(cache, State) for cache in _caches(shape))
    settings = Settings(
        rules=rules,
        version=version,
        tp=pick("tp", 1),
        pp=pp,
        dp=pick("dp", 1),
        stages=split_stages(pick.if_given("pp_layers", arguments.pp_layers), len(shape.layers), pp),
        dtype=pick.unless_auto("dtype", *_checkpoint_dtype(shape)),
        quantization=pick.if_given("quantization", arguments.quantization),
        max_model_len=length,
        kv=mixed(k, v),
        slots=slots,
        streams=streams,
        cells=length * streams if whole else length,
        ubatch=min(pick("ubatch", _UBATCH), _BATCH, context),
        swa_full=pick("swa_full", False),
        windows=shape.model_type not in _WITHOUT_WINDOWS,
        resolved=pick.resolved,
    )
    refused = tuple(_refused(shape, slots, *names))
    return replace(
        settings,
        refused=refused,
        warnings=(*_warnings(settings, shape, pick, version_warning), *refused),
        unknown=tuple(_unknown(settings, shape)),
    )


def _checkpoint_dtype(shape: ModelShape) -> tuple[str, Source]:
    known = shape.dtype in ("bfloat16", "float16", "float32")
    return (shape.dtype, "checkpoint") if known and shape.dtype is not None else ("float16", "default")


def _caches(shape: ModelShape) -> list[Cache]:
    return [cache for layer in shape.layers for cache in layer.caches]


def padded(tokens: int) -> int:
    return max(1, ceil_div(tokens, _PADDING)) * _PADDING


def _context(arguments: Arguments, shape: ModelShape, rules: Rules, streams: int) -> tuple[int, Source]:
    """Tokens of all streams together; ``max_model_len`` is what one request may have."""
    if arguments.max_model_len is not None:
        return arguments.max_model_len * streams, "reported" if "max_model_len" in arguments.reported else "given"
    if shape.max_positions is None:
        return _NO_CONTEXT * streams, "default"
    return shape.max_positions * (streams if rules.context_of_each else 1), "checkpoint"


def _cache_type(pick: Picker, name: str, both: str | None) -> str:
    """K's or V's type by llama.cpp's name; its own, else that of both."""
    chosen = pick(name, both or "f16", "default" if both is None else "given")
    return _OWN_NAMES.get(ALIASES.get(chosen, chosen), chosen)


def _refused(shape: ModelShape, slots: int, k: str, v: str) -> Iterator[str]:
    if slots > _MOST_SLOTS:
        yield f"llama.cpp refuses {slots:,} slots: {_MOST_SLOTS} sequences are the most it has"
    for name in sorted({k, v} - set(CACHE_TYPES)):
        yield f"llama.cpp has no cache type {shown(name)}; expected one of {', '.join(CACHE_TYPES)}"
    caches = _caches(shape)
    if k != v and any(isinstance(cache, Latent) for cache in caches):
        yield f"llama.cpp refuses cache types {k} and {v} for latent attention: its V is a view of its K"
    widths = {side for cache in caches if isinstance(cache, Heads) for side in (cache.k_dim, cache.v_dim)}
    narrow = sorted(width for width in widths if width % _BLOCK)
    if narrow and not {k, v} <= {"f32", "f16", "bf16"}:
        yield f"llama.cpp refuses cache types {k} and {v}: {narrow[0]} elements of a head are no whole blocks"


def _warnings(settings: Settings, shape: ModelShape, pick: Picker, version_warning: str | None) -> Iterator[str]:
    if version_warning:
        yield version_warning
    if pick.defaulted("ctx_size"):
        taken = f"the model's {shape.max_positions:,}" if shape.max_positions else f"{_NO_CONTEXT:,} for want of one"
        yield f"the context is not given, {taken} tokens are taken; llama.cpp takes fewer where they do not fit"
    if settings.streams > 1:
        yield f"each of the {settings.slots} slots has {settings.max_model_len:,} tokens of its own"
    if settings.pp > 1:
        yield "llama.cpp gives devices layers by their free memory; devices that are alike are assumed"


def _unknown(settings: Settings, shape: ModelShape) -> Iterator[str]:
    if settings.tp > 1:
        yield "KV cache: how llama.cpp splits it by rows or tensors (tp) is not known here; devices take layers (pp)"
    caches = _caches(shape)
    found = sorted({name for cache in caches for kind, name in _UNPLANNED.items() if isinstance(cache, kind)})
    if any(isinstance(cache, IndexKeys) and not (cache.packed and cache.ratio == 1) for cache in caches):
        found.append("index keys of this kind")
    if any(isinstance(cache, Heads) and cache.reach == "encoder" for cache in caches):
        found.append("an encoder's output")
    if any(isinstance(cache, State) and cache.kind == "lightning" for cache in caches):
        found.append("states of lightning attention")
    if found:
        yield f"KV cache: how llama.cpp keeps {', '.join(found)} is not known here"
