"""Weights: counts of the config's arithmetic, bytes by format, shares of ranks, and how sure they are."""

from typing import Any

import pytest

from agent.memory.arguments import from_flags
from agent.memory.budget import Budget, Device, compute
from collectors.readings import ModelFiles
from tests.agent.memory.models import KNOWN, budget, config, row_config

COUNTED = [row for row in KNOWN if "parameters" in row]
MEASURED = [row for row in KNOWN if "checkpoint_bytes" in row and row["name"] != "DeepSeek-V3"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-2-7b", 6_738_415_616),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("mistral-7b-v0.1", 7_241_732_096),
        ("gemma-2-9b", 9_241_705_984),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen3-8b", 8_190_735_360),
        ("phi-3-mini", 3_821_079_552),
        ("deepseek-v2-lite", 15_706_484_224),
        ("deepseek-v3", 671_026_419_200),  # multi-token prediction left out
        ("falcon-40b", 41_303_293_952),  # embeddings tied: the class default
        ("falcon-7b", 6_921_720_704),  # likewise; files that repeat the head hold 295,469,056 more
    ],
)
def test_published_counts(name: str, expected: int | None) -> None:
    """Exact, and not counted where the layers are not known."""
    assert budget(config(name)).model.parameters == expected


@pytest.mark.parametrize("row", COUNTED, ids=lambda row: row["name"])
def test_every_counted_model(row: dict[str, Any]) -> None:
    """All counts that follow from a config."""
    assert budget(row_config(row)).model.parameters == row["parameters"]


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row["name"])
def test_arithmetic_is_the_published_checkpoint(row: dict[str, Any]) -> None:
    """Two bytes a weight are the index's total, so a rank's share of it is computed."""
    alone = budget(row_config(row)).ranks[0]
    split = budget(row_config(row), tensor_bytes=row["checkpoint_bytes"], tp=4)

    assert (alone.weights_bytes, alone.weights_evidence) == (row["checkpoint_bytes"], "predicted")
    assert split.ranks[0].weights_evidence == "computed"


def test_deepseek_v3_in_fp8() -> None:
    """The index's 688,586,727,753 bytes are the arithmetic plus one more layer with experts, its embedding and head.

    One more layer as any other; embedding and head repeated: 2 x 129,280 x 7,168 x 2 B; projection of two hidden
    states: 2 x 7,168 x 7,168 x 2 B. What is left of the difference is under 0.01 %.
    """
    content = config("deepseek-v3")
    without, with_one_more = budget(content), budget(content | {"num_hidden_layers": 62})

    main, more = (result.ranks[0].weights_bytes or 0 for result in (without, with_one_more))
    mtp = (more - main) + 2 * 129_280 * 7_168 * 2 + 2 * 7_168 * 7_168 * 2
    assert main + mtp == pytest.approx(688_586_727_753, rel=1e-4)


@pytest.mark.parametrize(
    ("quantization", "bytes_of_a_layer"),
    [
        # 64 x 64 q, 2 of 32 x 64 k and v, 64 x 64 o, 3 of 128 x 64: 36,864 weights; norms 2 x 64 in 16 bit: 256 B
        (None, 2 * 36_864 + 256),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 36_864 + 7 * 4 + 256),
        ({"quant_method": "fp8"}, 36_864 + (64 + 2 * 32 + 64 + 2 * 128 + 64) * 4 + 256),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 36_864 + 512 * 4 + 256),
        # int4 and one scale of 16 bit and one zero of 4 bit for each 64 weights
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 36_864 // 2 + 36_864 // 64 * 20 // 8 + 256),
        # and an index of 32 bit for each input: 6 matrices of 64 inputs, one of 128
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 64},
            36_864 // 2 + 36_864 // 64 * 20 // 8 + (6 * 64 + 128) * 4 + 256,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64}}
                },
            },
            36_864 // 2 + 36_864 // 64 * 2 + 256,
        ),
    ],
    ids=["bf16", "fp8-blocks", "fp8", "int8", "awq", "gptq", "compressed-int4"],
)
def test_weight_formats(quantization: dict[str, Any] | None, bytes_of_a_layer: int) -> None:
    """A layer by hand; embedding, head (512 x 64 each) and final norm stay in 16 bit."""
    content = {**TINY, "quantization_config": quantization}

    assert budget(content).ranks[0].weights_bytes == 3 * bytes_of_a_layer + 2 * 2 * 512 * 64 + 2 * 64


TINY: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "torch_dtype": "bfloat16",
}
LAYER, TABLE, NORM = 73_984, 65_536, 128  # bytes of a layer, of the embedding or head, of the final norm


