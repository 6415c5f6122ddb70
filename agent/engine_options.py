"""Options that describe a server before it is started, and their way into arguments and a device."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from agent.errors import InputError
from agent.memory.arguments import DTYPES, ENGINES, KV_CACHE_DTYPES, Arguments, from_flags, unplanned
from agent.memory.budget import Device
from agent.memory.model_config import ModelConfigError
from agent.memory.serving import TITLES
from agent.memory.units import shown
from collectors.readings import ModelFiles

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

BLOCK_MULTIPLES = {"vllm": 16}  # of every CUDA attention backend's kernel blocks (v1/attention/backends)
_GPU_ENGINES, _GGUF_ENGINES = ("vllm", "sglang"), ("llama_cpp", "ollama")
_ENGINES_OF = {  # of flags that not every engine has
    "--gpu-memory-utilization": ("vllm",),
    "--mem-fraction-static": ("sglang",),
    "--kv-cache-dtype-k": _GGUF_ENGINES,
    "--kv-cache-dtype-v": _GGUF_ENGINES,
    "--ubatch": _GGUF_ENGINES,
    "--parallel": _GGUF_ENGINES,
    "--block-size": _GPU_ENGINES,
    "--max-num-batched-tokens": _GPU_ENGINES,
    "--max-num-seqs": _GPU_ENGINES,
    "--enforce-eager": _GPU_ENGINES,
    "--prefix-caching": _GPU_ENGINES,
    "--kv-pool-bytes": _GPU_ENGINES,
    "--ep": _GPU_ENGINES,
    "--dcp": _GPU_ENGINES,
    "--dp-attention": ("sglang",),
    "--disable-hybrid-kv-cache-manager": ("vllm",),
    "--num-gpu-blocks": ("vllm",),
    "--kv-cache-memory-bytes": ("vllm",),
    "--tp": ("vllm", "sglang", "llama_cpp"),
    "--ctx-size": ("llama_cpp",),
    "--kv-unified": ("llama_cpp",),
    "--swa-full": ("llama_cpp",),
}
_ALIKE = (  # what one engine calls what another calls otherwise
    ("--gpu-memory-utilization", "--mem-fraction-static"),
    ("--ubatch", "--max-num-batched-tokens"),
    ("--parallel", "--max-num-seqs"),
    ("--tp", "--pp"),
    ("--ctx-size", "--max-model-len"),
)
_WITHOUT_POOL: dict[str, dict[str, str | None]] = {  # engines whose pool is not planned: the flags that count
    "tensorrt_llm": {
        "block-size": "block_size",
        "kv-cache-dtype": "kv_cache_dtype",
        "engine-version": "engine_version",
        "draft-model": None,
    }
}
_FIELD = re.compile(r"^argument '([a-z]\w*)'", re.A)  # by the core's name, which is not what was typed
_VERSION = re.compile(r"v?\d{1,9}\.\d{1,9}([.+\-_a-z0-9]*)|b\d{1,9}", re.A)

# name, metavar (None: a switch), help
_ENGINE = (
    ("--engine-version", "V", "Its version; rules and defaults follow it."),
    ("--dtype", "NAME", f"Of weights that are not quantised: {', '.join(DTYPES[:4])}."),
    ("--quantization", "METHOD", "Quantise an unquantised checkpoint while loading, such as fp8."),
    ("--weights-bytes", "N", "Bytes of the checkpoint, when only a config is there."),
    ("--kv-cache-dtype", "NAME", f"One of {', '.join(KV_CACHE_DTYPES['vllm'][:11])} ..."),
    ("--kv-cache-dtype-k", "TYPE", "K's alone (llama.cpp), such as q8_0."),
    ("--kv-cache-dtype-v", "TYPE", "V's alone (llama.cpp)."),
    ("--block-size", "N", "Tokens of a KV block."),
    ("--gpu-memory-utilization", "X", "Share of the device that the engine takes, 0-1 (vLLM)."),
    ("--mem-fraction-static", "X", "Share of free memory for weights and pools, 0-1 (SGLang)."),
    ("--max-num-batched-tokens", "N", "Tokens of one step."),
    ("--ubatch", "N", "Tokens of one physical batch (llama.cpp)."),
    ("--enforce-eager", None, "No CUDA graphs."),
)
_SERVER = (
    ("--tp", "N", "Tensor-parallel size."),
    ("--pp", "N", "Pipeline-parallel size."),
    ("--dp", "N", "Data-parallel size; each replica has a pool of its own."),
    ("--dcp", "N", "Decode-context-parallel size: tokens are split over so many ranks."),
    ("--ep", None, "Experts whole on ranks instead of split."),
    ("--dp-attention", None, "Attention of each data-parallel rank by itself, within TP (SGLang)."),
    ("--pp-layers", "A,B,...", "Layers of each pipeline stage."),
    ("--max-model-len", "N", "Longest request, prompt and output; 32k and 32K are understood."),
    ("--max-num-seqs", "N", "Sequences of one step."),
    ("--parallel", "N", "Slots of the server (llama.cpp)."),
    ("--ctx-size", "N", "Tokens of all slots together (llama.cpp)."),
    ("--kv-unified/--no-kv-unified", None, "Slots share one cache (llama.cpp)."),
    ("--swa-full", None, "Window layers cache as much as full ones (llama.cpp)."),
    ("--speculative", "none|mtp:N", "Speculate N tokens with the model's own prediction layers."),
    ("--draft-model", "MODEL", "Speculate with this model."),
    ("--prefix-caching", "on|off", "Keep prefixes for later requests."),
    ("--disable-hybrid-kv-cache-manager", None, "Charge window layers like full ones (vLLM)."),
    ("--max-loras", "N", "LoRA adapters held at once."),
    ("--max-lora-rank", "N", "Their largest rank."),
    ("--num-gpu-blocks", "N", "KV blocks, whatever the memory."),
    ("--kv-cache-memory-bytes", "N", "Bytes of the KV pool; the share of the device is then ignored."),
    ("--kv-pool-bytes", "N", "Bytes available for KV on a rank; skips the memory arithmetic."),
)


def engine_options(command: F) -> F:
    """The engine, formats and sizes: what a plan is given too."""
    return _added(command, _ENGINE)


def server_options(command: F) -> F:
    """How a server is spread and what it is to hold: what a plan finds out."""
    return _added(command, _SERVER)


def cuda_bytes_option(command: F) -> F:
    return click.option(
        "--cuda-bytes", type=click.IntRange(min=1), metavar="N", help="CUDA total: what the engine sees."
    )(command)


def read_arguments(flags: Mapping[str, object], *, engine: str | None) -> Arguments:
    """Arguments from options by click's names; None was not given.

    Raises:
        InputError: an unknown engine, or a value that its engine would not take.
    """
    engine = engine or "vllm"
    known = (*ENGINES, *_WITHOUT_POOL)
    if engine not in known:
        raise InputError(unplanned(engine, known))
    given = {_flag(name): value for name, value in flags.items() if value is not None}
    version = given.get("--engine-version")
    if isinstance(version, str) and not _VERSION.fullmatch(version):
        raise InputError(f"argument '--engine-version': expected a version such as 0.33 or b6500, got {version[:60]!r}")
    for flag in ("--kv-cache-dtype-k", "--kv-cache-dtype-v"):
        if (value := given.get(flag)) is not None and value not in KV_CACHE_DTYPES[engine]:
            types = ", ".join(KV_CACHE_DTYPES[engine])
            raise InputError(f"argument {flag!r}: expected one of {types}, got {shown(value)}")
    arguments = one_sentence(lambda: from_flags(given, engine=engine, own=_WITHOUT_POOL.get(engine)))
    multiple = BLOCK_MULTIPLES.get(engine, 1)
    if arguments.block_size is not None and arguments.block_size % multiple:
        raise InputError(
            f"argument '--block-size': {TITLES[engine]} takes multiples of {multiple}, got {arguments.block_size}"
        )
    return arguments


def check_flags(flags: Mapping[str, object], *, engine: str | None) -> None:
    """Every flag given is one that the engine's budget depends on; names and values as for ``read_arguments``.

    Raises:
        InputError: one is another engine's.
    """
    engine = engine or "vllm"
    if engine not in ENGINES:
        return
    for flag in (_flag(name) for name, value in flags.items() if value is not None):
        engines = _ENGINES_OF.get(flag, ENGINES)
        if engine not in engines:
            others = (other for pair in _ALIKE if flag in pair for other in pair)
            alike = next((other for other in others if engine in _ENGINES_OF.get(other, ENGINES)), None)
            hint = f"give {alike}" if alike else f"only of {' and '.join(engines)}"
            raise InputError(f"{flag} is no flag of {engine}; {hint}")


def with_cuda_bytes(device: Device, cuda_bytes: int | None) -> Device:
    """The device with what CUDA sees of it.

    Raises:
        InputError: more than all of it.
    """
    if cuda_bytes is not None and device.total_bytes is not None and cuda_bytes > device.total_bytes:
        raise InputError(f"--cuda-bytes: expected at most the device's {device.total_bytes} bytes, got {cuda_bytes}")
    return device if cuda_bytes is None else replace(device, cuda_bytes=cuda_bytes)


def one_sentence(work: Callable[[], T], *, files: ModelFiles | None = None) -> T:
    """The work's result; what it finds wrong becomes the sentence that ends the command, a config's with its file.

    Raises:
        InputError: the work raised a ValueError.
    """
    try:
        return work()
    except ModelConfigError as error:
        raise InputError(f"{files.config_path or files.path}: {error}" if files else str(error)) from error
    except ValueError as error:
        raise InputError(_FIELD.sub(lambda found: f"argument {_flag(found[1])!r}", str(error))) from error


def _added(command: F, options: tuple[tuple[str, str | None, str], ...]) -> F:
    for name, metavar, text in reversed(options):
        option = (
            click.option(name, metavar=metavar, help=text)
            if metavar
            else click.option(name, is_flag=True, default=None, help=text)
        )
        command = option(command)
    return command


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
