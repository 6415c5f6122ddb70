"""Models in which some layers see less than all tokens: windows, chunks, an image, or another layer's cache."""

from collections.abc import Callable
from typing import Any

from agent.memory.families.attention import (
    chunked,
    cross,
    encoder_decoder,
    gemma4_global,
    grouped,
    heads,
    sliding,
    sliding_wide_values,
    step_sliding,
    wide_values,
)
from agent.memory.families.family import Derived, Family
from agent.memory.families.patterns import (
    CHUNKED,
    CROSS,
    FULL,
    SHARED,
    SLIDING,
    Pattern,
    chosen,
    chunks,
    every,
    last_full,
    mimo,
    sharing,
    windowed,
)
from agent.memory.fields import MAX_LAYERS, Fields, ModelConfigError, whole
from agent.memory.layers import Heads, Layer
from agent.memory.units import ceil_div, shown


def _gemma3n(fields: Fields) -> Derived:
    """The feed-forward width may be one for each layer."""
    widths = fields.values.get("intermediate_size")
    own = _own_types(_GEMMA3N_TYPES)(fields)
    if not isinstance(widths, list) or not widths:
        return own
    sizes = [whole("intermediate_size", width) for width in widths]
    return {**own, "intermediate_size": max(sizes), "intermediate_sizes": sizes}


def _own_types(pattern: Pattern) -> Callable[[Fields], Derived]:
    """The types of all layers, of those too that share K and V."""
    return lambda fields: {"own_types": pattern(fields, fields.size("num_hidden_layers", most=MAX_LAYERS))}


def _step(fields: Fields) -> Derived:
    """Step names the layers with experts, as text or as a list."""
    named = fields.values.get("moe_layers_enum")
    if named is None:
        return {}
    entries = named.split(",") if isinstance(named, str) else named
    try:
        sparse = {int(entry) for entry in entries}
    except (TypeError, ValueError):
        raise ModelConfigError(f"config key 'moe_layers_enum': expected layer numbers, got {shown(named)}") from None
    count = fields.size("num_hidden_layers", most=MAX_LAYERS)
    return {"mlp_layer_types": ["sparse" if index in sparse else "dense" for index in range(count)]}


def _llama4(fields: Fields) -> Derived:
    """Dense layers have a width of their own; the shared expert is as wide as the others."""
    width = fields.values.get("intermediate_size")
    return {
        "moe_intermediate_size": width,
        "intermediate_size": fields.values.get("intermediate_size_mlp", width),
        "shared_experts": 1,
    }


def _whisper(fields: Fields) -> Derived:
    """The decoder's names; ``num_hidden_layers`` may count the encoder's."""
    names = {
        "hidden_size": "d_model",
        "num_hidden_layers": "decoder_layers",
        "num_attention_heads": "decoder_attention_heads",
        "num_key_value_heads": "decoder_attention_heads",
        "intermediate_size": "decoder_ffn_dim",
        "max_position_embeddings": "max_target_positions",
    }
    return {name: fields.values.get(own) for name, own in names.items()}


def _nas(fields: Fields) -> Derived:
    """Widths of the feed-forward parts are multiples of hidden size, rounded up to 256."""
    count = fields.size("num_hidden_layers", most=len(fields.entries("block_configs") or [0]))
    widest = max(searched_width(fields, index) or 1 for index in range(count))
    return {"intermediate_size": fields.optional_size("intermediate_size") or widest}


def _nas_layers(fields: Fields, count: int) -> list[Layer]:
    """Layers found by search: each has KV heads of its own, or no attention at all."""
    return [_nas_layer(fields, searched_part(fields, index, "attention")) for index in range(count)]


def _nas_layer(fields: Fields, attention: Fields) -> Layer:
    if attention.flag("no_op") or attention.flag("replace_with_linear"):
        return Layer(kind="no_op")
    strange = [key for key in ("window_length", "num_sink_tokens", "sparsify") if attention.values.get(key)]
    if strange:
        return Layer(kind=f"unknown: a block whose attention has {strange[0]}")
    return grouped(fields, attention.size("n_heads_in_group"))


def searched_width(fields: Fields, index: int) -> int | None:
    """The width of a layer's MLP, from its factor: a multiple of 256; None of a layer that has none."""
    own = searched_part(fields, index, "ffn")
    if own.flag("no_op") or own.flag("replace_with_linear"):
        return None
    hidden = fields.size("hidden_size")
    factor: Any = own.values.get("ffn_mult")
    is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
    least = int(2 * factor * hidden / 3) if is_number and 0 < factor <= 64 else 0
    if not least:
        raise ModelConfigError(
            f"config key 'ffn_mult' of block {index}: expected a factor of hidden size up to 64 that makes a width, "
            f"got {shown(factor)}"
        )
    return ceil_div(least, 256) * 256


def searched_part(fields: Fields, index: int, part: str) -> Fields:
    """One part (``attention`` or ``ffn``) of the block of a layer."""
    blocks = fields.entries("block_configs", index + 1) or [{}]
    if not isinstance(blocks[index], dict):
        raise ModelConfigError(f"config key 'block_configs': expected objects, got {shown(blocks[index])}")
    return Fields(blocks[index]).part(part)


