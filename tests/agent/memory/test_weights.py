"""Weights: counts of the config's arithmetic, bytes by format, shares of ranks, and how sure they are."""

from typing import Any

import pytest

from agent.memory.account import Account, account_for
from agent.memory.arguments import from_flags
from agent.memory.budget import Budget, Device, compute
from agent.memory.checkpoint import Loads, loaded
from agent.memory.matrices import WHOLE, Shard, rank_shard, share
from agent.memory.model_config import parse_model
from agent.memory.weights import Weights, weigh
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
        ("deepseek-v2", 235_741_434_880),
        ("deepseek-v3", 671_026_419_200),  # multi-token prediction left out
        ("deepseek-v3.2", 671_877_944_064),  # an indexer in each layer
        ("glm-5", 743_911_218_432),
        ("glm-5.2", 743_377_019_904),  # in 21 of 78
        ("gemma-2-27b", 27_227_128_320),
        ("gemma-3-1b", 999_885_952),
        ("gemma-3-27b", 27_009_346_304),  # without its vision tower
        ("gpt-oss-20b", 20_914_757_184),
        ("gpt-oss-120b", 116_829_156_672),
        ("llama-4-scout-17b-16e", 107_769_861_120),
        ("llama-4-maverick-17b-128e", 400_711_848_960),  # experts in every second layer
        ("llama-3.3-nemotron-super-49b", 49_867_145_216),
        ("qwen3-next-80b-a3b", 79_674_391_296),
        ("qwen3.5-27b", 26_895_998_464),
        ("qwen3.5-397b-a17b", 396_346_350_336),
        ("falcon-40b", 41_303_293_952),  # embeddings tied: the class default
        ("falcon-7b", 6_921_720_704),  # likewise; files that repeat the head hold 295,469,056 more
        ("gemma-3n-e4b", 6_835_235_568),  # K and V of layers that share them, its towers left out
    ],
)
def test_published_counts(name: str, expected: int) -> None:
    """Exact."""
    assert _parameters(config(name)) == expected


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("jamba-v0.1", 51.6),
        ("nemotron-h-56b", 56.3),
        ("nemotron-3-nano-30b-a3b", 31.6),
        ("nemotron-3-super-120b-a12b", 120.7),
        ("nemotron-3-ultra-550b-a55b", 549.3),
        ("mimo-v2-flash", 308.8),
        ("mistral-small-4-119b", 119.0),
        ("minicpm3-4b", 4.07),
    ],
)
def test_counts_published_in_billions(name: str, billions: float) -> None:
    """As close as the published figure is rounded."""
    assert (_parameters(config(name)) or 0) / 1e9 == pytest.approx(billions, rel=0.005)


def test_deepseek_v4_flash_type_by_type() -> None:
    """With its prediction layer, exactly the stored elements published for each type; sizes of each follow.

    The prediction layer is one more layer with a window alone, two projections of the hidden states in FP8
    (2 x 4,096 x 4,096) and three more norms.
    """
    shape = parse_model(config("deepseek-v4-flash"))
    assert shape.blueprint is not None
    assert shape.quantization is not None

    counts = dict.fromkeys(("mxfp4", "fp8 in blocks of 128 x 128", "plain", "fp32"), 0)
    parts = (*shape.blueprint.layers, shape.blueprint.last, shape.blueprint.mtp)
    for matrix in (matrix for part in parts for matrix in part):
        layout = shape.quantization.of(f"layers.0.{matrix.name}") if matrix.stored == "weights" else None
        counts[layout.name if layout else matrix.stored] += matrix.elements

    assert counts["mxfp4"] == 2 * 141_733_920_768
    assert counts["fp8 in blocks of 128 x 128"] == 6_023_020_544
    assert counts["plain"] + 2 * shape.blueprint.embedding.elements == 1_415_259_264
    scales = counts["mxfp4"] // 32 + counts["fp8 in blocks of 128 x 128"] // 128**2
    assert scales == 8_858_737_664
    listed = 141_733_920_768 + 6_023_020_544 + scales + 2 * 1_415_259_264
    assert listed / (1 << 30) == pytest.approx(148.5, abs=0.005)
    assert 4 * counts["fp32"] / (1 << 30) == pytest.approx(0.14, abs=0.005)  # which the published list leaves out


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gpt-oss-20b", 13_761_264_768), ("gpt-oss-120b", 65_248_815_744)],
)
def test_gpt_oss_is_its_checkpoint_to_the_byte(name: str, expected: int) -> None:
    """Experts in MXFP4, their biases and all else in 16 bit: 13.761 and 65.249 GB from the config alone."""
    account = _account(config(name))

    assert account.whole == expected


