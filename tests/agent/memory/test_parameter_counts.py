"""Weights counted from configs against the parameters of the models' own classes, and what there is no class for."""

import json
from typing import Any

import pytest

from agent.memory.account import Account, account_for
from agent.memory.arguments import from_flags
from agent.memory.budget import Device, compute
from agent.memory.matrices import WHOLE, Matrix, Shard, rank_shard, share
from agent.memory.model_config import ModelConfigError, parse_model
from agent.memory.parameters import Blueprint
from collectors.readings import ModelFiles
from tests.agent.memory.models import DIRECTORY, budget, config

COUNTS: dict[str, Any] = json.loads((DIRECTORY / "parameter_counts.json").read_text(encoding="utf-8"))
SMALL: dict[str, Any] = {row["name"]: row for row in COUNTS["small"]}
NAMES = sorted(path.stem for path in (DIRECTORY / "configs").glob("*.json"))


def _blueprint(content: dict[str, Any]) -> Blueprint:
    found = parse_model(content).blueprint
    assert found is not None
    return found


def _account(content: dict[str, Any], shard: Shard = WHOLE) -> Account:
    shape = parse_model(content)
    assert shape.blueprint is not None
    return account_for(shape.blueprint, element_bytes=2, quantization=shape.quantization, shard=shard)


def _elements(matrices: tuple[Matrix, ...]) -> int:
    return sum(matrix.elements for matrix in matrices)


@pytest.mark.parametrize("name", COUNTS["public"])
def test_public_models_are_what_their_classes_hold(name: str) -> None:
    """To the last parameter, vision and audio left out."""
    assert _blueprint(config(name)).parameters == COUNTS["public"][name]["decoder"]


@pytest.mark.parametrize("name", SMALL)
def test_small_models_are_what_their_classes_hold(name: str) -> None:
    """Branches that no public config here takes: shared caches, doubled MLPs, dense hybrids, heads of other layers."""
    assert _blueprint(SMALL[name]["config"]).parameters == SMALL[name]["decoder"]


@pytest.mark.parametrize("name", [name for name in COUNTS["public"] if name != "gemma-3n-e4b"])
def test_towers_are_named_as_left_out(name: str) -> None:
    """A class with a vision tower has a config that says so, and a budget from that alone says that it lacks it."""
    warnings = budget(config(name)).warnings

    said = "arithmetic on the config leaves out what vision_config describes" in warnings
    assert said == ("towers" in COUNTS["public"][name])


def test_every_public_model_is_counted() -> None:
    """Those without a class in transformers too."""
    assert [name for name in NAMES if parse_model(config(name)).blueprint is None] == []
    assert sorted({*NAMES} - {*COUNTS["public"]}) == [
        "deepseek-v4.1-flash",
        "internlm2-7b",
        "kimi-k3",
        "llama-3.3-nemotron-super-49b",
    ]


def test_deepseek_v4_1_without_its_ngram_tables() -> None:
    """Published as 552 billion, which leaves out 768,022,850 rows of 256 that stay on the host."""
    assert _blueprint(config("deepseek-v4.1-flash")).parameters == pytest.approx(552e9, rel=0.001)


def test_what_deepseek_v4_1_has_by_layer() -> None:
    """Beyond an ordinary layer: an n-gram reader, a source of history with its indexer, an indexer alone."""
    layers = [_elements(layer) for layer in _blueprint(config("deepseek-v4.1-flash")).layers]

    indexer = 32 * 128 * 1_280 + 32 * 5_120
    keys = 128 * 512 + 128
    assert layers[1] - layers[0] == 5_120 * 5 * (3 * 8 * 256) + 2 * 4 * 5_120
    assert layers[2] - layers[0] == 2 * 512 * 5_120 + 512 + indexer + keys
    assert layers[20] - layers[0] == 512 * 5_120 + 512 + indexer + keys  # a record of each token: no scores
    assert layers[24] - layers[0] == indexer
    assert layers[3] == layers[0]