def own_heads(fields: Fields, index: int) -> Heads:
    """The heads of a layer of Gemma 3n or 4, whether its K and V are its own or another layer's."""
    kind, wider = fields.values["own_types"][index], "global_head_dim" in fields.values
    if kind not in _LOCAL:
        raise ModelConfigError(f"config key 'layer_types': expected {FULL} or {SLIDING}, got {shown(kind)}")
    cache = (gemma4_global if wider and kind == FULL else _LOCAL[kind])(fields).caches[0]
    assert isinstance(cache, Heads)
    return cache


_WINDOWS = ("sliding_window", "layer_types")
_LOCAL = {FULL: heads, SLIDING: sliding}
_SHARING = {**_LOCAL, SHARED: lambda fields: Layer(kind="shared")}
_GEMMA3N_TYPES, _GEMMA4_TYPES = every(5), last_full(every(6))
_GEMMA2 = Family(
    types=every(2),
    kinds=_LOCAL,
    reads=_WINDOWS,
    class_defaults={"sliding_window": 4096, "head_dim": 256},
    norms=4,
    tied=True,
)
_GEMMA3 = Family(
    types=every("sliding_window_pattern"),
    kinds=_LOCAL,
    reads=_WINDOWS,
    class_defaults={
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 131_072,
    },
    qk_norm="head",
    norms=4,
    tied=True,
)
_GEMMA3N = Family(
    types=sharing(_GEMMA3N_TYPES),
    kinds=_SHARING,
    reads=(*_WINDOWS, "num_kv_shared_layers"),
    class_defaults={
        "vocab_size": 262_400,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "sliding_window": 512,
        "num_kv_shared_layers": 15,
        "max_position_embeddings": 32_768,
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262_144,
        "laurel_rank": 64,
        "altup_num_inputs": 4,
    },
    derive=_gemma3n,
    matrices="gemma3n",
    tied=True,
)
_GEMMA4 = Family(
    types=sharing(_GEMMA4_TYPES),
    kinds={**_SHARING, FULL: gemma4_global},
    reads=(*_WINDOWS, "num_kv_shared_layers"),
    class_defaults={
        "vocab_size": 262_144,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "global_head_dim": 512,
        "sliding_window": 512,
        "max_position_embeddings": 131_072,
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262_144,
    },
    derive=_own_types(_GEMMA4_TYPES),
    matrices="gemma4",
    tied=True,
)
_LLAMA4 = Family(
    types=chunks,
    kinds={FULL: heads, CHUNKED: chunked},
    reads=("layer_types", "attention_chunk_size"),
    class_defaults={
        "head_dim": 128,
        "num_key_value_heads": 8,
        "attention_chunk_size": 8192,
        "nope_layer_interval": 4,
    },
    derive=_llama4,
)
_MLLAMA = Family(
    types=chosen("cross_attention_layers", CROSS, FULL),
    kinds={FULL: heads, CROSS: cross},
    reads=("cross_attention_layers",),
    class_defaults={"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38], "num_key_value_heads": 8},
    matrices="mllama",
)
_STEP = Family(
    types=windowed,
    kinds={FULL: heads, SLIDING: step_sliding},
    mtp=(FULL,),
    reads=_WINDOWS,
    class_defaults={"use_moe_router_bias": True},
    derive=_step,
    predicts=False,  # dense layers with a head of their own
    qk_norm="head",
    router_bias={"use_moe_router_bias": True},
    matrices="step",
)

ROWS: dict[str, Family] = {
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma3n": _GEMMA3N,
    "gemma3n_text": _GEMMA3N,
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "gpt_oss": Family(
        types=every(2),
        kinds=_LOCAL,
        reads=_WINDOWS,
        class_defaults={"head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128},
        qkv_bias=True,
        out_bias=True,
        sinks=True,
        expert_width="intermediate_size",
        expert_bias=True,
        router_bias={"model_type": "gpt_oss"},
    ),
    "llama4": _LLAMA4,
    "llama4_text": _LLAMA4,
    "mimo_v2_flash": Family(
        types=mimo,
        kinds={FULL: wide_values, SLIDING: sliding_wide_values},
        mtp=(SLIDING,),
        reads=(*_WINDOWS, "hybrid_layer_pattern", "swa_num_key_value_heads", "attention_chunk_size"),
        class_defaults={"head_dim": 192, "v_head_dim": 128, "sliding_window": 128, "num_key_value_heads": 4},
        router_bias={"topk_method": "noaux_tc"},
        matrices="mimo",
    ),
    "mllama": _MLLAMA,
    "mllama_text_model": _MLLAMA,
    "nemotron-nas": Family(layers=_nas_layers, derive=_nas, reads=("block_configs",), matrices="nas"),
    "step3p5": _STEP,
    "step3p7": _STEP,
    "whisper": Family(
        kinds={FULL: encoder_decoder},
        reads=("is_encoder_decoder",),
        derive=_whisper,
        mlp_matrices=2,
        final_norms=2,
        matrices="whisper",
        tied=True,
    ),
}
