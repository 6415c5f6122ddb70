"""Every known ``model_type``, and the keys that make an unknown one of a config."""

from agent.memory.families import dense, hybrid, local, sparse
from agent.memory.families.family import Family

FAMILIES: dict[str, Family] = {**dense.ROWS, **local.ROWS, **sparse.ROWS, **hybrid.ROWS}

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
"""Keys that change what a layer caches, by what they mean; a row says which of them it reads."""
