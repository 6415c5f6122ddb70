"""Engine arguments in one vocabulary, each with where its value came from."""

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from msgspec import MsgspecError, Struct, json
from msgspec.structs import asdict, replace

from agent.memory.kv_formats import ALIASES, FORMATS
from agent.memory.units import parse_count, shown

Source = Literal["given", "reported", "checkpoint", "default"]
DTYPES = ("auto", "bfloat16", "float16", "float32", "half", "float")
SPECULATION = ("mtp", "draft", "ngram")
_WITHOUT_LAYERS = ("ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator")
STATE_DTYPES = ("auto", "float32", "float16", "bfloat16")
_GGML = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
KV_CACHE_DTYPES: dict[str, tuple[str, ...]] = {
    "vllm": ("auto", *(name for name in FORMATS if name not in _GGML)),
    "sglang": ("auto", "bfloat16", "float16", "float32", "fp8_e4m3", "fp8_e5m2"),
    "llama_cpp": ("auto", *_GGML),
    "ollama": ("auto", *_GGML),
    "tensorrt_llm": ("auto", "bfloat16", "float16", "fp8", "int8", "nvfp4"),
}
_OF_ANY_ENGINE = ("tp", "pp", "dp", "ep", "dtype", "quantization", "weights_bytes", "max_model_len")
_PLAIN_DTYPES = frozenset({*ALIASES, *ALIASES.values()})  # every engine's 16 and 32 bits by any name


class Arguments(Struct, frozen=True, kw_only=True):
    """What a server was started with, as far as known; None lets the planner use that engine and version's default.

    Field names are those of ``vramscope budget``; an engine's own flag names are translated by ``from_flags``.
    ``num_gpu_blocks`` is the override, not a result. ``speculative`` is ``none``, or N speculated tokens by the model's
    own layers (``mtp:N``), by a draft model (``draft:N``), or without layers (``ngram:N``). ``ep``: experts whole on
    ranks. ``dp_attention``: attention on each data-parallel rank by itself. ``cpu_offload_gb``: GiB of a rank's weights
    that are kept in host memory. ``reported`` names the fields an engine reported itself.
    """

    engine: str = "vllm"
    engine_version: str | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    dcp: int | None = None
    ep: bool | None = None
    dp_attention: bool | None = None
    dtype: str | None = None
    quantization: str | None = None
    weights_bytes: int | None = None
    kv_cache_dtype: str | None = None
    kv_cache_dtype_k: str | None = None
    kv_cache_dtype_v: str | None = None
    block_size: int | None = None
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    mem_fraction_static: float | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    speculative: str | None = None
    draft_model: str | None = None
    prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    mamba_cache_dtype: str | None = None
    mamba_ssm_cache_dtype: str | None = None
    disable_hybrid_kv_cache_manager: bool | None = None
    enable_lora: bool | None = None
    max_loras: int | None = None
    max_lora_rank: int | None = None
    lora_dtype: str | None = None
    fully_sharded_loras: bool | None = None
    cpu_offload_gb: float | None = None
    parallel: int | None = None
    ctx_size: int | None = None
    kv_unified: bool | None = None
    swa_full: bool | None = None
    max_total_tokens: int | None = None
    swa_full_tokens_ratio: float | None = None
    mamba_full_memory_ratio: float | None = None
    ubatch: int | None = None
    num_gpu_blocks: int | None = None
    kv_cache_memory_bytes: int | None = None
    kv_pool_bytes: int | None = None
    pp_layers: tuple[int, ...] | None = None
    enforce_eager: bool | None = None
    reported: frozenset[str] = frozenset()


class Resolved(Struct, frozen=True, kw_only=True):
    """One value a budget used, and its source."""

    value: int | float | str | bool | tuple[int, ...] | None
    source: Source


def from_flags(flags: Mapping[str, object], *, engine: str, own: Mapping[str, str | None] | None = None) -> Arguments:
    """Arguments from an engine's own flag names (dashes or underscores) or from budget's names.

    Args:
        own: flags of an engine without a planner, and the few arguments that count for it; None: means nothing here.

    Raises:
        ValueError: an unknown name, or a value of the wrong type or range; one sentence.
    """
    flag_names = _flag_names(engine) if own is None else {**{_plain(name): name for name in _OF_ANY_ENGINE}, **own}
    values: dict[str, Any] = {}
    written: dict[str, str] = {}
    for flag, value in flags.items():
        field = flag_names.get(_plain(flag), "")
        if field is None:
            continue
        if not field:
            close = difflib.get_close_matches(_plain(flag), flag_names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(sorted(flag_names))}"
            raise ValueError(f"unknown argument {shown(flag)}; {hint}")
        if field in values:
            raise ValueError(f"arguments {written[field]!r} and {flag!r} are the same; keep one")
        values[field], written[field] = _converted(flag, field, value), flag
        if field == "kv_cache_dtype" and value not in (*KV_CACHE_DTYPES[engine], *_PLAIN_DTYPES):
            known = ", ".join(KV_CACHE_DTYPES[engine])
            raise ValueError(f"argument {flag!r}: expected one of {known}, got {shown(value)}")
    return Arguments(engine=engine, **values)


