"""Models in which most layers keep a recurrent state and few attend."""

from agent.memory.families.attention import heads, latent
from agent.memory.families.family import Derived, Family, experts_alone
from agent.memory.families.patterns import FULL, LINEAR, all_linear, chosen, every, flagged, kimi, named, periodic
from agent.memory.families.recurrent import gated_delta_net, kda, lightning, mamba1, mamba2
from agent.memory.fields import Fields, ModelConfigError
from agent.memory.layers import Layer

_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def _nemotron_h(fields: Fields) -> Derived:
    """Blocks as names or as letters; their number is that of the layers."""
    blocks = fields.entries("layers_block_type") or _spelt(fields, "hybrid_override_pattern")
    mtp = fields.entries("mtp_layers_block_type") or _spelt(fields, "mtp_hybrid_override_pattern")
    return {
        "layers_block_type": blocks,
        "num_hidden_layers": len(blocks) or fields.values.get("num_hidden_layers"),
        "mtp_types": mtp or ["attention", "moe"],
    }


def _spelt(fields: Fields, key: str) -> list[str]:
    letters = fields.text(key) or ""
    strange = sorted(set(letters) - _LETTERS.keys())
    if strange:
        raise ModelConfigError(f"config key {key!r}: expected letters of {''.join(_LETTERS)}, got {strange[0]!r}")
    return [_LETTERS[letter] for letter in letters]


def _mamba2_names(fields: Fields) -> Derived:
    """Bamba's and Granite's names; a head is as wide as expand x hidden size by heads."""
    heads = fields.size("mamba_n_heads")
    width = None if fields.values.get("mamba_d_head") == "auto" else fields.optional_size("mamba_d_head")
    return {
        "mamba_num_heads": heads,
        "mamba_head_dim": width or max(1, fields.size("mamba_expand") * fields.size("hidden_size") // heads),
        "ssm_state_size": fields.values.get("mamba_d_state"),
        "conv_kernel": fields.values.get("mamba_d_conv"),
        "n_groups": fields.values.get("mamba_n_groups"),
    }


def _granite(fields: Fields) -> Derived:
    """Granite 4: without experts there is the shared MLP alone."""
    shared = fields.values.get("shared_expert_intermediate_size")
    alone = {} if fields.values.get("num_experts") else {"intermediate_size": shared}
    return {**_mamba2_names(fields), **alone}


def _kimi(fields: Fields) -> Derived:
    """Widths of the linear layers stand in a part of their own."""
    linear = fields.part("linear_attn_config").values
    names = {
        "linear_head_dim": "head_dim",
        "linear_num_heads": "num_heads",
        "linear_conv_kernel_dim": "short_conv_kernel_size",
    }
    return {name: linear.get(own, fields.values.get(name)) for name, own in names.items()}


_GDN = {FULL: heads, LINEAR: gated_delta_net}
_GDN_KEYS = ("layer_types", "linear_num_value_heads")
_GDN_DEFAULTS = {
    "full_attention_interval": 4,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
_QWEN3_5 = Family(
    types=every("full_attention_interval", LINEAR),
    kinds=_GDN,
    mtp=(FULL,),
    reads=_GDN_KEYS,
    class_defaults=_GDN_DEFAULTS,
    derive=experts_alone,
    gated=True,
    qk_norm="head",
    shared_gate=True,
)
_KIMI = Family(
    types=kimi,
    kinds={FULL: latent, LINEAR: kda},
    mtp=(FULL,),
    reads=("layer_types", "linear_attn_config"),
    class_defaults={
        "linear_head_dim": 128,
        "linear_num_heads": 32,
        "linear_conv_kernel_dim": 4,
        "topk_method": "noaux_tc",
    },
    derive=_kimi,
    mla=True,
    predicts=False,
    router_bias={"topk_method": "noaux_tc"},
    matrices="kimi",
)
_MINIMAX = Family(
    types=flagged("attn_type_list", (LINEAR, FULL)),
    kinds={FULL: heads, LINEAR: lightning},
    reads=("attn_type_list", "layer_types"),
    expert_width="intermediate_size",
)
_MAMBA2_KEYS = ("mamba_d_state", "mamba_num_heads", "ssm_state_size")
_MAMBA2_DEFAULTS = {
    "mamba_n_heads": 128,
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}

ROWS: dict[str, Family] = {
    "bamba": Family(
        types=chosen("attn_layer_indices", FULL, LINEAR),
        kinds={FULL: heads, LINEAR: mamba2},
        reads=_MAMBA2_KEYS,
        class_defaults=_MAMBA2_DEFAULTS,
        derive=_mamba2_names,
        qkv_bias="attention_bias",
        out_bias="attention_bias",
        mlp_bias="mlp_bias",
    ),
    "granitemoehybrid": Family(
        types=all_linear,
        kinds={"attention": heads, FULL: heads, "mamba": mamba2, LINEAR: mamba2},
        reads=(*_MAMBA2_KEYS, "layer_types"),
        class_defaults=_MAMBA2_DEFAULTS,
        derive=_granite,
        expert_width="intermediate_size",
        qkv_bias="attention_bias",
        out_bias="attention_bias",
    ),
    "jamba": Family(
        types=periodic,
        kinds={FULL: heads, LINEAR: mamba1},
        reads=("attn_layer_period", "mamba_d_state"),
        class_defaults={
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
        },
        expert_width="intermediate_size",
    ),
    "kimi_k3": _KIMI,
    "kimi_linear": _KIMI,
    "minimax_m1": _MINIMAX,
    "minimax_text_01": _MINIMAX,
    "nemotron_h": Family(
        types=named("layers_block_type"),
        kinds={
            "mamba": mamba2,
            LINEAR: mamba2,
            "attention": heads,
            FULL: heads,
            "mlp": lambda fields: Layer(kind="mlp"),
            "moe": lambda fields: Layer(kind="moe", experts=True),
        },
        reads=("layers_block_type", "layer_types", "hybrid_override_pattern", "mamba_num_heads", "ssm_state_size"),
        class_defaults={
            "n_groups": 8,
            "conv_kernel": 4,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "ssm_state_size": 128,
            "mamba_ssm_cache_dtype": "float32",
        },
        derive=_nemotron_h,
        mlp_matrices=2,
        mlp_bias="mlp_bias",
        router_bias={"model_type": "nemotron_h"},
        norms=1,
        matrices="blocks",
    ),
    "qwen3_5": _QWEN3_5,
    "qwen3_5_text": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5,
    "qwen3_5_moe_text": _QWEN3_5,
    "qwen3_next": Family(
        types=every("full_attention_interval", LINEAR),
        kinds=_GDN,
        mtp=(FULL,),
        reads=_GDN_KEYS,
        class_defaults=_GDN_DEFAULTS,
        gated=True,
        qk_norm="head",
        shared_gate=True,
    ),
}
