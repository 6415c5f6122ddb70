"""A TensorRT-LLM engine on disk: ``config.json`` with what it was built for, and one ``rankN.engine`` for each GPU.

The file of a rank is its weights and the program around them: what TensorRT then holds on the device was 0 to 1 % less
in logs that show both (15,321 and 15,316 MiB; 6,214 and 6,166). Names of a Hugging Face config are given to what stands
for the same. Source: NVIDIA/TensorRT-LLM 0.17 and 1.0, ``models/modeling_utils.py`` (``PretrainedConfig``),
``builder.py`` (``BuildConfig``), ``mapping.py`` (rank = pp rank x TP + tp rank), ``quantization/mode.py``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collectors.errors import Unreadable
from collectors.readings import ModelFiles

MAX_RANKS = 1024
MAX_TOKENS = 1 << 31
_MAX_BYTES = 1 << 50
_KEYS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
)
_TYPES = {
    "LlamaForCausalLM": "llama",
    "LLaMAForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "MixtralForCausalLM": "llama",
    "Phi3ForCausalLM": "phi3",
    "QWenForCausalLM/qwen2": "qwen2",
    "Qwen2ForCausalLM/qwen2": "qwen2",
    "QWenForCausalLM/qwen3": "qwen3",
    "Qwen3ForCausalLM/qwen3": "qwen3",
}
"""Architectures whose layers all keep the same heads of every token; with ``qwen_type`` where there is one."""
_SPECIAL = ("num_kv_heads_per_layer", "layer_types", "layer_configs", "cross_attention", "kv_lora_rank")
_DTYPES = ("bfloat16", "float16", "float32")
_KV_DTYPES = {"FP8": "fp8", "INT8": "int8", "NVFP4": "nvfp4"}
_APART = ("weight_streaming", "use_strip_plan")


def is_engine(config: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is that of an engine and not of a checkpoint."""
    return isinstance(config.get("pretrained_config"), dict) and isinstance(config.get("build_config"), dict)


def engine_model(path: Path, config_path: Path, config: Mapping[str, Any]) -> ModelFiles:
    """The model of an engine, what it was built for, and the bytes of its ranks where they are all there.

    Raises:
        Unreadable: a size in it is no such number.
        OSError: a file can't be looked at.
    """
    trained, build = config["pretrained_config"], config["build_config"]
    plugins, mapping, formats = (
        value if isinstance(value, dict) else {}
        for value in (build.get("plugin_config"), trained.get("mapping"), trained.get("quantization"))
    )
    tp, pp, cp = (
        _whole(mapping.get(name, 1), MAX_RANKS, f"{config_path}: mapping.{name}")
        for name in ("tp_size", "pp_size", "cp_size")
    )
    ranks = _whole(tp * pp * cp, MAX_RANKS, f"{config_path}: ranks of mapping")
    built: dict[str, int | str] = {"tp": tp, "pp": pp}
    block, length = plugins.get("tokens_per_block"), build.get("max_seq_len")
    if block is not None:
        built["block_size"] = _whole(block, 1 << 16, f"{config_path}: tokens_per_block")
    if length is not None:
        built["max_model_len"] = _whole(length, MAX_TOKENS, f"{config_path}: max_seq_len")
    why = _odd(trained, build, formats, cp)
    algorithm = formats.get("kv_cache_quant_algo")
    stored = trained.get("dtype") if algorithm is None else _KV_DTYPES.get(str(algorithm))
    if stored in (*_DTYPES, *_KV_DTYPES.values()):
        built["kv_cache_dtype"] = stored
    sizes, note = _rank_bytes(config_path.parent, build, plugins, ranks=ranks)
    return ModelFiles(
        path=str(path),
        config_path=str(config_path),
        config=_as_config(trained, known=not why),
        built=built,
        rank_bytes=sizes,
        notes=tuple(text for text in (why, note) if text),
    )


def _as_config(trained: Mapping[str, Any], *, known: bool) -> dict[str, Any]:
    """Under the names of a Hugging Face config; without a model type where the caches are not known."""
    name = "/".join(str(trained[key])[:100] for key in ("architecture", "qwen_type") if trained.get(key))
    config = {key: trained[key] for key in _KEYS if trained.get(key) is not None}
    return {
        **config,
        "model_type": _TYPES.get(name) if known else None,
        "architectures": [trained["architecture"][:100]] if isinstance(trained.get("architecture"), str) else None,
        "head_dim": trained.get("head_size"),
        "torch_dtype": trained.get("dtype"),
        "sliding_window": None,
        "use_sliding_window": False,
    }


def _odd(trained: Mapping[str, Any], build: Mapping[str, Any], formats: Mapping[str, Any], cp: int) -> str | None:
    """Why a token's bytes do not follow from the model's heads."""
    special = next((key for key in _SPECIAL if trained.get(key)), None)
    if special is not None:
        return f"the engine's {special} makes layers that cache otherwise, so its KV is not known"
    if cp > 1:
        return "the engine splits tokens over ranks (context parallelism), so its KV is not known"
    if build.get("kv_cache_type") not in (None, "PAGED", "paged"):
        return "the engine's KV cache is not paged, so it is not known"
    if build.get("speculative_decoding_mode") not in (None, 1, "NONE"):
        return "the engine speculates with more than its model, so its KV is not known"
    if formats.get("kv_cache_quant_algo") not in (None, *_KV_DTYPES):
        return "the engine's KV format is not known here"
    return None


def _rank_bytes(
    folder: Path, build: Mapping[str, Any], plugins: Mapping[str, Any], *, ranks: int
) -> tuple[tuple[int, ...], str | None]:
    """Bytes of each rank's file; none, and why, where they are not its weights."""
    apart = next((key for key in _APART if build.get(key)), "manage_weights" if plugins.get("manage_weights") else None)
    if apart is not None:
        return (), f"the engine was built with {apart}: its files do not tell the weights on the device"
    files = [folder / f"rank{number}.engine" for number in range(ranks)]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        return (), f"{len(missing)} of {ranks} engine files are not in {folder}, such as {missing[0]}"
    sizes = tuple(file.stat().st_size for file in files)
    if not all(0 < size < _MAX_BYTES for size in sizes):
        return (), f"an engine file in {folder} has an absurd size"
    return sizes, None


def _whole(value: object, most: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise Unreadable("malformed", f"{where}: expected a whole number of 1 to {most}, got {str(value)[:60]!r}")
    return value