def test_an_unknown_format_has_no_bytes_from_the_config() -> None:
    """Only the checkpoint itself tells, and only for a rank that holds all of it."""
    content = TINY | {"quantization_config": {"quant_method": "mystery"}}

    unknown, alone, split = (
        budget(content),
        budget(content, tensor_bytes=10**6),
        budget(content, tensor_bytes=10**6, tp=2),
    )

    assert (unknown.ranks[0].weights_bytes, split.ranks[0].weights_bytes) == (None, None)
    assert (alone.ranks[0].weights_bytes, alone.ranks[0].weights_evidence) == (10**6, "computed")
    assert "weights: the bytes of weights quantised by 'mystery'" in unknown.unknown[0]


def test_an_unknown_architecture_still_has_its_tensor_bytes() -> None:
    """A single rank of an unknown kind holds its checkpoint, whatever its layers are."""
    rank = budget(config("gpt-oss-20b") | {"model_type": "new"}, tensor_bytes=13_761_264_768).ranks[0]

    assert (rank.weights_bytes, rank.weights_evidence, rank.runtime) == (13_761_264_768, "computed", None)


@pytest.mark.parametrize(
    ("tp", "gib"),
    [(8, 16.43), (16, 8.37)],  # 70.55e9 x 2 / 16 would be 8.21 GiB: K and V are held twice
)
def test_ranks_of_llama_70b(tp: int, gib: float) -> None:
    """K and V projections are replicated once ranks outnumber KV heads."""
    weights = budget(config("llama-3.1-70b"), tp=tp).ranks[0].weights_bytes or 0

    assert weights / (1 << 30) == pytest.approx(gib, abs=0.005)


def test_what_every_rank_of_deepseek_v3_repeats() -> None:
    """Q and KV compressions: 61 x 7,168 x (1,536 + 576) elements, 0.86 GiB in fp8, beyond an eighth of the rest."""
    whole, rank = (budget(config("deepseek-v3"), tp=tp).ranks[0].weights_bytes or 0 for tp in (1, 8))

    repeated = 61 * 7_168 * (1_536 + 576)
    routers = 58 * (256 * 7_168 + 256) * 2
    assert 8 * rank - whole == pytest.approx(7 * (repeated + routers), rel=0.01)


def test_experts_are_split_over_replicas_too() -> None:
    """Two replicas of four ranks hold an eighth of each expert, and a quarter of the rest."""
    replicas = budget(config("qwen3-30b-a3b"), tp=4, dp=2).ranks[0].weights_bytes or 0
    one = budget(config("qwen3-30b-a3b"), tp=4).ranks[0].weights_bytes or 0

    assert one - replicas == 48 * 128 * 3 * 2_048 * 768 * 2 // 8


