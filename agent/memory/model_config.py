"""A model's ``config.json`` turned into one description per layer, or into what is missing to do so.

``fields`` makes one flat config of it, ``families`` says what its ``model_type`` means; here both come together. A
type that is not in the table, or a key that changes attention and that the type's row does not read, is unknown: then
there are no caches, and bounds of what a token may take.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.families.attention import head_dim
from agent.memory.families.family import Family
from agent.memory.families.table import FAMILIES, FOREIGN_KEYS
from agent.memory.fields import MAX_LAYERS, MAX_SIZE, Fields, ModelConfigError
from agent.memory.layers import Layer
from agent.memory.parameters import Blueprint, blueprint
from agent.memory.quantization import Quantization, parse_quantization
from agent.memory.units import shown

__all__ = [
    "Decoder",
    "Experts",
    "LatentAttention",
    "ModelConfigError",
    "ModelShape",
    "TokenBounds",
    "parse_model",
]

_OTHER_MODULES = ("vision_config", "audio_config", "speech_config")


class LatentAttention(Struct, frozen=True, kw_only=True):
    """Widths of multi-head latent attention; ``q_rank`` None means that Q is not compressed."""

    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    v: int


class Experts(Struct, frozen=True, kw_only=True):
    """A mixture of experts: how many, how wide, and what every token passes besides."""

    count: int
    per_token: int
    width: int
    shared_width: int


class Decoder(Struct, frozen=True, kw_only=True):
    """Widths of a known decoder, on which its temporaries depend."""

    hidden: int
    intermediate: int
    vocabulary: int
    heads: int
    head_dim: int
    mla: LatentAttention | None
    experts: Experts | None


class TokenBounds(Struct, frozen=True, kw_only=True):
    """What a token may take in all layers of an architecture that is not known, in elements, and why so much."""

    low: int
    high: int
    source: str


class ModelShape(Struct, frozen=True, kw_only=True):
    """What a config says. ``decoder`` is None, and ``unknown`` says why, where the architecture is not known.

    ``mtp`` are the multi-token-prediction layers: they load and cache only where the engine speculates with them.
    """

    model_type: str | None
    architecture: str | None
    layers: tuple[Layer, ...]
    decoder: Decoder | None
    dtype: str | None
    quantization: Quantization | None
    max_positions: int | None
    mtp_layers: int = 0
    mtp: tuple[Layer, ...] = ()
    other_modules: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    token_bounds: TokenBounds | None = None
    blueprint: Blueprint | None = None  # all matrices, where they follow from the config


def parse_model(config: object) -> ModelShape:
    """Describe a model by its config.

    Raises:
        ModelConfigError: the config is no object, or a value the architecture needs is missing or absurd.
    """
    if not isinstance(config, dict):
        raise ModelConfigError(f"config: expected a JSON object, got {shown(config)}")
    fields = Fields(config)
    family = FAMILIES.get(fields.text("model_type") or "")
    if family is not None:
        _complete(fields, family)
    layers, why = _layers(fields, family)
    decoder = _decoder(fields, family) if family and not why else None
    experts = family is not None and decoder is not None and decoder.experts is not None
    layers = _with_experts(fields, layers) if experts else layers
    mtp = _mtp(fields, family, experts) if family and not why else ()
    return ModelShape(
        model_type=fields.text("model_type"),
        architecture=_architecture(fields),
        layers=layers,
        decoder=decoder,
        dtype=_dtype(fields),
        quantization=parse_quantization(
            fields.values.get("quantization_config"), expert_dtype=fields.values.get("expert_dtype")
        ),
        max_positions=_max_positions(fields),
        mtp_layers=_mtp_layers(fields) if family else 0,
        mtp=mtp,
        other_modules=tuple(key for key in _OTHER_MODULES if isinstance(fields.values.get(key), dict)),
        unknown=(f"{why}; {_known(fields)}",) if why else (),
        token_bounds=_token_bounds(fields) if why else None,
        blueprint=blueprint(fields, family, layers, mtp) if family and not why else None,
    )


def _complete(fields: Fields, family: Family) -> None:
    """What the class of this type adds to what the config says."""
    fields.complete(family.class_defaults)
    if family.derive is not None:
        derived = family.derive(fields)
        fields.values |= {key: value for key, value in derived.items() if value is not None}


def _layers(fields: Fields, family: Family | None) -> tuple[tuple[Layer, ...], str]:
    """The layers, or as many unknown ones and why they are."""
    foreign = _foreign(fields, family)
    if family is not None and not foreign:
        count = fields.size("num_hidden_layers", most=MAX_LAYERS)
        layers = (
            family.layers(fields, count) if family.layers else _by_type(fields, family, family.types(fields, count))
        )
        foreign = "; ".join(dict.fromkeys(layer.kind.partition(": ")[2] for layer in layers if not layer.known))
        if not foreign:
            return tuple(layers), ""
    model_type = fields.text("model_type")
    name = f"model_type {shown(model_type)}" if model_type else "a config without model_type"
    reason = f"{name} has {foreign}, which is not known here" if foreign else f"{name} is not known here"
    given = fields.values.get("num_hidden_layers")
    plausible = isinstance(given, int) and not isinstance(given, bool) and 0 < given <= MAX_LAYERS
    return (Layer(kind=f"unknown: {reason}"),) * (given if plausible and isinstance(given, int) else 0), reason


def _by_type(fields: Fields, family: Family, types: Sequence[str]) -> list[Layer]:
    kinds = {
        name: family.kinds[name](fields)
        if name in family.kinds
        else Layer(kind=f"unknown: layers of type {shown(name)}")
        for name in dict.fromkeys(types)
    }
    return [kinds[name] for name in types]


def _mtp_layers(fields: Fields) -> int:
    return fields.optional_size("num_nextn_predict_layers", least=0, most=MAX_LAYERS) or 0


def _mtp(fields: Fields, family: Family, experts: bool) -> tuple[Layer, ...]:
    """Layers of each prediction depth: those that ``layer_types`` lists behind the model's own, else all alike."""
    depths, count = _mtp_layers(fields), fields.size("num_hidden_layers")
    if family.layers is not None or not depths:
        return ()
    listed = (fields.entries("layer_types") or [])[count:] if "layer_types" in family.reads else []
    types = fields.entries("mtp_types") or list(family.mtp) or family.types(fields, count)[:1]
    layers = _by_type(fields, family, [str(name) for name in (listed[:depths] or types * depths)])
    mixed = experts and not any(layer.experts for layer in layers)
    return tuple(replace(layer, experts=True) if mixed else layer for layer in layers)


