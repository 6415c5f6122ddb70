"""How vLLM sizes its KV pool: defaults, rules by version, and the pool arithmetic of one server.

    requested = ceil(CUDA total x gpu_memory_utilization)
    available = requested - weights - activations - graphs (from 0.20.2) - libraries
    blocks    = min over ranks of available // bytes per block

Source: vLLM 0.33 v1/worker/gpu_worker.py, v1/core/kv_cache_planning.py, engine/arg_utils.py; old rules: 0.19.1, 0.11.2.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.arguments import Arguments, Resolved, Source
from agent.memory.kv_cache import ALIASES, KvBudget, KvFormat, KvGroup, stage_layers, token_bytes
from agent.memory.model_config import Layer, ModelShape
from agent.memory.runtime import RuntimeBudget
from agent.memory.units import GIB, ceil_div, shown

Version = tuple[int, int, int]
T = TypeVar("T", bound=int | float | str | bool | tuple[int, ...])


class Rules(Struct, frozen=True, kw_only=True):
    """What changed between versions, from version ``since`` on."""

    since: Version
    fraction: float = 0.92
    pool_by_bytes: bool = True  # kv_cache_memory_bytes exists
    tokens_by_concurrency: bool = True  # the log's tokens are concurrency x max_model_len
    graphs_inside: bool = True  # CUDA graphs count against the fraction
    communication_outside: bool = True  # the baseline is taken after NCCL's buffers


RULES = (
    Rules(
        since=(0, 8, 0),
        fraction=0.9,
        pool_by_bytes=False,
        tokens_by_concurrency=False,
        graphs_inside=False,
        communication_outside=False,
    ),
    Rules(
        since=(0, 10, 2), fraction=0.9, tokens_by_concurrency=False, graphs_inside=False, communication_outside=False
    ),
    Rules(since=(0, 20, 0), graphs_inside=False, communication_outside=False),
    Rules(since=(0, 20, 2), communication_outside=False),
    Rules(since=(0, 28, 0)),
)
NEWEST_KNOWN = (0, 33)
DEFAULT_VERSION = "0.33"

_DEFAULT_CONTEXT = 2048
_FIRST_PARTS = re.compile(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")


class Settings(Struct, frozen=True, kw_only=True):
    """Every value a plan uses. ``resolved`` holds the same values with their sources, for the record."""

    rules: Rules
    version: str
    tp: int
    pp: int
    dp: int
    stages: tuple[int, ...]
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    block_size: int
    max_model_len: int
    gpu_memory_utilization: float
    max_num_batched_tokens: int
    max_num_seqs: int
    enforce_eager: bool
    num_gpu_blocks: int | None
    kv_cache_memory_bytes: int | None
    kv_pool_bytes: int | None
    resolved: dict[str, Resolved]
    warnings: tuple[str, ...] = ()

    @property
    def defaulted(self) -> frozenset[str]:
        """Names of values that nobody gave or reported."""
        return frozenset(name for name, value in self.resolved.items() if value.source in ("default", "checkpoint"))

    @property
    def pool_given(self) -> bool:
        """Whether the pool's size is given, so that the memory arithmetic decides nothing."""
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


class Stage(Struct, frozen=True, kw_only=True):
    """One pipeline stage of one tensor-parallel rank; None is not known."""

    layers: tuple[Layer, ...]
    weights_bytes: int | None
    runtime: RuntimeBudget | None


def rules_for(version: str) -> tuple[Rules, str | None]:
    """The rules of a version, the newest for one that is not known, and then a warning that says so."""
    match = _FIRST_PARTS.match(version)
    if match is None:
        return RULES[-1], f"vLLM version {shown(version)} can't be read; the rules of {DEFAULT_VERSION} are used"
    number = (int(match[1]), int(match[2]), int(match[3] or 0))
    if number[:2] > NEWEST_KNOWN:
        return RULES[-1], f"vLLM {version} is newer than the rules known here; those of {DEFAULT_VERSION} are used"
    known = [rules for rules in RULES if rules.since <= number]
    if not known:
        return RULES[0], f"vLLM {version} is older than the rules known here; those of 0.8 are used"
    return known[-1], None


def resolve(arguments: Arguments, shape: ModelShape, *, device_bytes: int | None, device_name: str | None) -> Settings:
    """Fill in what was not given, from the checkpoint and the defaults of the version.

    Raises:
        ValueError: pipeline stages that don't match the model's layers; one sentence.
    """
    pick = _Picker(arguments)
    version = pick("engine_version", DEFAULT_VERSION)
    rules, version_warning = rules_for(version)
    batched, sequences = _step_defaults(device_bytes, device_name)
    dtype = pick.unless_auto("dtype", *_checkpoint_dtype(shape))
    pp = pick("pp", 1)
    by_bytes = pick.if_given("kv_cache_memory_bytes", arguments.kv_cache_memory_bytes)
    settings = Settings(
        rules=rules,
        version=version,
        tp=pick("tp", 1),
        pp=pp,
        dp=pick("dp", 1),
        stages=_stages(pick.if_given("pp_layers", arguments.pp_layers), len(shape.layers), pp),
        dtype=dtype,
        kv_cache_dtype=pick.unless_auto("kv_cache_dtype", *_checkpoint_kv_dtype(shape, dtype)),
        block_size=pick("block_size", 64 if any(layer.kind == "mla" for layer in shape.layers) else 16),
        max_model_len=pick("max_model_len", *_context(shape)),
        gpu_memory_utilization=pick("gpu_memory_utilization", rules.fraction),
        max_num_batched_tokens=pick("max_num_batched_tokens", batched),
        max_num_seqs=pick("max_num_seqs", sequences),
        enforce_eager=pick("enforce_eager", False),
        quantization=pick.if_given("quantization", arguments.quantization),
        num_gpu_blocks=pick.if_given("num_gpu_blocks", arguments.num_gpu_blocks),
        kv_cache_memory_bytes=by_bytes if rules.pool_by_bytes else None,
        kv_pool_bytes=pick.if_given("kv_pool_bytes", arguments.kv_pool_bytes),
        resolved=pick.resolved,
    )
    return replace(settings, warnings=tuple(_warnings(settings, shape, version_warning)))