@pytest.mark.parametrize(
    ("tied", "stages"),
    [
        (False, [LAYER + TABLE, LAYER * 2 // 2, LAYER + TABLE + NORM]),
        (True, [LAYER + TABLE, LAYER, LAYER + TABLE + NORM]),
    ],
)
def test_pipeline_stages(tied: bool, stages: list[int]) -> None:
    """Embedding first, head and norm last; a tied table is held on both ends."""
    ranks = budget(TINY | {"tie_word_embeddings": tied}, pp=3).ranks

    assert [rank.weights_bytes for rank in ranks] == stages


def test_a_tied_table_is_held_once_on_one_stage() -> None:
    """Without pipeline stages there is one table."""
    assert budget(TINY | {"tie_word_embeddings": True}).ranks[0].weights_bytes == 3 * LAYER + TABLE + NORM


def _files(content: dict[str, Any], **facts: Any) -> ModelFiles:
    return ModelFiles(path="/models/tiny", config=content, tensor_source="headers", **facts)


def _budget(files: ModelFiles, **flags: object) -> Budget:
    return compute(files, from_flags(flags, engine="vllm"), Device())


HEADERS: dict[str, Any] = {
    "tensor_bytes": 4 * LAYER + 2 * TABLE + NORM + 1000,
    "layer_bytes": (LAYER, LAYER, LAYER, LAYER),  # the fourth: multi-token prediction
    "other_bytes": {"embed_tokens": TABLE, "lm_head": TABLE, "norm": NORM, "mtp": 1000},
}


def test_layers_that_are_not_loaded_do_not_count() -> None:
    """With tensor headers, a fourth layer of a model of three and a module ``mtp`` are left out."""
    rank = _budget(_files(TINY, **HEADERS)).ranks[0]

    assert (rank.weights_bytes, rank.weights_evidence) == (3 * LAYER + 2 * TABLE + NORM, "computed")


def test_stages_from_headers_are_exact() -> None:
    """Bytes of the layers themselves, although they differ from the arithmetic."""
    odd = HEADERS | {"layer_bytes": (LAYER + 100_000, LAYER, LAYER)}

    ranks = _budget(_files(TINY, **odd), pp=3).ranks

    assert [rank.weights_bytes for rank in ranks] == [LAYER + 100_000 + TABLE, LAYER, LAYER + TABLE + NORM]
    assert ranks[0].weights_evidence == "computed"


def test_a_vision_tower_is_split_and_not_compared() -> None:
    """What lies beside the decoder goes to the first stage; the decoder alone is compared with the arithmetic."""
    tower = HEADERS | {"other_bytes": {**HEADERS["other_bytes"], "vision_tower": 10_000}}

    whole, split = _budget(_files(TINY, **tower)), _budget(_files(TINY, **tower), tp=2)

    assert whole.ranks[0].weights_bytes == 3 * LAYER + 2 * TABLE + NORM + 10_000
    assert split.ranks[0].weights_evidence == "computed"


def test_a_repeated_head_is_not_loaded() -> None:
    """Tied embeddings: the head in the files is left out."""
    rank = _budget(_files(TINY | {"tie_word_embeddings": True}, **HEADERS)).ranks[0]

    assert rank.weights_bytes == 3 * LAYER + TABLE + NORM


def test_multi_token_prediction_in_an_index_makes_weights_a_prediction() -> None:
    """The index's total can't tell the layer apart, so the config's arithmetic counts, and that is said."""
    result = budget(config("deepseek-v3"), tensor_bytes=688_586_727_753, tp=8)

    assert result.ranks[0].weights_evidence == "predicted"
    assert "include 1 multi-token-prediction layer(s) that are not loaded" in result.warnings[1]


def test_fp32_checkpoints_are_held_in_16_bit() -> None:
    """By the config's dtype, or exactly by the headers; ``--dtype float32`` keeps them."""
    content = TINY | {"torch_dtype": "float32"}
    whole = 3 * LAYER + 2 * TABLE + NORM
    headers = _files(
        content,
        tensor_bytes=2 * whole,
        layer_bytes=(2 * LAYER,) * 3,
        other_bytes={"embed_tokens": 2 * TABLE, "lm_head": 2 * TABLE, "norm": 2 * NORM},
        bytes_by_dtype={"F32": 2 * whole},
    )

    assert budget(content, tensor_bytes=2 * whole).ranks[0].weights_bytes == whole
    assert _budget(headers).ranks[0].weights_bytes == whole
    assert _budget(headers, dtype="float32").ranks[0].weights_bytes == 2 * whole


def test_disagreement_is_said_and_predicted() -> None:
    """A checkpoint 10 % larger than the arithmetic: its share is scaled, and only predicted."""
    whole = 3 * LAYER + 2 * TABLE + NORM
    result = budget(TINY, tensor_bytes=whole * 11 // 10, tp=2)

    assert result.ranks[0].weights_evidence == "predicted"
    assert any(f"where the config's arithmetic gives {whole:,}" in text for text in result.warnings)


def test_quantising_while_loading() -> None:
    """An unquantised checkpoint held in fp8 is predicted from the config: about a byte a weight."""
    result = budget(TINY, tensor_bytes=3 * LAYER + 2 * TABLE + NORM, quantization="fp8")

    assert result.ranks[0].weights_evidence == "predicted"
    assert result.ranks[0].weights_bytes == 3 * (36_864 + 512 * 4 + 256) + 2 * TABLE + NORM
    assert "weights are quantised to 'fp8' while loading, so they are predicted" in result.warnings


def test_given_bytes_count_like_an_index() -> None:
    """``weights_bytes`` stands for the checkpoint when only a config is there."""
    rank = budget(TINY, weights_bytes=3 * LAYER + 2 * TABLE + NORM).ranks[0]

    assert (rank.weights_bytes, rank.weights_evidence) == (3 * LAYER + 2 * TABLE + NORM, "computed")


def test_modules_left_in_16_bit_are_said() -> None:
    """Those beyond head, embeddings, norms and routers make the arithmetic too small."""
    skipped = ["lm_head", "re:.*mlp.gate$", "model.layers.0.self_attn.q_proj"]
    content = TINY | {"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": skipped}}

    assert (
        "arithmetic takes 1 module(s) left unquantised as quantised, such as 'model.layers.0.self_attn.q_proj'"
        in budget(content).warnings
    )
