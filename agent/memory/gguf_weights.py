"""What a checkpoint's weights are taken as in a GGUF file that is not there yet.

llama.cpp's converter writes quantised checkpoints in 16 bit, but for MXFP4, which GGUF has; FP8 it has not. Source:
llama.cpp convert_hf_to_gguf.py, ggml/include/ggml.h.
"""

from typing import Any

from msgspec.structs import replace

from agent.memory.model_config import parse_model
from collectors.readings import ModelFiles

_QUANTIZATION = "quantization_config"
_SPECULATING = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
_OTHERWISE = "give the .gguf or --weights-bytes for a quantised one"
_SHORT = {"bfloat16": "bf16", "float32": "f32"}


def as_gguf(files: ModelFiles, weights_bytes: int | None = None) -> tuple[ModelFiles, str]:
    """The model as it would be converted, and what its weights are counted as; empty where it is a GGUF file.

    Raises:
        ModelConfigError: the config has an absurd value.
    """
    shape = parse_model(files.config)
    quantization = shape.quantization
    if quantization is not None and quantization.method == "gguf":
        return files, ""
    if weights_bytes is not None:
        config = _without(files.config, (_QUANTIZATION, *_SPECULATING))  # all of the bytes are loaded
        return replace(files, config=config), "a GGUF file of the weights' bytes as given"
    if quantization is not None and quantization.method == "mxfp4":
        return files, "a GGUF file of MXFP4 weights"
    kept = f"a GGUF file of {_SHORT.get(shape.dtype or '', 'f16')} weights"
    if quantization is None:
        return files, f"{kept}; {_OTHERWISE}"
    plain = replace(
        files,
        config=_without(files.config, (_QUANTIZATION,)),
        tensor_bytes=None,
        layer_bytes=None,
        other_bytes={},
        bytes_by_dtype={},
    )
    lacks = "GGUF has no FP8" if "fp8" in _formats(quantization.method, quantization.format) else "not as quantised"
    return plain, f"{kept} ({lacks}); {_OTHERWISE}"


def _formats(method: str, layout: Any) -> str:
    return f"{method} {layout.name if layout else ''}"


def _without(config: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The config without what has these names, in nested parts too."""
    return {
        name: _without(value, names) if isinstance(value, dict) else value
        for name, value in config.items()
        if name not in names
    }
