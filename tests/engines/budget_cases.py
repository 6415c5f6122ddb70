"""Real engines started with a model and arguments, and what they then said of their memory.

``arguments`` are those of a budget, so that what an engine said is compared with the budget of the same.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.engines import install_llama_cpp, install_sglang, install_vllm, llama_cpp_server, sglang_server, tiny_models
from tests.engines.tiny_ggufs import MODELS
from tests.engines.vllm_server import CACHE_BYTES, FP8_REFUSED, MAX_MODEL_LEN, ServerFailed, VllmServer

Said = dict[str, int | str]


class Case(Struct, frozen=True, kw_only=True):
    """One start of an engine. ``model``: one of ``tiny_models`` or ``tiny_ggufs``."""

    engine: str
    version: str
    model: str
    name: str
    arguments: dict[str, Any]

    def config(self) -> dict[str, Any]:
        """The model in a config's words."""
        if self.engine == "llama_cpp":
            return MODELS[self.model]().config
        return _CONFIGS[self.model]


class Heard(Struct, frozen=True, kw_only=True):
    """What an engine said: figures by name, and the texts they were found in by their suffix."""

    said: Said
    texts: dict[str, str]


def hear(case: Case, command: Path, folder: Path) -> Heard:
    """Start the engine of a case with its model, written into an empty folder, and end it.

    Raises:
        ServerFailed: it did not start.
    """
    return _HEAR[case.engine](case, command, folder)


def _llama_cpp(case: Case, python: Path, folder: Path) -> Heard:
    model = MODELS[case.model]().write(folder / "model.gguf")
    log = llama_cpp_server.start(python, model, case.arguments, folder / "llama.log")
    return Heard(said=llama_cpp_server.said(log), texts={"log": log})


def _sglang(case: Case, python: Path, folder: Path) -> Heard:
    model = _MAKE[case.model](folder / "model")
    flags = _flags(
        case, max_total_tokens="--max-total-tokens", block_size="--page-size", max_model_len="--context-length"
    )
    log, metrics = sglang_server.start(python, model.path, flags, folder / "sglang.log")
    return Heard(said=sglang_server.said(metrics), texts={"log": log, "metrics": metrics})


def _vllm(case: Case, command: Path, folder: Path) -> Heard:
    """An FP8 pool is planned, and said, before a CPU refuses to run it."""
    model = _MAKE[case.model](folder / "model")
    flags = _flags(case, block_size="--block-size", dtype="--dtype", kv_cache_dtype="--kv-cache-dtype")
    server = VllmServer(command=command, model=model.path, name=case.model, log=folder / "vllm.log", arguments=flags)
    said: Said = {}
    try:
        with server:
            labels = server.scrape().labels("vllm:cache_config_info")
            said = {"blocks": int(labels["num_gpu_blocks"]), "block_size": int(labels["block_size"])}
    except ServerFailed as exc:
        if FP8_REFUSED not in str(exc):
            raise
    line = next(line for line in server.log_text().splitlines() if "KV cache size" in line)
    planned = server.planned()
    said |= {"tokens": planned.tokens, "concurrency": f"{planned.concurrency:.2f}"}
    return Heard(said=said, texts={"log": f"{line[line.index('CPU KV') :]}\n"})


def _flags(case: Case, **names: str) -> list[str]:
    """The engine's own flags for those arguments that are given."""
    given = ((flag, case.arguments[name]) for name, flag in names.items() if name in case.arguments)
    return [part for flag, value in given for part in (flag, str(value))]


def _cases(engine: str, version: str, starts: dict[str, dict[str, Any]], common: dict[str, Any]) -> list[Case]:
    return [
        Case(engine=engine, version=version, model=name.split("-")[0], name=name, arguments=common | arguments)
        for name, arguments in starts.items()
    ]


_HEAR: dict[str, Callable[[Case, Path, Path], Heard]] = {"llama_cpp": _llama_cpp, "sglang": _sglang, "vllm": _vllm}
_MAKE = {
    "llama": tiny_models.make_llama,
    "mla": tiny_models.make_mla,
    "mla_yarn": tiny_models.make_mla_yarn,
    "gemma3": tiny_models.make_gemma3,
}
_CONFIGS = {
    "llama": tiny_models.LLAMA,
    "mla": tiny_models.MLA,
    "mla_yarn": tiny_models.MLA_YARN,
    "gemma3": tiny_models.GEMMA3,
}

_FOUR = {"ctx_size": 4096, "parallel": 4}
_ONE_CACHE = {**_FOUR, "kv_unified": True}
_TWO = {"ctx_size": 8192, "parallel": 2}
_Q8 = {"kv_cache_dtype_k": "q8_0", "kv_cache_dtype_v": "q8_0"}
_Q4 = {"kv_cache_dtype_k": "q4_0", "kv_cache_dtype_v": "q4_0"}
_OLDER: dict[str, dict[str, Any]] = {
    "llama-f16": _FOUR,
    "llama-no-context": {"parallel": 2},
    "gemma3-small-batch": {**_TWO, "ubatch": 200},
    "deepseek2-f16": _FOUR,
    "jamba-f16": _FOUR,
}
_LLAMA_CPP: dict[str, dict[str, Any]] = _OLDER | {
    "llama-f16-unified": _ONE_CACHE,
    "llama-q8_0": _FOUR | _Q8,
    "llama-q8_0-unified": _ONE_CACHE | _Q8,
    "llama-q4_0": _FOUR | _Q4,
    "llama-q4_0-unified": _ONE_CACHE | _Q4,
    "llama-padded-mixed": {"ctx_size": 4000, "parallel": 3, "kv_cache_dtype_k": "q8_0", "kv_cache_dtype_v": "q4_0"},
    "llama-defaults": {},
    "gemma3-f16": _TWO,
    "gemma3-unified": _ONE_CACHE,
    "gemma3-swa-full": {**_TWO, "swa_full": True},
    "deepseek2-q8_0-unified": _ONE_CACHE | _Q8,
    "deepseek32-f16": _FOUR,
    "deepseek32-q8_0-unified": _ONE_CACHE | _Q8,
    "jamba-q8_0-unified": _ONE_CACHE | _Q8,
}
_SGLANG: dict[str, dict[str, Any]] = {
    "llama-page-1": {"max_total_tokens": 3200, "block_size": 1},
    "llama-page-16": {"max_total_tokens": 3210, "block_size": 16},
    "gemma3-page-16": {"max_total_tokens": 3210, "block_size": 16},
    "mla_yarn-page-1": {"max_total_tokens": 3200, "block_size": 1},
}
_VLLM: dict[str, dict[str, Any]] = {
    "llama-bf16": {"block_size": 32},
    "llama-float32": {"block_size": 32, "dtype": "float32"},
    "llama-fp8": {"block_size": 32, "kv_cache_dtype": "fp8"},
    "mla-bf16": {},  # the kernel that a CPU has for it decides the block's size
    "gemma3-bf16": {"block_size": 128},
}

_NEWEST, _OLD = install_llama_cpp.BUILDS
_LIMITS = {"max_model_len": MAX_MODEL_LEN, "kv_pool_bytes": CACHE_BYTES, "max_num_seqs": 8, "enforce_eager": True}
CASES = (
    *_cases("llama_cpp", _NEWEST, _LLAMA_CPP, {}),
    *_cases("llama_cpp", _OLD, _OLDER, {}),
    *_cases("sglang", install_sglang.VERSION, _SGLANG, {"max_model_len": 2048, "enforce_eager": True}),
    *_cases("vllm", install_vllm.VERSION, _VLLM, _LIMITS),
)
