"""SGLang's settings: what was given, and its defaults by device and model.

Source: SGLang 0.5.23 srt/arg_groups, srt/configs/model_config.py, srt/mem_cache/kv_cache_dtype.py.
"""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from agent.memory.arguments import Arguments, Source
from agent.memory.kv_cache import Layouts
from agent.memory.kv_formats import FORMATS, kv_format
from agent.memory.layers import Cache, Compressor, Heads, IndexKeys, Latent, Record, State
from agent.memory.matrices import Shard, rank_shard
from agent.memory.model_config import ModelShape
from agent.memory.planners import planner
from agent.memory.planners.planner import Device, Picker, split_stages
from agent.memory.planners.sglang.defaults import chunk_and_sequences, static_fraction
from agent.memory.units import shown

DEFAULT_VERSION = "0.5.23"
KV_CACHE_DTYPES = ("bfloat16", "float16", "float32", "fp8_e4m3", "fp8_e5m2")
WINDOW_POOLS = frozenset(
    {
        "Llama4ForConditionalGeneration",
        "GptOssForCausalLM",
        "GraniteSWAForCausalLM",
        "GraniteMoeSWAForCausalLM",
        "MiMoV2ForCausalLM",
        "MiMoV2FlashForCausalLM",
        "Step3p5ForCausalLM",
        "Step3p7ForConditionalGeneration",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "LagunaForCausalLM",
        "MellumForCausalLM",
    }
)

_KNOWN = re.compile(r"v?0\.5\.\d{1,3}\b")
_EIGHT_BITS = ("fp8_e4m3", "fp8_e5m2")
_SPARSE_PAGE = 64
_DEFAULT_CONTEXT = 2048
_SLOTS_WITH_PREFIXES = 3
_UNPLANNED: dict[type[Cache], str] = {
    Record: "records of compressed attention",
    Compressor: "compressor states",
}


class Settings(planner.Settings, frozen=True, kw_only=True):
    """What only SGLang has.

    Attributes:
        attention_tp: ranks that share the attention heads of one replica.
        page_size: tokens that are given out together.
        chunk: tokens of a prefill step.
        sequences: requests of a step.
        window_pools: whether layers with a window have a pool of their own; SGLang has a list of architectures.
        state_slots: slots of recurrent states for one running request.
    """

    attention_tp: int
    kv_cache_dtype: str
    layouts: Layouts
    page_size: int
    mem_fraction_static: float | None
    chunk: int
    sequences: int
    enforce_eager: bool
    window_pools: bool
    window_ratio: float
    state_ratio: float
    state_slots: int
    requests: int | None
    max_total_tokens: int | None
    kv_pool_bytes: int | None

    @property
    def shard(self) -> Shard:
        """Experts and MLPs over all ranks, attention over those of one replica; more servers are copies."""
        return replace(rank_shard(tp=self.tp, dp=1, whole_experts=self.ep), attention=self.attention_tp)

    @property
    def pool_given(self) -> bool:
        return self.max_total_tokens is not None or self.kv_pool_bytes is not None


