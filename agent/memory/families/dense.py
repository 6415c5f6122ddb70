"""Models whose layers are all alike but for a window: heads, or one latent vector.

Rows whose weights are counted are checked by exact counts in the tests, except glm4_moe, mistral4, minicpm3, granite,
ministral, olmo3 and qwen2_moe (no published count at hand).
"""

from agent.memory.families.attention import heads, latent, sliding
from agent.memory.families.family import Derived, Family
from agent.memory.families.patterns import FULL, SLIDING, every, late_windows, windowed
from agent.memory.fields import Fields


def _falcon(fields: Fields) -> Derived:
    """Falcon's names, and its decoy: ``num_kv_heads`` counts only in the new decoder architecture."""
    new = fields.flag("new_decoder_architecture")
    heads_ = fields.optional_size("num_attention_heads")
    hidden = fields.optional_size("hidden_size")
    kv_heads = (
        fields.optional_size("num_kv_heads") if new else 1 if fields.flag("multi_query", default=True) else heads_
    )
    one_norm = fields.values.get("num_ln_in_parallel_attn") == 1 if new else fields.flag("parallel_attn", default=True)
    return {
        "num_key_value_heads": kv_heads or heads_,
        "intermediate_size": fields.optional_size("ffn_hidden_size") or (hidden and hidden * 4),
        "norms": 2 if one_norm else 4,  # each with a bias
    }


def _minicpm3(fields: Fields) -> Derived:
    """MiniCPM3's V heads are as wide as hidden size by heads."""
    if "v_head_dim" in fields.values:
        return {}
    return {"v_head_dim": fields.size("hidden_size") // fields.size("num_attention_heads")}


_WINDOWS = ("sliding_window", "layer_types")
_LOCAL = {FULL: heads, SLIDING: sliding}
_LLAMA = Family(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias")
_MISTRAL = Family(types=windowed, kinds=_LOCAL, reads=_WINDOWS, class_defaults={"sliding_window": 4096})
_QWEN2 = Family(
    types=late_windows, kinds=_LOCAL, reads=_WINDOWS, class_defaults={"max_window_layers": 28}, qkv_bias=True
)
_QWEN3 = Family(
    types=late_windows,
    kinds=_LOCAL,
    reads=_WINDOWS,
    class_defaults={"head_dim": 128, "max_window_layers": 28},
    qkv_bias="attention_bias",
    out_bias="attention_bias",
    qk_norm="head",
)

ROWS: dict[str, Family] = {
    "llama": _LLAMA,
    "granite": _LLAMA,
    "smollm3": Family(class_defaults={"num_key_value_heads": 4}, qkv_bias="attention_bias", tied=True),
    "mistral": _MISTRAL,
    "ministral": _MISTRAL,
    "ministral3": Family(types=windowed, kinds=_LOCAL, reads=_WINDOWS, class_defaults={"head_dim": 128}),
    "mixtral": Family(types=windowed, kinds=_LOCAL, reads=_WINDOWS, expert_width="intermediate_size"),
    "mistral4": Family(kinds={FULL: latent}, mla=True),
    "qwen2": _QWEN2,
    "qwen2_moe": Family(
        types=late_windows,
        kinds=_LOCAL,
        reads=_WINDOWS,
        class_defaults={"max_window_layers": 28},
        qkv_bias=True,
        shared_gate=True,
    ),
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "qwen3_vl_moe_text": _QWEN3,
    "minicpm3": Family(kinds={FULL: latent}, mla=True, tied=True, derive=_minicpm3),
    "phi3": Family(types=windowed, kinds=_LOCAL, reads=_WINDOWS),
    "glm4_moe": Family(
        qkv_bias="attention_bias", qk_norm="head", qk_norm_key="use_qk_norm", router_bias={"model_type": "glm4_moe"}
    ),
    "glm4_moe_lite": Family(kinds={FULL: latent}, mla=True, router_bias={"model_type": "glm4_moe_lite"}),
    "minimax_m2": Family(
        qk_norm="all_heads",
        qk_norm_key="use_qk_norm",
        expert_width="intermediate_size",
        router_bias={"use_routing_bias": True},
    ),
    "cohere": Family(
        qkv_bias="attention_bias",
        out_bias="attention_bias",
        qk_norm="all_heads",
        qk_norm_key="use_qk_norm",
        norms=1,
        tied=True,
    ),
    "cohere2": Family(
        types=every("sliding_window_pattern"),
        kinds=_LOCAL,
        reads=_WINDOWS,
        class_defaults={"sliding_window": 4096, "sliding_window_pattern": 4},
        qkv_bias="attention_bias",
        out_bias="attention_bias",
        norms=1,
        tied=True,
    ),
    "gemma": Family(class_defaults={"head_dim": 256}, tied=True),
    "falcon": Family(
        qkv_bias="bias", out_bias="bias", mlp_bias="bias", mlp_matrices=2, final_norms=2, tied=True, derive=_falcon
    ),
    "internlm2": Family(qkv_bias="bias", out_bias="bias"),
    "olmo3": Family(
        types=every(4),
        kinds=_LOCAL,
        reads=_WINDOWS,
        class_defaults={"sliding_window": 4096},
        qkv_bias="attention_bias",
        out_bias="attention_bias",
        qk_norm="all_heads",
    ),
    "olmo2": Family(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="all_heads"),
}
