"""What each layer of each public model caches, in which order, and which layers predict or have experts."""

import json
from collections import Counter
from typing import Any

import pytest

from agent.memory.layers import Cache, Compressor, Heads, IndexKeys, Latent, Layer, Record, State
from agent.memory.model_config import parse_model
from tests.agent.memory.models import DIRECTORY, config, gqa

LAYER_TYPES: dict[str, str] = json.loads((DIRECTORY / "layer_types.json").read_text(encoding="utf-8"))
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


@pytest.mark.parametrize(("name", "letters"), LAYER_TYPES.items(), ids=LAYER_TYPES)
def test_order_of_layers(name: str, letters: str) -> None:
    """The types of the layers in order are those that transformers' own class makes of the same config."""
    layers = parse_model(config(name)).layers
    shared = [layer.kind == "shared" for layer in layers]

    assert [letter for letter, reads in zip(letters, shared, strict=True) if not reads] == [
        _letter(layer) for layer in layers if layer.kind != "shared"
    ]


def _letter(layer: Layer) -> str:
    match layer.kind, layer.caches:
        case ("csa", _):
            return "4"
        case ("hca", _):
            return "h"
        case (_, ()):
            return "-"
        case (_, (State(), *_)):
            return "s"
        case (_, (Record(window=int()),)):
            return "w"
        case (_, (Latent(sparse=True), *_)):
            return "i"
        case (_, (Heads(), IndexKeys())):
            return "b"
        case (_, (Heads(reach=reach), *_)):
            return reach[0]
    return "f"


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
        ("qwen3-next-80b-a3b", []),
        ("minimax-m3", [("gqa", True)] * 7),
        ("kimi-k3", []),
    ],
)
def test_layers_of_multi_token_prediction(name: str, expected: list[tuple[str, bool]]) -> None:
    """They stand apart: which there are, and which have experts."""
    shape = parse_model(config(name))

    assert expected == [(layer.kind, layer.experts) for layer in shape.mtp]
    assert not set(expected) or len(shape.mtp) % shape.mtp_layers == 0


def test_layers_of_prediction_listed_behind_the_others() -> None:
    """Step's files list them in ``layer_types``; without, each sees everything."""
    content = config("step-3.7-flash")
    behind = {"layer_types": content["layer_types"] + ["sliding_attention"] * 3}

    reach = [[cache for layer in parse_model(content | more).mtp for cache in layer.caches] for more in ({}, behind)]

    assert reach == [[gqa(8)] * 3, [gqa(8, reach="window", tokens=512)] * 3]


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