def _decoder(fields: Fields, family: Family) -> Decoder:
    mla = _latent(fields) if family.mla else None
    return Decoder(
        hidden=fields.size("hidden_size"),
        intermediate=fields.size("intermediate_size"),
        vocabulary=fields.size("vocab_size"),
        heads=fields.size("num_attention_heads"),
        head_dim=mla.nope + mla.rope if mla else head_dim(fields),
        mla=mla,
        experts=_experts(fields, family),
    )


def _latent(fields: Fields) -> LatentAttention:
    return LatentAttention(
        q_rank=fields.optional_size("q_lora_rank"),
        kv_rank=fields.size("kv_lora_rank"),
        nope=fields.size("qk_nope_head_dim"),
        rope=fields.size("qk_rope_head_dim"),
        v=fields.size("v_head_dim"),
    )


def _experts(fields: Fields, family: Family) -> Experts | None:
    count = fields.optional_size("num_experts", least=0)
    if not count:
        return None
    width = fields.size(family.expert_width)
    shared = fields.optional_size("shared_experts", least=0) or 0
    return Experts(
        count=count,
        per_token=fields.size("num_experts_per_tok", most=count),
        width=width,
        shared_width=fields.optional_size("shared_expert_intermediate_size", least=0) or shared * width,
    )


