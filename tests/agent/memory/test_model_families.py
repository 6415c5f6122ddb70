"""Kinds of models without a row in the table, and what can't be or is not known of those that have one."""

from typing import Any

import pytest

from agent.memory.layers import Cache, Heads, State
from agent.memory.model_config import ModelConfigError, parse_model
from tests.agent.memory.models import ROWS, gqa, row_config

BASE: dict[str, Any] = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1000,
    "max_position_embeddings": 65_536,
}
STEP_OTHER = {
    "attention_type": "sliding_attention",
    "num_attention_heads": 12,
    "num_attention_groups": 4,
    "head_dim": 32,
}
BAMBA_STATE = State(
    kind="mamba2",
    heads=16,
    head_elements=64 * 128,  # a head is 2 x 512 / 16 wide
    conv_channels=1024,
    conv_width=3,
    groups=1,
    group_channels=2 * 128,
)


def window(heads: int, tokens: int, width: int = 64) -> Heads:
    return gqa(heads, width, reach="window", tokens=tokens)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"model_type": "granite"}, [gqa(2, 64)] * 4),
        ({"model_type": "gemma", "head_dim": None}, [gqa(2, 64)] * 4),  # null: hidden by heads, not the class's 256
        ({"model_type": "cohere2", "sliding_window": 128}, [window(2, 128)] * 3 + [gqa(2, 64)]),
        ({"model_type": "olmo3"}, [window(2, 4096)] * 3 + [gqa(2, 64)]),
        ({"model_type": "ministral"}, [window(2, 4096)] * 4),
        ({"model_type": "ministral3"}, [gqa(2, 64)] * 4),
        ({"model_type": "mistral", "sliding_window": 65_536}, [gqa(2, 64)] * 4),  # as long as the context
        (
            {"model_type": "mistral", "layer_types": ["full_attention", *["sliding_attention"] * 5]},
            [gqa(2, 64)] + [window(2, 4096)] * 3,  # cut to the number of layers
        ),
        (
            {"model_type": "step3p5", "sliding_window": 512, "attention_other_setting": STEP_OTHER}
            | {"layer_types": ["full_attention", "sliding_attention"] * 2},
            [gqa(2, 64), window(4, 512, 32)] * 2,
        ),
        (
            {"model_type": "gemma3_text", "sliding_window": 128, "sliding_window_pattern": 2},
            [window(2, 128), gqa(2, 64)] * 2,
        ),
        (
            {
                "model_type": "gemma4_text",
                "global_head_dim": 96,
                "num_global_key_value_heads": 1,
                "sliding_window": 128,
            },
            [window(2, 128)] * 3 + [gqa(2, 96)],  # fewer KV heads only where K equals V
        ),
        (
            {"model_type": "gemma3n_text", "num_kv_shared_layers": 2, "intermediate_size": [1024, 1024, 2048, 1024]},
            [window(2, 512)] * 2,
        ),
        (
            {"model_type": "llama4_text", "attention_chunk_size": None},
            [gqa(2, 64)] * 4,  # null: no chunks
        ),
        (
            {"model_type": "bamba", "attn_layer_indices": [1], "mamba_n_heads": 16, "mamba_d_state": 128},
            [BAMBA_STATE, gqa(2, 64), BAMBA_STATE, BAMBA_STATE],
        ),
        (
            {"model_type": "granitemoehybrid", "layer_types": ["mamba", "attention", "mamba", "mamba"]}
            | {"mamba_n_heads": 16, "mamba_d_head": 64, "mamba_d_state": 128},
            [BAMBA_STATE, gqa(2, 64), BAMBA_STATE, BAMBA_STATE],
        ),
        (
            {"model_type": "nemotron-nas"}
            | {
                "block_configs": [{"attention": {"n_heads_in_group": n}, "ffn": {"ffn_mult": 2}} for n in (8, 4)]
                + [{"attention": {"no_op": True}, "ffn": {"no_op": True}}] * 2
            },
            [gqa(8, 64), gqa(4, 64)],
        ),
    ],
)
def test_kinds_that_the_table_has_no_row_for(content: dict[str, Any], expected: list[Cache]) -> None:
    """Class defaults, nulls, lists that are too long, and settings of their own."""
    assert expected == [cache for layer in parse_model(BASE | content).layers for cache in layer.caches]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            {"model_type": "mistral", "layer_types": ["full_attention"] * 3},
            "config key 'layer_types': expected 4 entries, one a layer, got 3",
        ),
        ({"model_type": "qwen3", "layer_types": 7}, "config key 'layer_types': expected a list, got 7"),
        (
            {"model_type": "mistral", "layer_types": [1, 2, 3, 4]},
            "config key 'layer_types': expected names of layer types, got 1",
        ),
        (
            {"model_type": "nemotron_h", "hybrid_override_pattern": "MX"},
            "config key 'hybrid_override_pattern': expected letters of M*-E, got 'X'",
        ),
        (
            {"model_type": "nemotron_h", "hybrid_override_pattern": "M*", "mamba_ssm_cache_dtype": "fp3"},
            "config key 'mamba_ssm_cache_dtype': expected one of auto, float32, float16, bfloat16, got 'fp3'",
        ),
        (
            {"model_type": "minimax_m1"},
            "config key 'attn_type_list' is missing; expected a list of 0 and 1, one a layer",
        ),
        (
            {"model_type": "deepseek_v4", "qk_rope_head_dim": 64},
            "config key 'compress_ratios' is missing; expected a list of ratios, one a layer",
        ),
        (
            {"model_type": "gemma3n_text", "num_kv_shared_layers": 9},
            "config key 'num_kv_shared_layers': expected an integer from 0 to 4, got 9",
        ),
        (
            {"model_type": "mllama", "vision_config": 5, "cross_attention_layers": [1]},
            "config key 'vision_config': expected an object, got 5",
        ),
    ],
)
def test_layers_that_cannot_be(content: dict[str, Any], said: str) -> None:
    """Key, expected, got."""
    with pytest.raises(ModelConfigError) as caught:
        parse_model(BASE | content)

    assert said == str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            {"model_type": "mistral", "layer_types": ["full_attention", "novel", "novel", "other"]},
            "has layers of type 'novel'; layers of type 'other', which is not known here",
        ),
        (
            {"model_type": "deepseek_v4", "compress_ratios": [0, 16, 4, 128]}
            | {"qk_rope_head_dim": 64, "index_head_dim": 64, "sliding_window": 128},
            "has layers of type '16', which is not known here",
        ),
        (
            {
                "model_type": "nemotron-nas",
                "block_configs": [{"attention": {"n_heads_in_group": 4, "window_length": 9}, "ffn": {"ffn_mult": 2}}]
                * 4,
            },
            "has a block whose attention has window_length, which is not known here",
        ),
        (
            {"model_type": "gpt_oss", "index_topk": 4},
            "has a sparse-attention indexer with a cache of its own (index_topk)",
        ),
    ],
)
def test_a_known_type_with_a_layer_that_is_not(content: dict[str, Any], said: str) -> None:
    """No layer is guessed; what a token may take is bounded: K and V of 8 heads of 64 in 4 layers."""
    shape = parse_model(BASE | content)

    assert said in shape.unknown[0]
    assert not any(layer.known or layer.caches for layer in shape.layers)
    assert shape.token_bounds is not None
    assert (shape.token_bounds.low, shape.token_bounds.high) == (0, 2 * 8 * 64 * 4)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_bounds_hold_for_every_row(row: dict[str, Any]) -> None:
    """Were its type not known, the bounds of a token would still have its true bytes between them."""
    content = row_config(row)
    text = content.get("text_config")
    hidden = content | {"text_config": text | {"model_type": "new"}} if text else content | {"model_type": "new"}

    bounds = parse_model(hidden).token_bounds

    assert bounds is None or bounds.low <= row["bytes_per_token_bf16"] <= 2 * bounds.high
    assert bounds is not None or row["name"] in ("Nemotron-3-Ultra-550B-A55B", "Whisper-large-v3")