@pytest.mark.parametrize("row", COUNTED, ids=lambda row: row["name"])
def test_every_counted_model(row: dict[str, Any]) -> None:
    """All counts that follow from a config."""
    assert _parameters(row_config(row)) == row["parameters"]


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row["name"])
def test_arithmetic_is_the_published_checkpoint(row: dict[str, Any]) -> None:
    """Two bytes a weight are the index's total, so a rank's share of it is computed."""
    alone = budget(row_config(row)).ranks[0]
    split = budget(row_config(row), tensor_bytes=row["checkpoint_bytes"], tp=4)

    assert (alone.weights_bytes, alone.weights_evidence) == (row["checkpoint_bytes"], "predicted")
    assert split.ranks[0].weights_evidence == "computed"


def test_deepseek_v3_in_fp8() -> None:
    """The index's 688,586,727,753 bytes are the arithmetic plus one more layer with experts, its embedding and head.

    Embedding and head repeated, which an engine shares: 2 x 129,280 x 7,168 x 2 B. What is left of the difference is
    under 0.002 %.
    """
    without, speculating = (budget(config("deepseek-v3"), speculative=how) for how in ("none", "mtp:1"))

    main, more = (result.ranks[0].weights_bytes or 0 for result in (without, speculating))
    repeated = 2 * 129_280 * 7_168 * 2
    assert more > main * 1.01
    assert more + repeated == pytest.approx(688_586_727_753, rel=2e-5)