def from_reported(values: Mapping[str, object], *, engine: str) -> tuple[Arguments, tuple[str, ...]]:
    """Arguments an engine reported about itself, by the names of ``Arguments``; what can't be used becomes a note."""
    known: dict[str, Any] = {}
    notes = []
    for field, value in values.items():
        if field not in _CONVERTERS or value is None:
            continue
        try:
            known[field] = _converted(field, field, value)
        except ValueError as error:
            notes.append(f"reported by the engine: {error}")
    return Arguments(engine=engine, **known, reported=frozenset(known)), tuple(notes)


@lru_cache(maxsize=256)  # of every server several times a tick, mostly the same
def merge(given: Arguments, reported: Arguments) -> Arguments:
    """Field by field the given value, else the reported one; ``reported`` keeps which is which."""
    added = {
        field: value
        for field, value in asdict(reported).items()
        if field in _CONVERTERS and value is not None and getattr(given, field) is None
    }
    return replace(given, **added, reported=given.reported | frozenset(added))


def known_values(arguments: Arguments) -> dict[str, Any]:
    """The fields that are known, by name."""
    return {field: value for field, value in asdict(arguments).items() if field in _CONVERTERS and value is not None}


def check(arguments: Arguments) -> None:
    """Hold arguments that came out of a file to what can be given.

    Raises:
        ValueError: a value that neither flags nor reports let through; one sentence.
    """
    for field, value in known_values(arguments).items():
        _converted(field, field, value)


def unplanned(engine: str, engines: Sequence[str]) -> str:
    """What to say of an engine without a planner; ``engines`` are those that could be named."""
    close = difflib.get_close_matches(engine.lower(), engines, n=1, cutoff=0.75)
    hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(engines)}"
    return f"engine {shown(engine)} has no planner; {hint}"


def _plain(flag: str) -> str:
    return flag.lstrip("-").replace("_", "-")


def _converted(flag: str, field: str, value: object) -> Any:
    try:
        return _CONVERTERS[field](value)
    except ValueError as error:
        raise ValueError(f"argument {flag!r}: {error}") from None


def _count(least: int, most: int) -> Callable[[object], int]:
    def convert(value: object) -> int:
        expected = f"expected an integer from {least} to {most}, got {shown(value)}"
        if isinstance(value, str):
            try:
                value = parse_count(value)
            except ValueError:
                raise ValueError(expected) from None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(expected)
        return value

    return convert


def _fraction(value: object) -> float:
    expected = f"expected a number above 0 and up to 1, got {shown(value)}"
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        raise ValueError(expected) from None
    if not 0 < number <= 1:
        raise ValueError(expected)
    return number


def _ratio(value: object) -> float:
    expected = f"expected a number from 0.01 to 100, got {shown(value)}"
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        raise ValueError(expected) from None
    if not 0.01 <= number <= 100:
        raise ValueError(expected)
    return number


