"""Configs: what is honoured, what is unknown, and one sentence for what can't be right."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.memory.layers import Cache, Heads, Latent, Layer
from agent.memory.model_config import ModelConfigError, ModelShape, parse_model
from tests.agent.memory.models import ROWS, config, row_config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 512,
}


def _caches(shape: ModelShape) -> set[tuple[str, Cache]]:
    return {(layer.kind, cache) for layer in shape.layers for cache in layer.caches}


@pytest.mark.parametrize(
    ("changes", "kind", "cache"),
    [
        ({}, "mha", Heads(heads=4, k_dim=16, v_dim=16)),
        ({"num_key_value_heads": None}, "mha", Heads(heads=4, k_dim=16, v_dim=16)),
        ({"num_key_value_heads": 2}, "gqa", Heads(heads=2, k_dim=16, v_dim=16)),
        ({"num_key_value_heads": 1}, "mqa", Heads(heads=1, k_dim=16, v_dim=16)),
        ({"head_dim": 128}, "mha", Heads(heads=4, k_dim=128, v_dim=128)),
        ({"head_dim": None}, "mha", Heads(heads=4, k_dim=16, v_dim=16)),
        ({"num_attention_heads": 5, "head_dim": 8}, "mha", Heads(heads=5, k_dim=8, v_dim=8)),
    ],
)
def test_heads(changes: dict[str, Any], kind: str, cache: Cache) -> None:
    """A given head width wins over hidden / heads; a missing or null number of KV heads means all heads."""
    assert _caches(parse_model(LLAMA | changes)) == {(kind, cache)}


def test_latent_attention() -> None:
    """One vector of latent and rope; a null ``q_lora_rank`` and a decoy number of KV heads change nothing."""
    shape = parse_model(config("deepseek-v2-lite"))

    assert _caches(shape) == {("mla", Latent(rank=512, rope=64))}
    assert shape.decoder is not None
    assert shape.decoder.mla is not None
    assert shape.decoder.mla.q_rank is None


def test_layers_in_order() -> None:
    """DeepSeek-V3 has three dense layers, then 58 with experts."""
    layers = parse_model(config("deepseek-v3")).layers

    latent = Latent(rank=512, rope=64)
    assert layers[2:4] == tuple(Layer(kind="mla", caches=(latent,), experts=experts) for experts in (False, True))
    assert [layer.experts for layer in layers].count(True) == 58


@pytest.mark.parametrize("key", ["text_config", "language_config", "llm_config"])
def test_the_text_part_lies_over_the_top_level(key: str) -> None:
    """Its values win, nulls in it don't, and the vision part is named but not read."""
    content = {
        "model_type": "wrapper",
        "hidden_size": 1,
        "dtype": "float16",
        key: LLAMA | {"dtype": None},
        "vision_config": {"hidden_size": 7, "num_hidden_layers": 24},
    }

    shape = parse_model(content)

    assert (shape.model_type, len(shape.layers), shape.dtype) == ("llama", 2, "float16")
    assert shape.other_modules == ("vision_config",)


def test_falcon_has_names_of_its_own_and_a_decoy() -> None:
    """``num_kv_heads`` 71 of Falcon-7B is not what it caches; 8 of Falcon-40B is."""
    assert _caches(parse_model(config("falcon-7b"))) == {("mqa", Heads(heads=1, k_dim=64, v_dim=64))}
    assert _caches(parse_model(config("falcon-40b"))) == {("gqa", Heads(heads=8, k_dim=64, v_dim=64))}


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": 4096, "use_sliding_window": False, "max_position_embeddings": 8192},
        {"sliding_window": 8192, "max_position_embeddings": 8192},
        {"sliding_window": None, "max_position_embeddings": 8192},
        {"layer_types": ["full_attention", "full_attention"]},
        {"is_encoder_decoder": False},
        {"index_topk": None},
    ],
)
def test_windows_and_keys_that_change_nothing(changes: dict[str, Any]) -> None:
    """A window that is off or as long as the context, and empty foreign keys, leave a known kind known."""
    assert parse_model(LLAMA | changes).unknown == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"model_type": "new_llama"},
            "model_type 'new_llama' is not known here; known: layers 2, hidden size 64, vocabulary 512",
        ),
        (
            {"model_type": None},
            "a config without model_type is not known here; known: layers 2, hidden size 64, vocabulary 512",
        ),
        (
            {"sliding_window": 4096, "max_position_embeddings": 8192},
            "layers that keep the last 4096 tokens only (sliding_window)",
        ),
        ({"sliding_window": 4096}, "layers that keep the last 4096 tokens only (sliding_window)"),
        (
            {"layer_types": ["full_attention", "linear_attention"]},
            "layers of type 'linear_attention' (layer_types)",
        ),
        ({"index_topk": 2048, "index_head_dim": 128}, "a sparse-attention indexer with a cache of its own"),
        ({"compress_ratios": [0, 4]}, "compressed attention (compress_ratios)"),
        ({"cross_attention_layers": [3]}, "cross-attention (cross_attention_layers)"),
        ({"mamba_d_state": 16}, "layers that keep a recurrent state (mamba_d_state)"),
        ({"kv_lora_rank": 512}, "latent attention in a type without it (kv_lora_rank)"),
    ],
)
def test_unknown_attention_is_named(changes: dict[str, Any], said: str) -> None:
    """Never a guess: no cache, no decoder, and what stands in the way."""
    shape = parse_model(LLAMA | changes)

    assert (shape.decoder, {layer.caches for layer in shape.layers}) == (None, {()})
    assert said in shape.unknown[0]
    assert shape.layers[0].kind.startswith("unknown: ")


