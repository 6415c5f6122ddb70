"""What a ``model_type`` means beyond the numbers in its config: one literal row for each known kind of decoder.

A type that is not here, or a config with a key that changes attention (``FOREIGN_KEYS``), is unknown: never a guess.
Rows are checked by exact parameter counts in the tests, except glm4_moe, mistral4, minicpm3 and qwen2_moe (no count).
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

Fields = dict[str, Any]


class Family(Struct, frozen=True, kw_only=True):
    """Attention and the weights that a config doesn't list. A bias is always, never, or switched by a config key."""

    attention: Literal["heads", "mla"] = "heads"
    qkv_bias: bool | str = False
    out_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norm: Literal["head", "all_heads"] | None = None
    qk_norm_key: str | None = None  # the config key that switches it
    norms: int = 2  # vectors of hidden size per layer
    final_norms: int = 1
    mlp_matrices: int = 3
    expert_width: Literal["moe_intermediate_size", "intermediate_size"] = "moe_intermediate_size"
    router_bias: Mapping[str, object] = {}  # config entries under which the router has one
    shared_gate: bool = False
    tied: bool = False  # class default
    defaults: Callable[[Fields], Fields] | None = None  # what the class derives from other fields


def _falcon(fields: Fields) -> Fields:
    """Falcon's names, and its decoy: ``num_kv_heads`` counts only in the new decoder architecture."""
    new = bool(fields.get("new_decoder_architecture"))
    hidden, heads = fields.get("hidden_size"), fields.get("num_attention_heads")
    wide = hidden * 4 if isinstance(hidden, int) else None
    kv_heads = fields.get("num_kv_heads") if new else 1 if fields.get("multi_query", True) else heads
    one_norm = fields.get("num_ln_in_parallel_attn") == 1 if new else fields.get("parallel_attn", True)
    return {
        "num_key_value_heads": heads if kv_heads is None else kv_heads,
        "intermediate_size": fields.get("ffn_hidden_size", wide),
        "norms": 2 if one_norm else 4,  # each with a bias
    }


def _minicpm3(fields: Fields) -> Fields:
    """MiniCPM3's V heads are as wide as hidden size by heads."""
    hidden, heads = fields.get("hidden_size"), fields.get("num_attention_heads")
    if "v_head_dim" in fields or not isinstance(hidden, int) or not isinstance(heads, int) or heads < 1:
        return {}
    return {"v_head_dim": hidden // heads}


_DEEPSEEK = Family(attention="mla", router_bias={"topk_method": "noaux_tc"})
_QWEN3 = Family(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head")

FAMILIES: dict[str, Family] = {
    "llama": Family(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias"),
    "mistral": Family(),
    "mixtral": Family(expert_width="intermediate_size"),
    "mistral4": Family(attention="mla"),
    "qwen2": Family(qkv_bias=True),
    "qwen2_moe": Family(qkv_bias=True, shared_gate=True),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "minicpm3": Family(attention="mla", tied=True, defaults=_minicpm3),
    "phi3": Family(),
    "glm4_moe": Family(
        qkv_bias="attention_bias", qk_norm="head", qk_norm_key="use_qk_norm", router_bias={"model_type": "glm4_moe"}
    ),
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
    "falcon": Family(
        qkv_bias="bias", out_bias="bias", mlp_bias="bias", mlp_matrices=2, final_norms=2, tied=True, defaults=_falcon
    ),
    "internlm2": Family(qkv_bias="bias", out_bias="bias"),
    "olmo2": Family(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="all_heads"),
}

FOREIGN_KEYS: dict[str, tuple[str, ...]] = {
    "a sparse-attention indexer with a cache of its own": ("index_topk", "index_head_dim", "index_n_heads"),
    "block-sparse attention with index keys": ("sparse_attention_config",),
    "compressed attention": ("compress_ratios",),
    "layers that read another layer's cache": ("kv_source_layer_ids", "num_kv_shared_layers"),
    "layers without attention or of different shapes": ("block_configs",),
    "layers of different attention widths": ("hybrid_layer_pattern", "swa_num_key_value_heads"),
    "cross-attention": ("cross_attention_layers", "is_encoder_decoder"),
    "attention in chunks": ("attention_chunk_size",),
    "layers that keep a recurrent state": (
        "layers_block_type",
        "hybrid_override_pattern",
        "attn_type_list",
        "attn_layer_period",
        "linear_attn_config",
        "linear_num_value_heads",
        "mamba_d_state",
        "mamba_num_heads",
        "ssm_state_size",
    ),
}
