"""A model's ``config.json`` turned into one description per layer, or into what is missing to do so.

Normalising: the text part (``text_config``, ``language_config``, ``llm_config``) lies over the top level, ``null``
counts as missing, and older names are read as the new ones. Numbers that can't be right end in one sentence.
"""

from typing import Any

from msgspec import Struct

from agent.memory.families import FAMILIES, FOREIGN_KEYS, Family
from agent.memory.layers import Heads, Latent, Layer
from agent.memory.quantization import Quantization, parse_quantization
from agent.memory.units import shown

MAX_LAYERS = 10_000
MAX_SIZE = (1 << 31) - 1

_NESTED = ("text_config", "language_config", "llm_config")
_OTHER_MODULES = ("vision_config", "audio_config", "speech_config")
_ALIASES = {
    "dtype": ("torch_dtype",),
    "num_experts": ("n_routed_experts", "num_local_experts"),
    "shared_experts": ("n_shared_experts",),
    "rope_scaling": ("rope_parameters",),
}


class ModelConfigError(ValueError):
    """A config that can't be right: one sentence with key, expected and got."""


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
    shared_gate: bool
    router_bias: bool


class Decoder(Struct, frozen=True, kw_only=True):
    """Widths of a known decoder, enough to count its weights."""

    hidden: int
    intermediate: int
    vocabulary: int
    heads: int
    head_dim: int
    tied: bool
    mla: LatentAttention | None
    experts: Experts | None
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: str | None
    norms: int
    final_norms: int
    mlp_matrices: int


class ModelShape(Struct, frozen=True, kw_only=True):
    """What a config says. ``decoder`` is None, and ``unknown`` says why, where the architecture is not known."""

    model_type: str | None
    architecture: str | None
    layers: tuple[Layer, ...]
    decoder: Decoder | None
    dtype: str | None
    quantization: Quantization | None
    max_positions: int | None
    mtp_layers: int = 0
    other_modules: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def parse_model(config: object) -> ModelShape:
    """Describe a model by its config.

    Raises:
        ModelConfigError: the config is no object, or a value the architecture needs is missing or absurd.
    """
    if not isinstance(config, dict):
        raise ModelConfigError(f"config: expected a JSON object, got {shown(config)}")
    fields = Fields(config)
    model_type = fields.text("model_type")
    family = FAMILIES.get(model_type or "")
    if family is not None and family.defaults is not None:
        fields.values |= family.defaults(fields.values)
    foreign = _foreign(fields)
    reason = _why_unknown(model_type, foreign)
    layers, decoder = _decoder(fields, family) if family and not foreign else _unknown_layers(fields, reason)
    return ModelShape(
        model_type=model_type,
        architecture=_architecture(fields),
        layers=layers,
        decoder=decoder,
        dtype=_dtype(fields),
        quantization=parse_quantization(fields.values.get("quantization_config")),
        max_positions=_max_positions(fields),
        mtp_layers=fields.optional_size("num_nextn_predict_layers", least=0) or 0 if family else 0,
        other_modules=tuple(key for key in _OTHER_MODULES if isinstance(fields.values.get(key), dict)),
        unknown=(f"{reason}; {_known(fields)}",) if decoder is None else (),
    )


class Fields:
    """A normalised config, and typed access to it."""

    def __init__(self, config: dict[str, Any]) -> None:
        nested: dict[str, Any] = next((config[key] for key in _NESTED if isinstance(config.get(key), dict)), {})
        merged = {**config, **{key: value for key, value in nested.items() if value is not None}}
        self.values: dict[str, Any] = {key: value for key, value in merged.items() if value is not None}
        for name, others in _ALIASES.items():
            found = [self.values[key] for key in (name, *others) if key in self.values]
            if found:
                self.values[name] = found[0]

    def size(self, key: str, *, least: int = 1, most: int = MAX_SIZE) -> int:
        """An integer that must be there."""
        value = self.optional_size(key, least=least, most=most)
        if value is None:
            raise ModelConfigError(f"config key {key!r} is missing; expected an integer from {least} to {most}")
        return value

    def optional_size(self, key: str, *, least: int = 1, most: int = MAX_SIZE) -> int | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ModelConfigError(
                f"config key {key!r}: expected an integer from {least} to {most}, got {shown(value)}"
            )
        return value

    def flag(self, key: str, *, default: bool = False) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise ModelConfigError(f"config key {key!r}: expected true or false, got {shown(value)}")
        return value

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise ModelConfigError(f"config key {key!r}: expected text, got {shown(value)}")
        return value

    def switched(self, rule: bool | str) -> bool:
        """A rule of the family table: always, never, or as this config key says."""
        return self.flag(rule) if isinstance(rule, str) else rule


def _decoder(fields: Fields, family: Family) -> tuple[tuple[Layer, ...], Decoder]:
    count = fields.size("num_hidden_layers", most=MAX_LAYERS)
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    mla = _latent(fields) if family.attention == "mla" else None
    head_dim = mla.nope + mla.rope if mla else _head_dim(fields, hidden, heads)
    kind, cache = _latent_cache(mla) if mla else _heads_cache(fields, heads, head_dim)
    experts = _experts(fields, family)
    with_experts = _expert_layers(fields, count) if experts else (False,) * count
    norm_key = family.qk_norm_key
    decoder = Decoder(
        hidden=hidden,
        intermediate=fields.size("intermediate_size"),
        vocabulary=fields.size("vocab_size"),
        heads=heads,
        head_dim=head_dim,
        tied=fields.flag("tie_word_embeddings", default=family.tied),
        mla=mla,
        experts=experts,
        qkv_bias=fields.switched(family.qkv_bias),
        out_bias=fields.switched(family.out_bias),
        mlp_bias=fields.switched(family.mlp_bias),
        qk_norm=family.qk_norm if norm_key is None or fields.flag(norm_key) else None,
        norms=fields.values.get("norms", family.norms),
        final_norms=family.final_norms,
        mlp_matrices=family.mlp_matrices,
    )
    dense, mixed = (Layer(kind=kind, caches=(cache,), experts=has) for has in (False, True))
    return tuple(mixed if has else dense for has in with_experts), decoder