def resolve(arguments: Arguments, shape: ModelShape, device: Device, *, draft: ModelShape | None) -> Settings:
    """Fill in what was not given, from the checkpoint and the defaults of the device.

    Raises:
        ValueError: stages that don't match the model's layers; one sentence.
    """
    pick = Picker(arguments)
    version = pick("engine_version", DEFAULT_VERSION)
    tp, pp, dp = pick("tp", 1), pick("pp", 1), pick("dp", 1)
    replicas = dp if pick("dp_attention", False) else 1
    chunk, sequences = chunk_and_sequences(device.total_bytes or device.cuda_bytes, tp=tp)
    chunk = pick("max_num_batched_tokens", chunk)
    requests = pick.if_given("max_num_seqs", arguments.max_num_seqs)
    sequences = min(sequences, requests) if requests else sequences
    dtype = pick.unless_auto("dtype", *_checkpoint_dtype(shape))
    kv_cache_dtype = pick.unless_auto("kv_cache_dtype", *_checkpoint_kv_dtype(shape, dtype))
    eager = pick("enforce_eager", False)
    sparse = any(isinstance(cache, Latent) and cache.sparse for cache in _caches(shape))
    settings = Settings(
        version=version,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=pick("ep", False),
        stages=split_stages(pick.if_given("pp_layers", arguments.pp_layers), len(shape.layers), pp),
        dtype=dtype,
        quantization=pick.if_given("quantization", arguments.quantization),
        max_model_len=pick("max_model_len", *_context(shape)),
        attention_tp=max(1, tp // replicas),
        kv_cache_dtype=kv_cache_dtype,
        layouts=_layouts(kv_cache_dtype, dtype, sparse=sparse),
        page_size=pick("block_size", _SPARSE_PAGE if sparse else 1),
        mem_fraction_static=_fraction(
            pick, device, shape, chunk=chunk, sequences=sequences, replicas=replicas, tp=tp, pp=pp, eager=eager
        ),
        chunk=chunk,
        sequences=sequences,
        enforce_eager=eager,
        window_pools=shape.architecture in WINDOW_POOLS,
        window_ratio=pick("swa_full_tokens_ratio", 0.8),
        state_ratio=pick("mamba_full_memory_ratio", 0.9),
        state_slots=_SLOTS_WITH_PREFIXES if pick("prefix_caching", True) else 1,
        requests=requests,
        max_total_tokens=pick.if_given("max_total_tokens", arguments.max_total_tokens),
        kv_pool_bytes=pick.if_given("kv_pool_bytes", arguments.kv_pool_bytes),
        resolved=pick.resolved,
    )
    refused = tuple(_refused(settings, shape, replicas))
    return replace(
        settings,
        refused=refused,
        warnings=(*_warnings(settings, shape, pick), *refused),
        unknown=tuple(_unknown(settings, shape, arguments)),
    )


def _caches(shape: ModelShape) -> list[Cache]:
    return [cache for layer in shape.layers for cache in layer.caches]


def _checkpoint_dtype(shape: ModelShape) -> tuple[str, Source]:
    return (shape.dtype, "checkpoint") if shape.dtype in ("bfloat16", "float16") else ("bfloat16", "default")


def _checkpoint_kv_dtype(shape: ModelShape, dtype: str) -> tuple[str, Source]:
    """FP8 where the checkpoint declares it, else that of the model."""
    declared = shape.quantization.kv_cache_dtype if shape.quantization else None
    return ("fp8_e4m3", "checkpoint") if declared in ("fp8", "fp8_e4m3") else (dtype, "default")


def _context(shape: ModelShape) -> tuple[int, Source]:
    return (shape.max_positions, "checkpoint") if shape.max_positions else (_DEFAULT_CONTEXT, "default")


def _layouts(kv_cache_dtype: str, dtype: str, *, sparse: bool) -> Layouts:
    """Sparse latent attention keeps 8 bits with scales; convolution states are bf16, recurrent ones fp32 by default."""
    name = "fp8_ds_mla" if sparse and kv_cache_dtype in _EIGHT_BITS else kv_cache_dtype
    return Layouts(kv=kv_format(name) or FORMATS["bfloat16"], dtype="float32", conv_dtype="bfloat16")


def _fraction(
    pick: Picker,
    device: Device,
    shape: ModelShape,
    *,
    chunk: int,
    sequences: int,
    replicas: int,
    tp: int,
    pp: int,
    eager: bool,
) -> float | None:
    """The share for weights and pools; None where it depends on a device that is not known."""
    total = device.total_bytes or device.cuda_bytes
    given = pick.given("mem_fraction_static")
    if given is None and total is None:
        return None
    latent = any(isinstance(cache, Latent) for cache in _caches(shape))
    default = static_fraction(
        total or 1,
        chunk=chunk,
        sequences=sequences,
        tp=tp,
        pp=pp,
        replicas=replicas,
        latent=latent,
        eager=eager,
    )
    return pick("mem_fraction_static", default)


def _warnings(settings: Settings, shape: ModelShape, pick: Picker) -> Iterator[str]:
    if not _KNOWN.match(settings.version):
        yield f"SGLang version {shown(settings.version)} is not known here; the rules of {DEFAULT_VERSION} are used"
    windows = any(isinstance(cache, Heads) and cache.reach in ("window", "chunk") for cache in _caches(shape))
    if windows and not settings.window_pools:
        yield f"SGLang keeps all tokens of every layer of {shape.architecture or 'this model'}, windows or not"
    if pick.defaulted("block_size") and any(isinstance(cache, Latent) for cache in _caches(shape)):
        yield f"pages of {settings.page_size} tokens are assumed; attention backends of some GPUs take 32 to 128"
    if shape.other_modules:
        yield "SGLang keeps 0.1 to 1.1 GiB of the pool for images and the like; it is not taken off here"
    if settings.mem_fraction_static is not None and settings.mem_fraction_static <= 0:
        yield "the device is smaller than what SGLang leaves for activations; give mem_fraction_static"


def _refused(settings: Settings, shape: ModelShape, replicas: int) -> Iterator[str]:
    if settings.tp % replicas:
        yield f"SGLang refuses dp {replicas} with attention on each rank: tp {settings.tp} is not a multiple of it"
    if settings.kv_cache_dtype not in KV_CACHE_DTYPES:
        yield f"SGLang has no KV format {shown(settings.kv_cache_dtype)}; expected one of {', '.join(KV_CACHE_DTYPES)}"


def _unknown(settings: Settings, shape: ModelShape, arguments: Arguments) -> Iterator[str]:
    caches = _caches(shape)
    found = sorted({name for cache in caches for kind, name in _UNPLANNED.items() if isinstance(cache, kind)})
    if any(isinstance(cache, IndexKeys) and not cache.packed for cache in caches):
        found.append("index keys that are not packed")
    if any(isinstance(cache, Heads) and cache.reach == "encoder" for cache in caches):
        found.append("an encoder's output")
    if found:
        yield f"KV cache: how SGLang {settings.version} sizes pools for {', '.join(found)} is not known here"
    if arguments.dcp not in (None, 1):
        yield "KV cache: how SGLang splits pools over context-parallel ranks (dcp) is not known here"
    if arguments.speculative not in (None, "none") or arguments.draft_model:
        yield "KV cache: the pool of a model that speculates is not known here for SGLang"
    if any(isinstance(cache, State) for cache in caches) and settings.window_pools:
        yield "KV cache: how SGLang sizes windows and states together is not known here"