def _gib(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1 << 20:
        raise ValueError(f"expected a number of GiB, got {shown(value)}")
    return float(value)


def _text(most: int) -> Callable[[object], str]:
    def convert(value: object) -> str:
        if not isinstance(value, str) or not value:
            raise ValueError(f"expected text, got {shown(value)}")
        if len(value) > most:
            raise ValueError(f"expected at most {most} letters, got {len(value)}")
        return value

    return convert


def _state_dtype(value: object) -> str:
    if value not in STATE_DTYPES:
        raise ValueError(f"expected one of {', '.join(STATE_DTYPES)}, got {shown(value)}")
    return str(value)


def _dtype(value: object) -> str:
    if value not in DTYPES:
        raise ValueError(f"expected one of {', '.join(DTYPES)}, got {shown(value)}")
    return str(value)


def _switch(value: object) -> bool:
    named = (
        {"true": True, "false": False, "on": True, "off": False}.get(value.lower()) if isinstance(value, str) else value
    )
    if not isinstance(named, bool):
        raise ValueError(f"expected true or false, got {shown(value)}")
    return named


def _layers(value: object) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not 0 < len(parts) <= 1024:
        raise ValueError(f"expected layers per stage such as 20,21,20, got {shown(value)}")
    return tuple(_count(1, 10_000)(part.strip() if isinstance(part, str) else part) for part in parts)


def _speculative(value: object) -> str:
    """``none`` or kind:N; also vLLM's JSON object with a method."""
    if isinstance(value, str) and value.startswith("{"):
        value = _speculation(value)
    kind, _, tokens = value.partition(":") if isinstance(value, str) else ("", "", "")
    if value == "none" or (kind in SPECULATION and tokens.isdecimal() and 0 < int(tokens) <= 64):
        return str(value)
    raise ValueError(f"expected none, mtp:N, draft:N or ngram:N, N from 1 to 64 speculated tokens, got {shown(value)}")


def _speculation(text: str) -> str:
    """A speculative config in one word: by the model's own layers, by a draft model, or by neither."""
    try:
        config = json.decode(text, type=dict[str, Any])
    except (MsgspecError, RecursionError):
        return text
    method, tokens = str(config.get("method", "")), config.get("num_speculative_tokens")
    kind = "mtp" if method.endswith("mtp") else "ngram" if method in _WITHOUT_LAYERS else "draft"
    return f"{kind}:{tokens}"


_RANKS = _count(1, 1024)
_BYTES = _count(1, 1 << 50)
_NAME, _PATH = _text(100), _text(1000)
_TOKENS = _count(1, 1 << 31)
_CONVERTERS: dict[str, Callable[[object], object]] = {
    "engine_version": _NAME,
    "tp": _RANKS,
    "pp": _RANKS,
    "dp": _RANKS,
    "dcp": _RANKS,
    "ep": _switch,
    "dp_attention": _switch,
    "dtype": _dtype,
    "quantization": _NAME,
    "weights_bytes": _BYTES,
    "kv_cache_dtype": _NAME,
    "kv_cache_dtype_k": _NAME,
    "kv_cache_dtype_v": _NAME,
    "block_size": _count(1, 65_536),
    "max_model_len": _TOKENS,
    "gpu_memory_utilization": _fraction,
    "mem_fraction_static": _fraction,
    "max_num_batched_tokens": _TOKENS,
    "max_num_seqs": _count(1, 1 << 20),
    "speculative": _speculative,
    "draft_model": _PATH,
    "prefix_caching": _switch,
    "async_scheduling": _switch,
    "mamba_cache_dtype": _state_dtype,
    "mamba_ssm_cache_dtype": _state_dtype,
    "disable_hybrid_kv_cache_manager": _switch,
    "enable_lora": _switch,
    "max_loras": _count(1, 1 << 20),
    "max_lora_rank": _count(1, 65_536),
    "lora_dtype": _dtype,
    "fully_sharded_loras": _switch,
    "cpu_offload_gb": _gib,
    "parallel": _count(1, 65_536),
    "ctx_size": _TOKENS,
    "kv_unified": _switch,
    "swa_full": _switch,
    "max_total_tokens": _count(1, 1 << 40),
    "swa_full_tokens_ratio": _fraction,
    "mamba_full_memory_ratio": _ratio,
    "ubatch": _TOKENS,
    "num_gpu_blocks": _count(1, 1 << 40),
    "kv_cache_memory_bytes": _BYTES,
    "kv_pool_bytes": _BYTES,
    "pp_layers": _layers,
    "enforce_eager": _switch,
}
_FLAGS = {
    "vllm": {
        "tensor-parallel-size": "tp",
        "pipeline-parallel-size": "pp",
        "data-parallel-size": "dp",
        "num-gpu-blocks-override": "num_gpu_blocks",
        "kv-cache-memory": "kv_cache_memory_bytes",
        "decode-context-parallel-size": "dcp",
        "enable-expert-parallel": "ep",
        "enable-prefix-caching": "prefix_caching",
        "speculative-config": "speculative",
    },
    "sglang": {
        "tensor-parallel-size": "tp",
        "tp-size": "tp",
        "pipeline-parallel-size": "pp",
        "pp-size": "pp",
        "data-parallel-size": "dp",
        "dp-size": "dp",
        "dcp-size": "dcp",
        "enable-dp-attention": "dp_attention",
        "context-length": "max_model_len",
        "page-size": "block_size",
        "chunked-prefill-size": "max_num_batched_tokens",
        "max-running-requests": "max_num_seqs",
        "disable-cuda-graph": "enforce_eager",
    },
    "llama_cpp": {
        "c": "ctx_size",
        "np": "parallel",
        "ub": "ubatch",
        "ubatch-size": "ubatch",
        "ctk": "kv_cache_dtype_k",
        "cache-type-k": "kv_cache_dtype_k",
        "ctv": "kv_cache_dtype_v",
        "cache-type-v": "kv_cache_dtype_v",
        "kvu": "kv_unified",
    },
    "ollama": {
        "num-parallel": "parallel",
        "num-ctx": "max_model_len",
        "context-length": "max_model_len",
        "kv-cache-type": "kv_cache_dtype",
    },
}
ENGINES = tuple(_FLAGS)  # engines with a planner


def _flag_names(engine: str) -> Mapping[str, str | None]:
    if engine not in ENGINES:
        raise ValueError(unplanned(engine, ENGINES))
    return {_plain(field): field for field in _CONVERTERS} | _FLAGS[engine]