def _head_dim(fields: Fields, hidden: int, heads: int) -> int:
    given = fields.optional_size("head_dim")
    if given is None and hidden % heads:
        raise ModelConfigError(
            f"config key 'num_attention_heads': expected a divisor of hidden_size {hidden} (there is no head_dim), "
            f"got {heads}"
        )
    return given or hidden // heads


def _heads_cache(fields: Fields, heads: int, head_dim: int) -> tuple[str, Heads]:
    kv_heads = fields.optional_size("num_key_value_heads") or heads
    if heads % kv_heads:
        raise ModelConfigError(
            f"config key 'num_key_value_heads': expected a divisor of num_attention_heads {heads}, got {kv_heads}"
        )
    kind = "mha" if kv_heads == heads else "mqa" if kv_heads == 1 else "gqa"
    return kind, Heads(heads=kv_heads, k_dim=head_dim, v_dim=head_dim)


def _latent(fields: Fields) -> LatentAttention:
    return LatentAttention(
        q_rank=fields.optional_size("q_lora_rank"),
        kv_rank=fields.size("kv_lora_rank"),
        nope=fields.size("qk_nope_head_dim"),
        rope=fields.size("qk_rope_head_dim"),
        v=fields.size("v_head_dim"),
    )


def _latent_cache(mla: LatentAttention) -> tuple[str, Latent]:
    return "mla", Latent(rank=mla.kv_rank, rope=mla.rope)


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
        shared_gate=family.shared_gate,
        router_bias=bool(family.router_bias)
        and all(fields.values.get(key) == value for key, value in family.router_bias.items()),
    )


def _expert_layers(fields: Fields, count: int) -> tuple[bool, ...]:
    """Which layers have experts: not the first dense ones, not those listed as dense, and every n-th."""
    dense = fields.optional_size("first_k_dense_replace", least=0) or 0
    every = fields.optional_size("moe_layer_freq") or 1
    step = fields.optional_size("decoder_sparse_step") or 1
    listed = fields.values.get("mlp_only_layers", [])
    if not isinstance(listed, list):
        raise ModelConfigError(f"config key 'mlp_only_layers': expected a list of layers, got {shown(listed)}")
    return tuple(
        index >= dense and index % every == 0 and (index + 1) % step == 0 and index not in listed
        for index in range(count)
    )


def _foreign(fields: Fields) -> str:
    """What a config's attention has that is none of the known kinds, although its type may be; empty when nothing."""
    found = [
        f"{meaning} ({', '.join(present)})"
        for meaning, keys in FOREIGN_KEYS.items()
        if (present := [key for key in keys if fields.values.get(key)])
    ]
    if _stray_latent(fields):
        found.append("latent attention in a type without it (kv_lora_rank)")
    if reason := _window(fields) or _layer_types(fields):
        found.append(reason)
    return "; ".join(found)


def _stray_latent(fields: Fields) -> bool:
    family = FAMILIES.get(str(fields.values.get("model_type")))
    return family is not None and family.attention != "mla" and bool(fields.values.get("kv_lora_rank"))


def _window(fields: Fields) -> str:
    """A sliding window shorter than the context, unless the config switches it off."""
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


def _why_unknown(model_type: str | None, foreign: str) -> str:
    name = f"model_type {shown(model_type)}" if model_type else "a config without model_type"
    has = f" has {foreign}, which" if foreign else ""
    return f"{name}{has} is not known here"


def _unknown_layers(fields: Fields, reason: str) -> tuple[tuple[Layer, ...], None]:
    count = fields.values.get("num_hidden_layers")
    known = isinstance(count, int) and not isinstance(count, bool) and 0 < count <= MAX_LAYERS
    return (Layer(kind=f"unknown: {reason}"),) * (count if known and isinstance(count, int) else 0), None


def _known(fields: Fields) -> str:
    """What an unknown architecture's config still tells."""
    names = {"num_hidden_layers": "layers", "hidden_size": "hidden size", "vocab_size": "vocabulary"}
    found = [f"{name} {shown(fields.values[key])}" for key, name in names.items() if key in fields.values]
    return f"known: {', '.join(found)}" if found else "nothing else is known"


def _architecture(fields: Fields) -> str | None:
    names = fields.values.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def _dtype(fields: Fields) -> str | None:
    value = fields.values.get("dtype")
    return value.removeprefix("torch.") if isinstance(value, str) else None


def _max_positions(fields: Fields) -> int | None:
    """The context by vLLM's rule: max_position_embeddings, times the rope factor where that is not counted in yet."""
    known = fields.optional_size("max_position_embeddings")
    scaling = fields.values.get("rope_scaling")
    if known is None or not isinstance(scaling, dict):
        return known
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    factor, original = scaling.get("factor", 1), scaling.get("original_max_position_embeddings")
    if kind in ("su", "longrope", "llama3") or not isinstance(factor, int | float):
        return known
    base = original if kind == "yarn" and isinstance(original, int) else known
    return int(base * factor) if 0 < base * factor <= MAX_SIZE else known