def _with_experts(fields: Fields, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Mark the layers with experts, unless their types tell."""
    if any(layer.experts for layer in layers):
        return layers
    marks = _expert_marks(fields, len(layers))
    mixed = {layer: replace(layer, experts=True) for layer in set(layers)}
    return tuple(mixed[layer] if mark else layer for layer, mark in zip(layers, marks, strict=True))


def _expert_marks(fields: Fields, count: int) -> list[bool]:
    """Which layers have experts: as a list says, else not the first dense ones, not those named, and every n-th."""
    types = fields.entries("mlp_layer_types", count)
    if types is not None:
        return [kind == "sparse" for kind in types]
    if isinstance(fields.values.get("moe_layer_freq"), list):
        return [bool(mark) for mark in fields.entries("moe_layer_freq", count) or ()]
    dense = fields.optional_size("first_k_dense_replace", least=0) or 0
    every, offset = fields.optional_size("moe_layer_freq") or 1, 0
    if "expert_layer_period" in fields.values:
        every, offset = fields.size("expert_layer_period"), fields.size("expert_layer_offset", least=0)
    step = fields.optional_size("decoder_sparse_step") or 1
    plain = {index for index in fields.entries("mlp_only_layers") or () if isinstance(index, int)}
    return [
        index >= dense and index % every == offset and (index + 1) % step == 0 and index not in plain
        for index in range(count)
    ]


def _foreign(fields: Fields, family: Family | None) -> str:
    """What a config's attention has that its type doesn't; empty when nothing."""
    reads = family.reads if family else ()
    found = [
        f"{meaning} ({', '.join(present)})"
        for meaning, keys in FOREIGN_KEYS.items()
        if (present := [key for key in keys if fields.values.get(key) and key not in reads])
    ]
    if family is not None and not family.mla and fields.values.get("kv_lora_rank"):
        found.append("latent attention in a type without it (kv_lora_rank)")
    window = "" if "sliding_window" in reads else _window(fields)
    if reason := window or ("" if "layer_types" in reads else _layer_types(fields)):
        found.append(reason)
    return "; ".join(found)


def _window(fields: Fields) -> str:
    window = fields.values.get("sliding_window")
    context = fields.values.get("max_position_embeddings")
    if not window or fields.values.get("use_sliding_window") is False:
        return ""
    whole = isinstance(window, int) and isinstance(context, int) and window >= context
    return "" if whole else f"layers that keep the last {shown(window)} tokens only (sliding_window)"


def _layer_types(fields: Fields) -> str:
    types = fields.values.get("layer_types")
    if not types:
        return ""
    others = (
        sorted({shown(kind) for kind in types} - {"'full_attention'"}) if isinstance(types, list) else [shown(types)]
    )
    return f"layers of type {', '.join(others[:4])} (layer_types)" if others else ""


def _known(fields: Fields) -> str:
    """What an unknown architecture's config still tells."""
    names = {"num_hidden_layers": "layers", "hidden_size": "hidden size", "vocab_size": "vocabulary"}
    known = {name: fields.values.get(key) for key, name in names.items()}
    found = [f"{name} {shown(value)}" for name, value in known.items() if isinstance(value, int)]
    bounds = _token_bounds(fields)
    if bounds is not None:
        found.append(f"{2 * bounds.low:,} to {2 * bounds.high:,} bytes a token in 16 bit ({bounds.source})")
    return f"known: {', '.join(found)}" if found else "nothing else is known"


def _token_bounds(fields: Fields) -> TokenBounds | None:
    """From nothing, if all layers keep a window or a state, to K and V of each attention head, as wide as any named."""
    try:
        layers = fields.size("num_hidden_layers", most=MAX_LAYERS)
        hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
        named = [fields.optional_size(key) or 0 for key in fields.values if key.endswith("head_dim")]
    except ModelConfigError:
        return None
    width = max(-(-hidden // heads), *named, 0)
    return TokenBounds(
        low=0,
        high=2 * layers * heads * width,
        source=f"at most K and V of all {heads} heads, {width} wide, in all {layers} layers; at least states alone",
    )


def _architecture(fields: Fields) -> str | None:
    names = fields.values.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def _dtype(fields: Fields) -> str | None:
    value = fields.values.get("dtype")
    return value.removeprefix("torch.") if isinstance(value, str) else None


def _max_positions(fields: Fields) -> int | None:
    """The context by vLLM's rule: as given, times the rope factor where that is not counted in yet."""
    longest = fields.optional_size("model_max_length")
    known = longest or fields.optional_size("max_position_embeddings")
    scaling = fields.values.get("rope_scaling")
    if known is None or not isinstance(scaling, dict) or "gemma3" in str(fields.values.get("model_type")):
        return known
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    factor, original = scaling.get("factor", 1), scaling.get("original_max_position_embeddings")
    if kind in ("su", "longrope", "llama3") or not isinstance(factor, int | float):
        return known
    base = original if kind == "yarn" and isinstance(original, int) else known
    return int(base * factor) if 0 < base * factor <= MAX_SIZE else known
