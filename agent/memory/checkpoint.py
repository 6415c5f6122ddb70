"""What of a checkpoint an engine holds once it is loaded, in bytes: layers in order, and the parts around them.

Multi-token-prediction layers and a head that repeats tied embeddings are in the files, but not loaded. Weights that are
not quantised are converted to the engine's dtype.
"""

from msgspec import Struct

from agent.memory.model_config import ModelShape
from collectors.readings import ModelFiles

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}

_STORED_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_EMBEDDING = {"embed_tokens", "tok_embeddings", "word_embeddings", "wte"}
_HEAD = {"lm_head", "output", "embed_out"}
_NORM = {"norm", "ln_f", "final_layernorm"}


class Checkpoint(Struct, frozen=True, kw_only=True):
    """Bytes as held. Only ``total`` is known from an index; ``layers`` and the parts around need tensor headers."""

    total: int
    layers: tuple[int, ...] | None = None
    embedding: int = 0
    head: int = 0
    norm: int = 0
    other: int = 0  # vision and audio parts, projectors


def loaded(shape: ModelShape, model: ModelFiles, *, dtype: str) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """The checkpoint as held by the engine, and what stands in the way of knowing that; None when it is not known."""
    if model.tensor_bytes is None:
        return None, ()
    held, stored = _conversion(shape, model, dtype)
    layers = model.layer_bytes
    if layers is not None and len(layers) >= len(shape.layers) > 0:
        return _from_headers(shape, model, layers, held, stored), ()
    if shape.mtp_layers:
        return None, (
            f"the checkpoint's {model.tensor_bytes:,} bytes include {shape.mtp_layers} multi-token-prediction layer(s) "
            "that are not loaded and not told apart in its index, so weights come from the config",
        )
    return Checkpoint(total=model.tensor_bytes * held // stored), ()


def _from_headers(shape: ModelShape, model: ModelFiles, layers: tuple[int, ...], held: int, stored: int) -> Checkpoint:
    kinds = {"embedding": 0, "head": 0, "norm": 0, "other": 0}
    for name, size in model.other_bytes.items():
        kind = _kind(name)
        if kind is not None:
            kinds[kind] += size * held // stored
    if shape.decoder is not None and shape.decoder.tied:
        kinds["head"] = 0
    kept = tuple(size * held // stored for size in layers[: len(shape.layers)])
    return Checkpoint(total=sum(kept) + sum(kinds.values()), layers=kept, **kinds)


def _kind(name: str) -> str | None:
    """Which part a module outside the layers belongs to; None: it is not loaded."""
    parts = name.removesuffix(".weight").removesuffix(".bias").split(".")
    if "mtp" in parts:
        return None
    if any("vision" in part or "visual" in part or "audio" in part for part in parts):
        return "other"
    for kind, names in (("embedding", _EMBEDDING), ("head", _HEAD), ("norm", _NORM)):
        if parts[-1] in names:
            return kind
    return "other"


def _conversion(shape: ModelShape, model: ModelFiles, dtype: str) -> tuple[int, int]:
    """Held bytes and stored bytes of the unquantised checkpoint: (1, 1) where nothing is converted."""
    if shape.quantization is not None:
        return 1, 1
    size = DTYPE_BYTES[dtype]
    stored = sum(model.bytes_by_dtype.values())
    if stored > 0:
        held = sum(
            count * size // _STORED_BYTES[name] if name in _STORED_BYTES else count
            for name, count in model.bytes_by_dtype.items()
        )
        return held, stored
    return size, DTYPE_BYTES.get(shape.dtype or "", size)
