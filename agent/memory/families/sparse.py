"""DeepSeek's latent, sparse and compressed attention and what follows it, and MiniMax-M3's block-sparse heads."""

from agent.memory.families.attention import (
    block_sparse,
    compressed_source,
    compressed_sparse,
    heads,
    heavily_compressed,
    latent,
    sparse_latent,
    sparse_latent_shared,
    whole_source,
    window_record,
)
from agent.memory.families.family import Derived, Family, experts_alone
from agent.memory.families.patterns import (
    FULL,
    INDEXED,
    SHARED,
    SPARSE,
    block_sparse_layers,
    indexers,
    ratios,
    sources,
)
from agent.memory.fields import Fields


def _minimax_m3(fields: Fields) -> Derived:
    """``intermediate_size`` is that of an expert; dense layers have their own."""
    width = fields.values.get("intermediate_size")
    return {
        "moe_intermediate_size": width,
        "intermediate_size": fields.values.get("dense_intermediate_size", width),
        "num_nextn_predict_layers": fields.values.get("num_mtp_modules"),
    }


_INDEXER = ("index_topk", "index_head_dim", "index_n_heads", "layer_types")
_DEEPSEEK = Family(
    types=indexers,
    kinds={FULL: latent, INDEXED: sparse_latent, SHARED: sparse_latent_shared},
    reads=_INDEXER,
    class_defaults={"index_n_heads": 64},
    mla=True,
    router_bias={"topk_method": "noaux_tc"},
)
_DEEPSEEK_SPARSE = Family(
    types=indexers,
    kinds=_DEEPSEEK.kinds,
    reads=_INDEXER,
    mla=True,
    class_defaults={"index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64},
    router_bias={"topk_method": "noaux_tc"},
)
_V41 = Family(
    types=sources,
    kinds={"0": window_record, "1": whole_source, "2": compressed_source},
    mtp=("0",),
    reads=(*_INDEXER, "sliding_window", "compress_ratios", "kv_source_layer_ids"),
    derive=experts_alone,
    predicts=False,  # layers with fewer experts, and what joins them
    matrices="shared_compressed",
)
_MINIMAX_M3 = Family(
    types=block_sparse_layers,
    kinds={FULL: heads, SPARSE: block_sparse},
    mtp=(SPARSE,),
    reads=("sparse_attention_config",),
    derive=_minimax_m3,
    predicts=False,
    qk_norm="head",
    qk_norm_key="use_qk_norm",
    router_bias={"use_routing_bias": True},
)

ROWS: dict[str, Family] = {
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK_SPARSE,
    "glm_moe_dsa": _DEEPSEEK_SPARSE,
    "deepseek_v4": Family(
        types=ratios,
        kinds={"0": window_record, "1": window_record, "4": compressed_sparse, "128": heavily_compressed},
        mtp=("0",),
        reads=(*_INDEXER, "sliding_window", "compress_ratios"),
        derive=experts_alone,
        matrices="compressed",
    ),
    "deepseek_v41": _V41,
    "deepseek_v41_text": _V41,
    "minimax_m3_vl": _MINIMAX_M3,
    "minimax_m3": _MINIMAX_M3,
}