@pytest.mark.parametrize(
    ("quantization", "bytes_of_a_layer"),
    [
        # 64 x 64 q, 2 of 32 x 64 k and v, 64 x 64 o, 3 of 128 x 64: 36,864 weights; norms 2 x 64 in 16 bit: 256 B
        (None, 2 * 36_864 + 256),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 36_864 + 7 * 4 + 256),
        ({"quant_method": "fp8"}, 36_864 + 7 * 4 + 256),
        ({"quant_method": "fbgemm_fp8"}, 36_864 + (64 + 2 * 32 + 64 + 2 * 128 + 64) * 4 + 256),
        # 4 bits and a scale of 8 for each 32 or 16
        ({"quant_algo": "NVFP4"}, 36_864 // 2 + 36_864 // 16 + 7 * 4 + 256),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 36_864 // 2 + 36_864 // 64 * 4 + 256),
        # attention (64 x 64 twice, 32 x 64 twice) in 16 bit
        (
            {"quant_method": "fp8", "modules_to_not_convert": ["self_attn", "lm_head"]},
            2 * 12_288 + 24_576 + 3 * 4 + 256,
        ),
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
    ids=[
        "bf16",
        "fp8-blocks",
        "fp8",
        "fp8-rows",
        "nvfp4",
        "nf4",
        "plain-attention",
        "int8",
        "awq",
        "gptq",
        "compressed-int4",
    ],
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
    """A single rank holds its checkpoint, whatever its layers are."""
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
    assert result.ranks[0].weights_bytes == 3 * (36_864 + 7 * 4 + 256) + 2 * TABLE + NORM
    assert "weights are quantised to 'fp8' while loading, so they are predicted" in result.warnings


def test_given_bytes_count_like_an_index() -> None:
    """``weights_bytes`` stands for the checkpoint when only a config is there."""
    rank = budget(TINY, weights_bytes=3 * LAYER + 2 * TABLE + NORM).ranks[0]

    assert (rank.weights_bytes, rank.weights_evidence) == (3 * LAYER + 2 * TABLE + NORM, "computed")


def test_one_layer_left_in_16_bit() -> None:
    """Layers of one kind may differ in what of them is quantised."""
    quantization = {"quant_method": "fp8", "ignore": ["model.layers.1.self_attn", "re:.*mlp.[a-z]+"]}
    result = budget(TINY | {"quantization_config": quantization})

    quantised = 36_864 + 7 * 4 + 256
    assert result.ranks[0].weights_bytes == 3 * quantised + 12_288 - 4 * 4 + 2 * TABLE + NORM
    assert "arithmetic takes 1 module(s) left unquantised as quantised, such as 're:.*mlp.[a-z]+'" in result.warnings


def test_a_dtype_that_nobody_knows_is_said() -> None:
    """Weights are then taken for what the engine holds by default."""
    result = budget(TINY | {"torch_dtype": "bfloat17"})

    assert "config key 'dtype': 'bfloat17' is not known here, so weights are taken as bfloat16" in result.warnings


def test_what_is_not_loaded_is_named() -> None:
    """Prediction layers without speculation, vision where only language is served, tables that stay on the host."""
    modules = {"mtp": 1000, "vision_tower": 10_000, "engram": 100_000}
    files = _files(TINY, **(HEADERS | {"other_bytes": {**HEADERS["other_bytes"], **modules}}))
    shape = parse_model(TINY)

    def held(**loads: bool) -> tuple[int, tuple[str, ...]]:
        checkpoint, notes = loaded(shape, files, dtype="bfloat16", loads=Loads(**loads))
        assert checkpoint is not None
        return checkpoint.total - (3 * LAYER + 2 * TABLE + NORM), notes

    assert held() == (
        10_000,
        (
            "in the checkpoint but not loaded: multi-token prediction, 73.23 KiB",
            "in the checkpoint but not loaded: Engram tables, 97.66 KiB",
        ),
    )
    assert held(mtp=True, engram=True) == (LAYER + 1000 + 10_000 + 100_000, ())
    assert held(vision=False)[0] == 0


def test_prediction_layers_are_on_the_last_stage() -> None:
    """Where the engine speculates with them."""
    weights = _weigh(_files(TINY, **HEADERS), stages=(2, 1), loads=Loads(mtp=True))

    assert weights.stages == (2 * LAYER + TABLE, LAYER + TABLE + NORM + LAYER + 1000)


@pytest.mark.parametrize(
    ("shard", "experts"),
    [
        (Shard(experts=4), 32 * 3 * 64 * 2),  # a quarter of each expert
        (Shard(experts=4, whole_experts=True), 8 * 3 * 64 * 8),  # a quarter of the experts
        (Shard(experts=4, whole_experts=True, redundant_experts=4), 9 * 3 * 64 * 8),  # and a copy of one more
        (Shard(experts=3, whole_experts=True), 11 * 3 * 64 * 8),
    ],
)
def test_experts_are_cut_or_dealt_out(shard: Shard, experts: int) -> None:
    """32 experts of width 8; the router is on every rank."""
    content = TINY | {"model_type": "qwen3_moe", "num_experts": 32, "num_experts_per_tok": 2}
    blueprint = parse_model(content | {"moe_intermediate_size": 8, "head_dim": 16}).blueprint
    assert blueprint is not None

    kept = [share(matrix, shard) for matrix in blueprint.layers[0]]

    assert sum(matrix.elements for matrix in kept if ".experts." in matrix.name) == experts
    assert [matrix.elements for matrix in kept if matrix.name == "mlp.gate"] == [32 * 64]


def test_attention_may_be_on_every_rank() -> None:
    """Data-parallel attention: MLPs are still cut."""
    blueprint = parse_model(TINY).blueprint
    assert blueprint is not None

    kept = {matrix.name: share(matrix, Shard(tp=2, attention=1)).elements for matrix in blueprint.layers[0]}

    assert (kept["self_attn.q_proj"], kept["mlp.up_proj"]) == (64 * 64, 64 * 64)


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row["name"])
@pytest.mark.parametrize("tp", [2, 8, 16])
def test_a_rank_never_needs_more_than_the_whole(row: dict[str, Any], tp: int) -> None:
    """And never less than its share."""
    alone, split = (_account(row_config(row), rank_shard(tp=ranks, dp=1)) for ranks in (1, tp))

    for one, part in zip(
        (*alone.layers, alone.table, alone.last), (*split.layers, split.table, split.last), strict=True
    ):
        assert one.rank / tp * 0.999 <= part.rank <= one.rank


def _parameters(content: dict[str, Any]) -> int | None:
    blueprint = parse_model(content).blueprint
    return blueprint.parameters if blueprint else None


def _account(content: dict[str, Any], shard: Shard = WHOLE) -> Account:
    shape = parse_model(content)
    assert shape.blueprint is not None
    return account_for(shape.blueprint, element_bytes=2, quantization=shape.quantization, shard=shard)


def _weigh(files: ModelFiles, *, stages: tuple[int, ...], loads: Loads) -> Weights:
    return weigh(
        parse_model(files.config),
        files,
        shard=WHOLE,
        stages=stages,
        dtype="bfloat16",
        quantization=None,
        loads=loads,
    )