def test_kimi_k3_by_hand() -> None:
    """One layer of each kind: 96 heads of 128, experts on 3,584 of 7,168 dimensions, residuals over blocks of 12.

    KDA: Q, K, V, G and O; a decay of rank 128 with a bias and a rate; beta; 3 convolutions of 4; a norm of 128.
    MLA: Q of rank 1,536, K and V of rank 512 and 64 of rope; an output gate.
    """
    hidden, inner = 7_168, 96 * 128
    kda = 5 * hidden * inner + 128 * (hidden + inner) + inner + 96 + 96 * hidden + 3 * inner * 4 + 128
    latent = 1_536 * hidden + 1_536 + 96 * 192 * 1_536 + 576 * hidden + 512 + 96 * 256 * 512
    mla = latent + 2 * hidden * inner
    experts = 896 * (3 * 3_584 * 3_072 + hidden + 1) + 3 * hidden * 6_144 + 2 * hidden * 3_584 + 3_584
    around = 6 * hidden  # two norms, and a norm and a projection of the residual twice

    layers = [_elements(layer) for layer in _blueprint(config("kimi-k3")).layers]

    assert layers[0] == kda + 3 * hidden * 33_792 + around
    assert layers[1] == kda + experts + around
    assert layers[3] == mla + experts + around
    assert _blueprint(config("kimi-k3")).parameters == sum(layers) + 2 * 163_840 * hidden + 3 * hidden


def test_experts_of_kimi_k3_alone_are_quantised() -> None:
    """MXFP4 for 92 layers x 896 experts, 4.25 bits a weight; all else in 16 bit, rates of decay in 32."""
    experts = 92 * 896 * 3 * 3_584 * 3_072

    others = _blueprint(config("kimi-k3")).parameters - experts
    wide = 69 * (96 * 128 * (3 * 4 + 1) + 96)
    assert _account(config("kimi-k3")).whole == experts // 2 + experts // 32 + 2 * others + 2 * wide


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tp", [2, 8])
def test_a_rank_of_any_model_holds_at_least_its_share(name: str, tp: int) -> None:
    """And never more than the whole."""
    alone, split = (_account(config(name), rank_shard(tp=ranks, dp=1)) for ranks in (1, tp))

    for one, part in zip((*alone.layers, alone.first), (*split.layers, split.first), strict=True):
        assert one.rank / tp * 0.999 <= part.rank <= one.rank


def test_an_embedding_for_each_layer_is_on_the_first_stage() -> None:
    """Gemma 3n: 262,144 rows for 35 layers of 256, 4.7 GB in 16 bit, which ranks share."""
    content = config("gemma-3n-e4b")
    table = next(matrix for matrix in _blueprint(content).first if matrix.name == "embed_tokens_per_layer")

    first, second = (rank.weights_bytes or 0 for rank in budget(content, pp=2).ranks)

    assert table.elements == 262_144 * 35 * 256
    assert share(table, rank_shard(tp=4, dp=1)).elements == table.elements // 4
    assert first - second > 2 * table.elements


def test_what_is_beside_the_embedding_agrees_with_a_checkpoint() -> None:
    """Tensor headers tell it apart from vision; so two ranks' shares are computed."""
    content = SMALL["gemma 3n that shares"]["config"]
    whole = _account(content)
    other = {"embed_tokens": whole.table.whole, "norm": whole.last.whole, "vision_tower": 10_000}
    files = ModelFiles(
        path="/models/small",
        config=content,
        tensor_source="headers",
        tensor_bytes=whole.whole + 10_000,
        layer_bytes=tuple(layer.whole for layer in whole.layers),
        other_bytes={**other, "embed_tokens_per_layer": whole.first.whole},
    )

    alone, split = (compute(files, from_flags({"tp": tp}, engine="vllm"), Device()) for tp in (1, 2))

    assert alone.ranks[0].weights_bytes == whole.whole + 10_000
    assert split.ranks[0].weights_evidence == "computed"


def test_prediction_layers_of_an_unknown_kind_are_named_as_left_out() -> None:
    """Step's are dense and have heads of their own."""
    without, speculating = (budget(config("step-3.7-flash"), speculative=how) for how in ("none", "mtp:1"))

    said = "arithmetic on the config leaves out 3 multi-token-prediction layer(s)"
    assert (said in without.warnings, said in speculating.warnings) == (False, True)
    assert without.ranks[0].weights_bytes == speculating.ranks[0].weights_bytes


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("step 3.5 with other heads", {"moe_layers_enum": "2,three"}, "'moe_layers_enum': expected layer numbers"),
        ("step 3.5 with other heads", {"moe_layers_enum": 3}, "'moe_layers_enum': expected layer numbers, got 3"),
        ("gemma 4 that shares", {"layer_types": ["full_attention"] * 4 + ["odd"] * 2}, "'layer_types': expected"),
        ("gemma 3n that shares", {"intermediate_size": [96, 96]}, "'intermediate_sizes': expected 6 entries"),
    ],
)
def test_configs_that_cannot_be_right(name: str, wrong: dict[str, Any], message: str) -> None:
    """End in one sentence that names the key."""
    content = SMALL[name]["config"]
    flat = {**content, **content.get("text_config", {}), "model_type": content["model_type"], "text_config": None}

    with pytest.raises(ModelConfigError, match=message):
        parse_model(flat | wrong)
