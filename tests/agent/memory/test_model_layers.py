"""What each layer of each public model caches, and the bytes it comes to: every row of the table, from its config."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from agent.memory.layers import Cache, Compressor, Heads, IndexKeys, Latent, Record, State
from agent.memory.model_config import ModelConfigError, ModelShape, parse_model
from tests.agent.memory.models import ROWS, config, row_config

FP8_DS_MLA = 656  # 512 B latent in fp8, 4 fp32 scales, 64 x 2 B rope
V4_RECORD = {"bf16": 512 * 2, "fp8": 448 + 64 * 2 + 8}  # 8 B of scales: 584 B
V41_RECORD = {"bf16": 512 * 2, "fp8": 512 + 512 // 32}  # all in fp8 with a scale byte for each 32 (SM100): 528 B
STATE_BYTES = {None: 2, "bfloat16": 2, "float32": 4}


def caches(shape: ModelShape) -> Iterable[Cache]:
    return (cache for layer in shape.layers for cache in layer.caches)


def growing_bytes(cache: Cache, layout: str, record: dict[str, int]) -> float:
    """Bytes of one more token, at tensor-parallel size 1."""
    element = 2 if layout == "bf16" else 1
    match cache:
        case Heads(reach="full"):
            return cache.heads * (cache.k_dim + cache.v_dim) * element
        case Latent(sparse=True) if layout == "fp8":
            return FP8_DS_MLA
        case Latent():
            return (cache.rank + cache.rope) * element
        case IndexKeys(packed=True):  # fp8 and an fp32 scale for each 128, at any KV format
            return (cache.dim + cache.dim // 128 * 4) / cache.ratio
        case IndexKeys():
            return cache.dim * 2
        case Record(window=None):
            return record[layout] / cache.ratio
    return 0


def fixed_bytes(cache: Cache, record: dict[str, int]) -> int:
    """Bytes a request holds whatever its length, windows full: heads in bf16, records in fp8, states as they are."""
    match cache:
        case Heads(reach="window" | "chunk" | "encoder", tokens=int(tokens)):
            return tokens * cache.heads * (cache.k_dim + cache.v_dim) * 2
        case Record(window=int(window)):
            return window * record["fp8"]
        case State():
            channels = cache.conv_channels + cache.groups * cache.group_channels
            conv = cache.conv_width * channels * STATE_BYTES[cache.conv_dtype]
            return conv + cache.heads * cache.head_elements * STATE_BYTES[cache.state_dtype]
    return 0


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_row_of_the_table(row: dict[str, Any]) -> None:
    """Bytes per token in bf16 and in fp8, and bytes per request, of all 88 models from their configs alone."""
    shape = parse_model(row_config(row))
    record = V41_RECORD if shape.model_type == "deepseek_v41_text" else V4_RECORD

    found = (
        sum(growing_bytes(cache, "bf16", record) for cache in caches(shape)),
        sum(growing_bytes(cache, "fp8", record) for cache in caches(shape)),
        sum(fixed_bytes(cache, record) for cache in caches(shape)),
    )

    assert (shape.unknown, found) == ((), (row["bytes_per_token_bf16"], row["bytes_per_token_fp8"], row["fixed_bytes"]))


@pytest.mark.parametrize(
    ("record", "keys", "expected"),
    [
        (512 // 2 + 512 // 16, 64 + 4, 890),  # nvfp4: half a byte and a scale byte for each 16; keys in mxfp4
        (528, 132, 1_650),  # fp8 as SM100 packs it
        (584, 132, 1_790),  # fp8 as SM90 packs it
    ],
)
def test_slope_of_deepseek_v41(record: int, keys: int, expected: int) -> None:
    """Four layers keep a history for all 40: three of every second token, one of each, so 2.5 records a token."""
    layers = parse_model(config("deepseek-v4.1-flash")).layers
    histories = (cache for layer in layers for cache in layer.caches if isinstance(cache, Record))
    records = sum(1 / cache.ratio for cache in histories if cache.window is None)

    assert (records, records * (record + keys)) == (2.5, expected)


WINDOW_4096 = Heads(heads=8, k_dim=256, v_dim=256, reach="window", tokens=4096)
MAMBA2_56B = State(
    kind="mamba2",
    heads=256,
    head_elements=64 * 256,
    conv_channels=256 * 64,
    conv_width=3,
    groups=8,
    group_channels=2 * 256,
    state_dtype="float32",
)
RECORD = Record(dim=512, rope=64)
WINDOW = Record(dim=512, rope=64, window=128)
CSA = (
    WINDOW,
    Record(dim=512, rope=64, ratio=4),
    IndexKeys(dim=128, ratio=4),
    Compressor(elements=2 * 2 * 512, window=8, ratio=4),
    Compressor(elements=2 * 2 * 128, window=8, ratio=4),
)
HCA = (WINDOW, Record(dim=512, rope=64, ratio=128), Compressor(elements=2 * 512, window=128, ratio=128))
LATENT = Latent(rank=512, rope=64)
SPARSE = Latent(rank=512, rope=64, sparse=True)
KEYS = IndexKeys(dim=128)


def gqa(heads: int, width: int = 128, **reach: Any) -> Heads:
    return Heads(heads=heads, k_dim=width, v_dim=width, **reach)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mistral-7b-v0.1", {("gqa", gqa(8, reach="window", tokens=4096)): 32}),
        ("gemma-2-9b", {("gqa", gqa(8, 256)): 21, ("gqa", WINDOW_4096): 21}),
        ("gemma-3-27b", {("gqa", gqa(16)): 10, ("gqa", gqa(16, reach="window", tokens=1024)): 52}),
        (
            "gemma-3n-e4b",
            {("gqa", gqa(2, 256)): 4, ("gqa", gqa(2, 256, reach="window", tokens=512)): 16, ("shared",): 15},
        ),
        ("gemma-4-26b-a4b", {("gqa", gqa(2, 512)): 5, ("gqa", gqa(8, 256, reach="window", tokens=1024)): 25}),
        ("gpt-oss-20b", {("gqa", gqa(8, 64)): 12, ("gqa", gqa(8, 64, reach="window", tokens=128)): 12}),
        ("llama-4-scout-17b-16e", {("gqa", gqa(8)): 12, ("gqa", gqa(8, reach="chunk", tokens=8192)): 36}),
        (
            "mimo-v2-flash",
            {
                ("gqa", Heads(heads=4, k_dim=192, v_dim=128)): 9,
                ("gqa", Heads(heads=8, k_dim=192, v_dim=128, reach="window", tokens=128)): 39,
            },
        ),
        ("step-3.7-flash", {("gqa", gqa(8)): 12, ("gqa", gqa(8, reach="window", tokens=512)): 33}),
        ("llama-3.2-11b-vision", {("gqa", gqa(8)): 32, ("cross", gqa(8, reach="encoder", tokens=4 * 1601)): 8}),
        ("llama-3.3-nemotron-super-49b", {("gqa", gqa(8)): 49, ("no_op",): 31}),
        ("whisper-large-v3", {("mha", gqa(20, 64), gqa(20, 64, reach="encoder", tokens=1500)): 32}),
        ("deepseek-v3", {("mla", LATENT): 61}),
        ("deepseek-v3.2", {("dsa", SPARSE, KEYS): 61}),
        ("glm-5", {("dsa", SPARSE, KEYS): 78}),
        ("glm-5.2", {("dsa", SPARSE, KEYS): 21, ("dsa", SPARSE): 57}),
        ("minimax-m3", {("gqa", gqa(4)): 3, ("gqa", gqa(4), IndexKeys(dim=128, packed=False)): 57}),
        ("deepseek-v4-flash", {("window", WINDOW): 2, ("csa", *CSA): 21, ("hca", *HCA): 20}),
        ("deepseek-v4-pro", {("hca", *HCA): 31, ("csa", *CSA): 30}),
        (
            "deepseek-v4.1-flash",
            {
                ("window", WINDOW): 36,
                (
                    "csa",
                    WINDOW,
                    Record(dim=512, rope=64, ratio=2),
                    IndexKeys(dim=128, ratio=2),
                    Compressor(elements=2 * 512, window=2, ratio=2),
                ): 3,
                ("csa", WINDOW, RECORD, KEYS): 1,
            },
        ),
        ("nemotron-h-56b", {("mamba2", MAMBA2_56B): 54, ("mlp",): 54, ("gqa", gqa(8)): 10}),
        (
            "jamba-v0.1",
            {
                ("gqa", gqa(8)): 4,
                ("mamba1", State(kind="mamba1", heads=8192, head_elements=16, conv_channels=8192, conv_width=3)): 28,
            },
        ),
        (
            "qwen3.5-27b",
            {
                ("gqa", gqa(4, 256)): 16,
                (
                    "gated_delta_net",
                    State(
                        kind="gated_delta_net",
                        heads=48,
                        head_elements=128 * 128,
                        conv_channels=2 * 16 * 128 + 48 * 128,
                        conv_width=3,
                        state_dtype="float32",
                    ),
                ): 48,
            },
        ),
        (
            "kimi-k3",
            {
                ("mla", LATENT): 24,
                (
                    "kda",
                    State(
                        kind="kda",
                        heads=96,
                        head_elements=128 * 128,
                        conv_channels=3 * 96 * 128,
                        conv_width=3,
                        state_dtype="float32",
                    ),
                ): 69,
            },
        ),
        (
            "minimax-m1",
            {("gqa", gqa(8)): 10, ("lightning", State(kind="lightning", heads=64, head_elements=128 * 128)): 70},
        ),
    ],
)
def test_kinds_of_layers(name: str, expected: dict[tuple[object, ...], int]) -> None:
    """Kind and caches of each layer, and how many there are of each."""
    assert Counter((layer.kind, *layer.caches) for layer in parse_model(config(name)).layers) == expected


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("gemma-2-9b", "wfwfwf"),
        ("gemma-3-27b", "wwwwwfwwwwwf"),
        ("gpt-oss-20b", "wfwfwf"),
        ("mimo-v2-flash", "fwwwwfwwwwwf"),
        ("llama-4-scout-17b-16e", "cccfcccf"),
        ("qwen3-next-80b-a3b", "sssfsssf"),
        ("kimi-linear-48b", "sssfsssf"),
        ("jamba-v0.1", "ssssfsssssssf"),
        ("minimax-m1", "sssssssf"),
    ],
)
def test_order_of_layers(name: str, first: str) -> None:
    """Full, window, chunk or state, from the first layer on."""
    layers = parse_model(config(name)).layers[: len(first)]

    assert first == "".join(_letter(layer.caches[0]) for layer in layers)


def _letter(cache: Cache) -> str:
    return cache.reach[0] if isinstance(cache, Heads) else "s" if isinstance(cache, State) else "f"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("deepseek-v3", [("mla", True)]),
        ("glm-4.5", [("gqa", True)]),
        ("deepseek-v3.2", [("dsa", True)]),
        ("qwen3.5-27b", [("gqa", False)]),
        ("qwen3.5-35b-a3b", [("gqa", True)]),
        ("deepseek-v4-flash", [("window", True)]),
        ("deepseek-v4.1-flash", [("window", True)] * 3),
        ("nemotron-3-super-120b-a12b", [("gqa", False), ("moe", True)]),
        ("nemotron-3-nano-30b-a3b", []),
        ("step-3.7-flash", [("gqa", True)] * 3),
        ("minimax-m3", [("gqa", True)] * 7),
        ("kimi-k3", []),
    ],
)
def test_layers_of_multi_token_prediction(name: str, expected: list[tuple[str, bool]]) -> None:
    """They stand apart: which there are, and which have experts."""
    shape = parse_model(config(name))

    assert expected == [(layer.kind, layer.experts) for layer in shape.mtp]
    assert not set(expected) or len(shape.mtp) % shape.mtp_layers == 0


def test_layers_with_experts() -> None:
    """By first dense layers, by list, by interval, by letter, or all."""
    counts = {
        "deepseek-v3.2": 58,
        "mimo-v2-flash": 47,
        "minimax-m3": 57,
        "llama-4-maverick-17b-128e": 24,
        "llama-4-scout-17b-16e": 48,
        "nemotron-3-nano-30b-a3b": 23,
        "jamba-v0.1": 16,
        "kimi-linear-48b": 26,
        "step-3.7-flash": 42,
        "gemma-4-26b-a4b": 30,
        "gemma-4-31b": 0,
    }

    assert counts == {name: sum(layer.experts for layer in parse_model(config(name)).layers) for name in counts}


@pytest.mark.parametrize(
    ("name", "changes", "caches"),
    [
        # a class default stands for a missing key, and not for a null
        ("mistral-7b-v0.1", {"sliding_window": None}, {gqa(8)}),
        ("gemma-2-9b", {"sliding_window": None}, {gqa(8, 256)}),
        # Qwen's window counts from a layer on, once it is switched on
        ("qwen2.5-7b", {"use_sliding_window": False}, {gqa(4)}),
        (
            "qwen2.5-7b",
            {"use_sliding_window": True, "sliding_window": 1024, "max_window_layers": 20},
            {gqa(4), gqa(4, reach="window", tokens=1024)},
        ),
        # an indexer in a file that calls itself by the older name
        ("deepseek-v3", {"index_topk": 2048, "index_head_dim": 128}, {SPARSE, KEYS}),
    ],
)
def test_what_a_key_changes(name: str, changes: dict[str, Any], caches: set[Cache]) -> None:
    """Keys that switch a kind of attention on or off."""
    layers = parse_model(config(name) | changes).layers

    assert caches == {cache for layer in layers for cache in layer.caches}


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
            | {"block_configs": [{"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 2}}] * 4}
            | {
                "block_configs": [{"attention": {"n_heads_in_group": n}} for n in (8, 4)]
                + [{"attention": {"no_op": True}}] * 2
            },
            [gqa(8, 64), gqa(4, 64)],
        ),
    ],
)
def test_kinds_that_the_table_has_no_row_for(content: dict[str, Any], expected: list[Cache]) -> None:
    """Class defaults, nulls, lists that are too long, and settings of their own."""
    assert expected == list(caches(parse_model(BASE | content)))


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
                "block_configs": [{"attention": {"n_heads_in_group": 4, "window_length": 9}}] * 4,
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