def plan(stages: Sequence[Stage], layout: KvFormat, settings: Settings, *, cuda_bytes: int | None) -> list[KvBudget]:
    """The pool of each stage's rank; the stage with the fewest blocks decides for all.

    Fields that need memory figures are None where a stage's weights, runtime or device are not known.
    """
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


def requested_bytes(cuda_bytes: int, settings: Settings) -> int:
    """The engine's own share of the device."""
    return math.ceil(cuda_bytes * settings.gpu_memory_utilization)


class _Picker:
    """Takes the given value or a default, and keeps what was taken with its source."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self.resolved: dict[str, Resolved] = {}

    def __call__(self, name: str, default: T, source: Source = "default") -> T:
        given: T | None = getattr(self._arguments, name)
        return self._keep(name, default, source) if given is None else self._keep(name, given, self._source(name))

    def unless_auto(self, name: str, default: str, source: Source) -> str:
        given: str | None = getattr(self._arguments, name)
        if given is None or given == "auto":
            return self._keep(name, default, source)
        return self._keep(name, ALIASES.get(given, given), self._source(name))

    def if_given(self, name: str, value: T | None) -> T | None:
        return None if value is None else self._keep(name, value, self._source(name))

    def _keep(self, name: str, value: T, source: Source) -> T:
        self.resolved[name] = Resolved(value=value, source=source)
        return value

    def _source(self, name: str) -> Source:
        return "reported" if name in self._arguments.reported else "given"


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


def _stages(given: tuple[int, ...] | None, count: int, pp: int) -> tuple[int, ...]:
    if given is not None:
        if len(given) != pp or (count and sum(given) != count):
            raise ValueError(
                f"argument 'pp_layers': expected {pp} stage(s) with {count or 'all'} layers in all, got {len(given)} "
                f"with {sum(given)}"
            )
        return given
    if count and pp > count:
        raise ValueError(f"argument 'pp': expected at most the model's {count} layers, got {pp}")
    return stage_layers(count, pp)


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
    caches = [layer.cache for layer in stage.layers if layer.cache is not None]
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


def _warnings(settings: Settings, shape: ModelShape, version_warning: str | None) -> Iterator[str]:
    if version_warning:
        yield version_warning
    if "kv_cache_memory_bytes" in settings.resolved and not settings.rules.pool_by_bytes:
        yield f"vLLM {settings.version} has no kv_cache_memory_bytes; it is ignored"
    elif settings.kv_cache_memory_bytes is not None and "gpu_memory_utilization" not in settings.defaulted:
        yield "gpu_memory_utilization is ignored: kv_cache_memory_bytes sizes the pool"
    if settings.max_num_seqs > settings.max_num_batched_tokens:
        yield (
            f"vLLM refuses max_num_seqs {settings.max_num_seqs} above max_num_batched_tokens "
            f"{settings.max_num_batched_tokens}"
        )
    if shape.max_positions and settings.max_model_len > shape.max_positions:
        yield f"vLLM refuses max_model_len {settings.max_model_len} above the model's {shape.max_positions} by default"
    if not shape.max_positions and "max_model_len" in settings.defaulted:
        yield f"the config has no max_position_embeddings; vLLM then assumes {_DEFAULT_CONTEXT}"
    if shape.dtype == "float32" and "dtype" in settings.defaulted:
        yield "float32 weights are held in 16 bit, as vLLM does by default"
    yield from _tensor_parallel_warnings(settings, shape)


def _tensor_parallel_warnings(settings: Settings, shape: ModelShape) -> Iterator[str]:
    tp, decoder = settings.tp, shape.decoder
    if tp == 1 or decoder is None:
        return
    if decoder.heads % tp:
        yield f"vLLM refuses tp {tp}: the model's {decoder.heads} attention heads are not divisible by it"
    kv_heads = shape.layers[0].cache.heads if shape.layers[0].cache else 1
    if decoder.mla:
        yield f"the latent KV is replicated on all {tp} tensor-parallel ranks"
    elif tp > kv_heads:
        yield f"KV heads are replicated: {kv_heads} heads for {tp} tensor-parallel ranks"
        if tp % kv_heads:
            yield f"vLLM refuses tp {tp}: it is not a multiple of the model's {kv_heads} KV heads"
    elif kv_heads % tp:
        yield f"vLLM refuses tp {tp}: the model's {kv_heads} KV heads are not divisible by it"
