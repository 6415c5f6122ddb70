"""What of a checkpoint an engine holds once it is loaded, in bytes: layers in order, and the parts around them.

In the files but not loaded: multi-token-prediction layers unless the engine speculates with them, a head that repeats
tied embeddings, vision and audio parts where only the language model is served, Engram tables, which stay on the
host, and with some engines an embedding that is no head. Weights that are not quantised are converted to the engine's
dtype.
"""

from msgspec import Struct

from agent.memory.model_config import ModelShape
from agent.memory.units import size_text
from collectors.readings import ModelFiles

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}

_STORED_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_EMBEDDING = {"embed_tokens", "tok_embeddings", "word_embeddings", "wte", "embed", "token_embd"}
_HEAD = {"lm_head", "output", "embed_out", "head"}
_NORM = {"norm", "ln_f", "final_layernorm", "output_norm", "norm_f"}
_SIGHT = ("vision", "visual", "audio", "mm_projector", "multi_modal_projector")
_MTP, _VISION, _ENGRAM = "multi-token prediction", "vision and audio", "Engram tables"
_EMBEDDED = "embedding"


class Loads(Struct, frozen=True, kw_only=True):
    """Which parts of a checkpoint an engine loads onto its devices besides the decoder."""

    mtp: bool = False
    vision: bool = True
    engram: bool = False
    embedding: bool = True

    def skips(self, kind: str) -> bool:
        known = {_MTP: self.mtp, _VISION: self.vision, _ENGRAM: self.engram, _EMBEDDED: self.embedding}
        return not known.get(kind, True)


class Checkpoint(Struct, frozen=True, kw_only=True):
    """Bytes as held. Only ``total`` is known from an index; ``layers`` and the parts around need tensor headers."""

    total: int
    layers: tuple[int, ...] | None = None
    embedding: int = 0
    head: int = 0
    first: int = 0  # what the arithmetic knows beside the embedding
    last: int = 0  # the norm before the head
    mtp: int = 0
    other: int = 0  # vision and audio parts, projectors


def loaded(
    shape: ModelShape, model: ModelFiles, *, dtype: str, loads: Loads
) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """The checkpoint as held by the engine, and what of it is not loaded or stands in the way; None: not known."""
    if model.tensor_bytes is None:
        return None, ()
    held, stored = _conversion(shape, model, dtype)
    layers = model.layer_bytes
    if layers is not None and len(layers) >= len(shape.layers) > 0:
        return _from_headers(shape, model, layers, held, stored, loads)
    if shape.mtp_layers:
        apart = "not told apart in its index, so weights come from the config"
        return None, (
            f"the checkpoint's {model.tensor_bytes:,} bytes include {shape.mtp_layers} multi-token-prediction layer(s) "
            f"that are {'' if loads.mtp else 'not loaded and '}{apart}",
        )
    return Checkpoint(total=model.tensor_bytes * held // stored), ()


def _from_headers(
    shape: ModelShape, model: ModelFiles, layers: tuple[int, ...], held: int, stored: int, loads: Loads
) -> tuple[Checkpoint, tuple[str, ...]]:
    count = len(shape.layers)
    kinds: dict[str, int] = {_MTP: sum(layers[count:])}
    for name, size in model.other_bytes.items():
        kind = _kind(name)
        kinds[kind] = kinds.get(kind, 0) + size
    tied = shape.blueprint is not None and shape.blueprint.tied
    if tied:
        kinds.pop("head", None)
    if shape.blueprint is not None and shape.blueprint.first:
        kinds["first"] = kinds.pop("other", 0)
    beside = _BESIDE if tied else (*_BESIDE, _EMBEDDED)
    left_out = {kind: size for kind, size in kinds.items() if size and loads.skips(kind) and kind in beside}
    sizes = {kind: size * held // stored for kind, size in kinds.items() if kind not in left_out}
    kept = tuple(size * held // stored for size in layers[:count])
    notes = tuple(f"in the checkpoint but not loaded: {kind}, {size_text(size)}" for kind, size in left_out.items())
    checkpoint = Checkpoint(
        total=sum(kept) + sum(sizes.values()),
        layers=kept,
        embedding=sizes.get(_EMBEDDED, 0),
        head=sizes.get("head", 0),
        first=sizes.get("first", 0),
        last=sizes.get("last", 0),
        mtp=sizes.get(_MTP, 0),
        other=sum(sizes.get(kind, 0) for kind in (_VISION, _ENGRAM, "other")),
    )
    return checkpoint, notes


_BESIDE = (_MTP, _VISION, _ENGRAM)


def _kind(name: str) -> str:
    """Which part a module outside the layers belongs to."""
    parts = name.removesuffix(".weight").removesuffix(".bias").split(".")
    if "mtp" in parts:
        return _MTP
    if "engram" in parts:
        return _ENGRAM
    if any(word in part for part in parts for word in _SIGHT):
        return _VISION
    for kind, names in ((_EMBEDDED, _EMBEDDING), ("head", _HEAD), ("last", _NORM)):
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
