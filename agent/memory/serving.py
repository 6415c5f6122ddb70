"""What an engine can be told: its flags for a set of arguments, ways to spread a model, and its smaller KV formats.

Flag names: vLLM 0.33 ``engine/arg_utils.py``, SGLang 0.5.23 ``srt/arg_groups/fields``, ``llama-server --help``.
Formats: ``supported_kv_cache_dtypes`` of vLLM's attention backends, SGLang's choices of ``--kv-cache-dtype``,
llama.cpp's of ``--cache-type-k``. Order: FP8, INT8, K in 8 bits with V in 4 (K is the more sensitive), 4 bits.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from agent.memory.arguments import Arguments

EVALUATE = "evaluate on your own long contexts before you rely on it"
_FP8 = f"FP8: mostly close to 16 bit, K is more sensitive than V; {EVALUATE}"
_INT8 = f"INT8: close to 16 bit with many scales, K is more sensitive than V; {EVALUATE}"
_MIXED = f"K in 8 bits, V in 4: 4-bit V costs less than 4-bit K; {EVALUATE}"
_INT4 = f"4 bits: loss is measurable, first of all through K and on long contexts; {EVALUATE}"


class KvChoice(Struct, frozen=True, kw_only=True):
    """One KV format of an engine: the arguments that ask for it, and what it may cost in quality.

    ``latent``: the engine has it for latent attention too. ``name`` is the format's in a table.
    """

    name: str
    arguments: dict[str, str]
    warning: str
    latent: bool = False


def _format(name: str, warning: str, *, latent: bool = False) -> KvChoice:
    return KvChoice(name=name, arguments={"kv_cache_dtype": name}, warning=warning, latent=latent)


def _pair(k: str, v: str, warning: str) -> KvChoice:
    name = k if k == v else f"K {k}, V {v}"
    return KvChoice(name=name, arguments={"kv_cache_dtype_k": k, "kv_cache_dtype_v": v}, warning=warning, latent=k == v)


class Layout(Struct, frozen=True, kw_only=True):
    """How a model is spread: the arguments that say so, over how many GPUs, and how many replicas take requests."""

    arguments: dict[str, Any] = {}
    gpus: int = 1
    replicas: int = 1


def layouts(engine: str, gpus: int, *, kv_heads: int, experts: bool) -> tuple[Layout, ...]:
    """Ways to use all these GPUs, to be tried in this order.

    Tensor parallelism within a node first; where it replicates KV for want of ``kv_heads``, attention on each
    data-parallel rank by itself, and the context split over ranks; then pipeline stages. llama.cpp splits by layers.
    """
    if engine == "llama_cpp":
        return (Layout(arguments={"pp": gpus} if gpus > 1 else {}, gpus=gpus),)
    widths = [width for width in range(min(gpus, NODE_GPUS), 0, -1) if gpus % width == 0]
    found = [Layout(arguments=_sizes(tp=gpus), gpus=gpus)] if gpus <= NODE_GPUS else []
    if kv_heads < min(gpus, NODE_GPUS):
        found += [_replicas(engine, gpus, gpus // width, experts=experts) for width in widths if width < gpus]
        if engine == "vllm" and gpus <= NODE_GPUS and gpus % kv_heads == 0:
            found.append(Layout(arguments=_sizes(tp=gpus, dcp=gpus // kv_heads), gpus=gpus))
    found += [Layout(arguments=_sizes(tp=width, pp=gpus // width), gpus=gpus) for width in widths if width < gpus]
    return tuple(found)


def _replicas(engine: str, gpus: int, count: int, *, experts: bool) -> Layout:
    """Attention on each of ``count`` replicas, experts over all of them."""
    if engine == "sglang":
        arguments = {"tp": gpus, "dp": count, "dp_attention": True}
    else:
        arguments = _sizes(tp=gpus // count, dp=count) | ({"ep": True} if experts else {})
    return Layout(arguments=arguments, gpus=gpus, replicas=count)


def _sizes(**sizes: int) -> dict[str, Any]:
    return {name: size for name, size in sizes.items() if size > 1}


NODE_GPUS = 8
KV_CHOICES: dict[str, tuple[KvChoice, ...]] = {
    "vllm": (
        _format("fp8", _FP8, latent=True),
        _format("int8_per_token_head", _INT8),
        _format("int4_per_token_head", _INT4),
    ),
    "sglang": (_format("fp8_e4m3", _FP8, latent=True),),
    "llama_cpp": (
        _pair("q8_0", "q8_0", _INT8),
        _pair("q8_0", "q4_0", _MIXED),
        _pair("q4_0", "q4_0", _INT4),
    ),
}
TITLES = {"vllm": "vLLM", "sglang": "SGLang", "llama_cpp": "llama.cpp", "ollama": "Ollama"}
FRACTIONS = {"vllm": "gpu_memory_utilization", "sglang": "mem_fraction_static"}
CONTEXT_SHIFT = {"llama_cpp": "--context-shift --keep 4 does the like"}
COMMANDS = {
    "vllm": "vllm serve",
    "sglang": "python -m sglang.launch_server --model-path",
    "llama_cpp": "llama-server -m",
}
_FLAGS: dict[str, dict[str, str]] = {
    "vllm": {
        "tp": "--tensor-parallel-size",
        "pp": "--pipeline-parallel-size",
        "dp": "--data-parallel-size",
        "dcp": "--decode-context-parallel-size",
        "ep": "--enable-expert-parallel",
        "max_model_len": "--max-model-len",
        "max_num_seqs": "--max-num-seqs",
        "max_num_batched_tokens": "--max-num-batched-tokens",
        "gpu_memory_utilization": "--gpu-memory-utilization",
        "kv_cache_dtype": "--kv-cache-dtype",
        "block_size": "--block-size",
        "dtype": "--dtype",
        "quantization": "--quantization",
        "enforce_eager": "--enforce-eager",
    },
    "sglang": {
        "tp": "--tp-size",
        "pp": "--pp-size",
        "dp": "--dp-size",
        "dp_attention": "--enable-dp-attention",
        "max_model_len": "--context-length",
        "max_num_seqs": "--max-running-requests",
        "mem_fraction_static": "--mem-fraction-static",
        "kv_cache_dtype": "--kv-cache-dtype",
        "block_size": "--page-size",
        "dtype": "--dtype",
        "quantization": "--quantization",
        "enforce_eager": "--disable-cuda-graph",
    },
    "llama_cpp": {
        "parallel": "--parallel",
        "ubatch": "--ubatch-size",
        "kv_cache_dtype_k": "--cache-type-k",
        "kv_cache_dtype_v": "--cache-type-v",
    },
}


ENGINES = tuple(_FLAGS)


def flags_text(arguments: Arguments) -> str:
    """The engine's own flags for these arguments, as they are typed; ranks of 1 need none."""
    return " ".join(_flags(arguments))


def _flags(arguments: Arguments) -> Iterator[str]:
    if arguments.engine == "llama_cpp":
        yield from _llama_cpp(arguments)
    for name, flag in _FLAGS[arguments.engine].items():
        value: Any = getattr(arguments, name, None)
        if value is None or value is False or (name in ("tp", "pp", "dp", "dcp") and value == 1):
            continue
        yield flag if value is True else f"{flag} {value}"


def _llama_cpp(arguments: Arguments) -> Iterator[str]:
    """The context is that of all slots together; a V that is not 16 bit needs flash attention."""
    yield "--gpu-layers all"
    if (arguments.tp or 1) * (arguments.pp or 1) > 1:
        yield "--split-mode layer"
    if arguments.max_model_len is not None:
        yield f"--ctx-size {arguments.max_model_len * (getattr(arguments, 'parallel', None) or 1)}"
    if getattr(arguments, "kv_cache_dtype_v", None) not in (None, "f16", "bf16", "f32"):
        yield "--flash-attn on"