def test_an_unknown_type_may_lack_everything() -> None:
    """Nothing but a type: no layers, and that is said."""
    shape = parse_model({"model_type": "thing"})

    assert (shape.layers, shape.unknown) == ((), ("model_type 'thing' is not known here; nothing else is known",))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_layers": 10**12}, "'num_hidden_layers': expected an integer from 1 to 10000, got 1000000000000"),
        ({"num_hidden_layers": 0}, "'num_hidden_layers': expected an integer from 1 to 10000, got 0"),
        ({"num_hidden_layers": None}, "'num_hidden_layers' is missing; expected an integer from 1 to 10000"),
        ({"hidden_size": -64}, "'hidden_size': expected an integer from 1 to 2147483647, got -64"),
        ({"hidden_size": "64"}, "'hidden_size': expected an integer from 1 to 2147483647, got '64'"),
        ({"vocab_size": 512.5}, "'vocab_size': expected an integer from 1 to 2147483647, got 512.5"),
        ({"vocab_size": True}, "'vocab_size': expected an integer from 1 to 2147483647, got True"),
        (
            {"vocab_size": 10**5000},
            "'vocab_size': expected an integer from 1 to 2147483647, got an integer of 16610 bits",
        ),
        ({"intermediate_size": {}}, "'intermediate_size': expected an integer from 1 to 2147483647, got an object"),
        ({"num_key_value_heads": 3}, "'num_key_value_heads': expected a divisor of num_attention_heads 4, got 3"),
        (
            {"num_attention_heads": 5},
            "'num_attention_heads': expected a divisor of hidden_size 64 (there is no head_dim), got 5",
        ),
        ({"head_dim": 0}, "'head_dim': expected an integer from 1 to 2147483647, got 0"),
        ({"attention_bias": "yes"}, "'attention_bias': expected true or false, got 'yes'"),
        ({"model_type": 3}, "'model_type': expected text, got 3"),
    ],
)
def test_absurd_values(changes: dict[str, Any], said: str) -> None:
    """Key, expected, got."""
    with pytest.raises(ModelConfigError) as caught:
        parse_model(LLAMA | changes)

    assert str(caught.value) == f"config key {said}"


@pytest.mark.parametrize("factor", [0, False, -1, 1e-9, 2**31 - 1, float("nan"), "x", None])
def test_a_width_found_by_search_that_can_not_be(factor: object) -> None:
    """The layers with an MLP of their own have one of a width above 0, or none at all, which they say."""
    block = {"attention": {"no_op": True}, "ffn": {"ffn_mult": factor}}
    content = LLAMA | {"model_type": "nemotron-nas", "num_hidden_layers": 1, "block_configs": [block]}

    with pytest.raises(ModelConfigError, match=r"^config key 'ffn_mult' of block 0: expected a factor .*, got "):
        parse_model(content)


def test_a_config_that_is_no_object() -> None:
    """A list is not a config."""
    with pytest.raises(ModelConfigError, match=r"^config: expected a JSON object, got a list of 2 entries$"):
        parse_model([1, 2])


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (None, 8192),
        ({"rope_type": "llama3", "factor": 8.0}, 8192),
        ({"type": "longrope"}, 8192),
        ({"type": "linear", "factor": 4}, 32_768),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}, 8192),
        ({"type": "yarn", "factor": None}, 8192),
        ({"type": "linear", "factor": float("inf")}, 8192),
        ({"type": "linear", "factor": float("nan")}, 8192),
        ("linear", 8192),
    ],
)
def test_context(scaling: object, expected: int) -> None:
    """The rope factor counts where it is not counted in already."""
    content = LLAMA | {"max_position_embeddings": 8192, "rope_scaling": scaling}

    assert parse_model(content).max_positions == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def flat(content: dict[str, Any]) -> dict[str, Any]:
    """A config without its nesting, so that a change of one key is read."""
    return {**content, **content.get("text_config", {})}


KEYS = sorted({key for row in ROWS for key in flat(row_config(row))} | {"text_config", "attention_other_setting"})
INSIDE = sorted(
    {
        (key, inner)
        for row in ROWS
        for key, value in flat(row_config(row)).items()
        if isinstance(value, dict)
        for inner in value
    }
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    row=st.sampled_from(ROWS),
    changes=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4),
    inside=st.dictionaries(st.sampled_from(INSIDE), JSON, max_size=2),
    dropped=st.sets(st.sampled_from(KEYS), max_size=3),
)
def test_any_json_ends_in_a_shape_or_a_sentence(
    row: dict[str, Any], changes: dict[str, Any], inside: dict[tuple[str, str], Any], dropped: set[str]
) -> None:
    """Known, unknown with a reason, or one sentence; nothing else leaves."""
    content = {key: value for key, value in (flat(row_config(row)) | changes).items() if key not in dropped}
    for (key, inner), value in inside.items():
        if isinstance(content.get(key), dict):
            content[key] = content[key] | {inner: value}

    try:
        shape = parse_model(content)
    except ModelConfigError:
        return

    assert (shape.decoder is None) == bool(shape.unknown)
    assert all(
        layer.known == (shape.decoder is not None) and (layer.known or not layer.caches) for layer in shape.layers
    )


@pytest.mark.parametrize(("value", "said"), [(float("inf"), "a number beyond all bounds"), (float("nan"), "no number")])
def test_what_python_reads_as_a_number_and_is_none(value: float, said: str) -> None:
    """A message says in words what NaN and 1e400 are, and what is known of a strange config leaves them out."""
    with pytest.raises(ValueError, match=f"got .*{said}$"):
        parse_model({**LLAMA, "num_hidden_layers": value})

    strange = parse_model({"num_hidden_layers": value, "hidden_size": 64})

    assert strange.unknown[0].endswith("known: hidden size 64")
