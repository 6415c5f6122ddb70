"""KV bytes against published figures and against what real servers reported."""

from typing import Any

import pytest

from agent.memory.kv_cache import Layouts, entry_bytes, held, stage_layers, token_bytes
from agent.memory.kv_formats import FORMATS, MXFP4_INDEX, KvFormat, kv_format, mixed
from agent.memory.layers import Heads, IndexKeys, Latent, Layer, Record, State
from tests.agent.memory.models import GIB, KNOWN, ROWS, budget, config, row_config


def _layout(name: str) -> KvFormat:
    layout = kv_format(name)
    assert layout is not None
    return layout


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-2-7b", 524_288),  # K and V x 32 layers x 32 heads x 128 x 2 B
        ("llama-3.1-8b", 131_072),  # 2 x 32 layers x 8 heads x 128 x 2 B
        ("llama-3.1-70b", 327_680),  # 2 x 80 layers x 8 heads x 128 x 2 B
        ("qwen3-8b", 147_456),  # 2 x 36 layers x 8 heads x 128 (given, not 4096 / 32) x 2 B
        ("deepseek-v2-lite", 31_104),  # 27 layers x (512 + 64) x 2 B
        ("deepseek-v3", 70_272),  # 61 layers x (512 + 64) x 2 B
    ],
)
def test_bytes_per_token_of_well_known_models(name: str, expected: int) -> None:
    """The published slope in bf16, and half of it in fp8."""
    assert expected == budget(config(name)).ranks[0].kv.bytes_per_token
    assert expected == 2 * (budget(config(name), kv_cache_dtype="fp8").ranks[0].kv.bytes_per_token or 0)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_model(row: dict[str, Any]) -> None:
    """All 88 configs come to their row: the slope without what an engine pads, in bf16 and fp8."""
    slopes = [
        budget(row_config(row), kv_cache_dtype=dtype).ranks[0].kv.bytes_per_token_logical
        for dtype in ("bfloat16", "fp8")
    ]

    # The table rounds V4-Pro's 5,511.4375 to a thousandth.
    assert [row["bytes_per_token_bf16"], row["bytes_per_token_fp8"]] == pytest.approx(slopes, abs=0.0005, rel=0)


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row["name"])
def test_the_default_format_is_the_models(row: dict[str, Any]) -> None:
    """16 bits, whatever the format of the weights."""
    assert row["bytes_per_token_bf16"] == budget(row_config(row)).ranks[0].kv.bytes_per_token


def test_eight_sequences_of_8k() -> None:
    """32 layers, 32 heads, width 128, fp16: 512 KiB a token, so 8 x 8,192 tokens are 32 GiB; with GQA 8, in fp8 4."""
    tokens = 8 * 8192
    whole, grouped = config("llama-2-7b"), config("llama-3.1-8b")

    assert tokens * (budget(whole).ranks[0].kv.bytes_per_token or 0) == 32 * GIB
    assert tokens * (budget(grouped).ranks[0].kv.bytes_per_token or 0) == 8 * GIB
    assert tokens * (budget(grouped, kv_cache_dtype="fp8").ranks[0].kv.bytes_per_token or 0) == 4 * GIB


# K and V of one head of 128 + 128, and one sparse latent of 512 + 64.
FORMAT_BYTES = [
    ("bf16", 2 * 256, 2 * 576),
    ("fp16", 2 * 256, 2 * 576),
    ("float32", 4 * 256, 4 * 576),
    ("fp8_e4m3", 256, 576),
    ("int8", 256, 576),
    ("int8_per_token_head", 256 + 8, 576 + 8),  # two fp32 scales
    ("fp8_per_token_head", 256 + 8, 576 + 8),
    ("int4_per_token_head", 128 + 8, 288 + 8),
    ("nvfp4", 2 * (64 + 8), 288 + 36),  # a fp8 scale for 16 elements
    ("turboquant_k8v4", 128 + (64 + 4), None),  # K in fp8, V of 4 bits with scale and zero point
    ("turboquant_4bit_nc", (64 + 2) + (64 + 4), None),
    ("turboquant_k3v4_nc", (48 + 2) + (64 + 4), None),
    ("turboquant_3bit_nc", (48 + 2) + (48 + 4), None),
    ("fp8_ds_mla", None, 656),  # 512 in fp8, 4 fp32 scales, 64 of rope in bf16
    ("nvfp4_ds_mla", None, 352),  # 256 + 32 of scales, 64 of rope in fp8
    ("q8_0", 256 * 34 // 32, 576 * 34 // 32),
    ("q5_1", 256 * 24 // 32, 576 * 24 // 32),
    ("q5_0", 256 * 22 // 32, 576 * 22 // 32),
    ("q4_1", 256 * 20 // 32, 576 * 20 // 32),
    ("q4_0", 256 * 18 // 32, 576 * 18 // 32),
    ("iq4_nl", 256 * 18 // 32, 576 * 18 // 32),
]


@pytest.mark.parametrize(("name", "head_bytes", "latent_bytes"), FORMAT_BYTES)
def test_formats(name: str, head_bytes: int | None, latent_bytes: int | None) -> None:
    """Bytes of one layer and token; what a format is not made for is left out."""
    layout = _layout(name)

    if head_bytes is not None:
        assert 8 * head_bytes == token_bytes(Heads(heads=8, k_dim=128, v_dim=128), layout, tp=1)
    if latent_bytes is not None:
        assert latent_bytes == token_bytes(Latent(rank=512, rope=64, sparse=True), layout, tp=1)


def test_turboquant_rounds_a_head_up_to_even() -> None:
    """Widths of 65: K ceil(65 x 3 / 8) + 2 = 27, V ceil(65 x 4 / 8) + 4 = 37; together 64. At 67: 28 + 38 = 66."""
    layout = _layout("turboquant_k3v4_nc")

    sizes = [token_bytes(Heads(heads=1, k_dim=width, v_dim=width), layout, tp=1) for width in (65, 67, 69)]

    assert sizes == [64, 66, 68]  # 69: 28 + 39 = 67, rounded


@pytest.mark.parametrize(
    ("name", "record_bytes", "window_bytes"),
    [
        ("bfloat16", 1024, 1024),
        ("fp8_ds_mla", 584, 584),  # 448 in fp8 + 8 of scales, 64 of rope in bf16
        ("mxfp8_ds_mla", 528, 528),  # 512 + a scale for 32 elements
        ("nvfp4_ds_mla", 288, 528),  # 256 + 32 of scales; a window's records stay mxfp8
    ],
)
def test_records_of_compressed_attention(name: str, record_bytes: int, window_bytes: int) -> None:
    """512 elements, 64 of them rope, whatever the number of tokens they stand for."""
    layouts = Layouts(kv=_layout(name))

    record, window = Record(dim=512, rope=64, ratio=4), Record(dim=512, rope=64, window=128)

    assert (record_bytes, window_bytes) == (entry_bytes(record, layouts, tp=8), entry_bytes(window, layouts, tp=8))


def test_index_keys_do_not_follow_the_kv_format() -> None:
    """DeepSeek's of 128: 132 bytes in fp8 with a fp32 scale, 68 in mxfp4; MiniMax-M3's stay bf16."""
    layouts = Layouts(kv=_layout("fp8"))
    packed, plain = IndexKeys(dim=128), IndexKeys(dim=128, packed=False)

    assert (entry_bytes(packed, layouts, tp=1), entry_bytes(plain, layouts, tp=1)) == (132, 256)
    assert entry_bytes(packed, Layouts(kv=_layout("fp8"), index=MXFP4_INDEX), tp=1) == 68


def test_k_and_v_of_different_formats() -> None:
    """K in q8_0 and V in q4_0: (128 x 34 + 128 x 18) / 32 bytes a head."""
    assert token_bytes(Heads(heads=1, k_dim=128, v_dim=128), mixed(_layout("q8_0"), _layout("q4_0")), tp=1) == 136 + 72


# Of budget.md's derivation: conv columns x channels x bytes + heads x elements x bytes.
STATES = [
    (
        State(kind="mamba1", heads=8192, head_elements=16, conv_channels=8192, conv_width=3),
        8192 * 3 * 2 + 8192 * 16 * 2,  # Jamba
    ),
    (
        State(kind="gated_delta_net", heads=32, head_elements=128 * 128, conv_channels=8192, conv_width=3),
        8192 * 3 * 2 + 32 * 128 * 128 * 2,  # Qwen3-Next: 1,097,728
    ),
    (
        State(
            kind="mamba2",
            heads=256,
            head_elements=64 * 256,
            conv_channels=16384,
            conv_width=3,
            groups=8,
            group_channels=2 * 256,
            state_dtype="float32",
        ),
        (16384 + 8 * 512) * 3 * 2 + 256 * 64 * 256 * 4,  # Nemotron-H-56B: 16,900,096
    ),
    (State(kind="lightning", heads=64, head_elements=96 * 96), 64 * 96 * 96 * 2),
]


@pytest.mark.parametrize(("state", "expected"), STATES, ids=lambda value: getattr(value, "kind", ""))
def test_recurrent_states(state: State, expected: int) -> None:
    """One size however long the request; over two ranks half of it."""
    layouts = Layouts(kv=_layout("bfloat16"))

    assert (expected, expected // 2) == (entry_bytes(state, layouts, tp=1), entry_bytes(state, layouts, tp=2))


def test_groups_are_extended_to_the_ranks() -> None:
    """Two groups of 512 channels on 8 ranks: each rank holds one whole group beside its eighth of the others."""
    state = State(
        kind="mamba2", heads=64, head_elements=100, conv_channels=4096, conv_width=3, groups=2, group_channels=512
    )

    assert entry_bytes(state, Layouts(kv=_layout("bfloat16")), tp=8) == (4096 // 8 + 512) * 3 * 2 + 8 * 100 * 2


def test_speculation_widens_a_convolution() -> None:
    """Two speculated tokens: five columns for three, but in Mamba1."""
    layouts = Layouts(kv=_layout("bfloat16"), columns=2)

    assert [entry_bytes(state, layouts, tp=1) - size for state, size in STATES[:2]] == [0, 8192 * 2 * 2]


def test_dtypes_of_a_state_may_be_given() -> None:
    """An engine's flags win over the model's."""
    layouts = Layouts(kv=_layout("bfloat16"), conv_dtype="float32", state_dtype="float32")

    assert 2 * STATES[1][1] == entry_bytes(STATES[1][0], layouts, tp=1)


def test_what_layers_hold_of_a_request() -> None:
    """V4-Flash in fp8: 21 layers of a record and a key for 4 tokens, 20 of a record for 128, 43 windows of 128."""
    window, keys = Record(dim=512, rope=64, window=128), IndexKeys(dim=128, ratio=4)
    layers = (
        *[Layer(kind="window", caches=(window,))] * 2,
        *[Layer(kind="csa", caches=(window, Record(dim=512, rope=64, ratio=4), keys))] * 21,
        *[Layer(kind="hca", caches=(window, Record(dim=512, rope=64, ratio=128)))] * 20,
    )

    wide, narrow = (held(layers, Layouts(kv=_layout(name)), tp=1) for name in ("bfloat16", "fp8_ds_mla"))

    assert (wide.slope, wide.fixed) == (21 * (1024 + 132) / 4 + 20 * 1024 / 128, 43 * 128 * 1024)
    assert (narrow.slope, narrow.fixed) == (3850.25, 43 * 128 * 584)


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (64, 1)])
def test_heads_are_split_then_replicated(tp: int, heads: int) -> None:
    """Eight KV heads: from 8 ranks on each keeps one."""
    assert heads * 512 == token_bytes(Heads(heads=8, k_dim=128, v_dim=128), FORMATS["bfloat16"], tp=tp)


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_the_latent_is_on_every_rank(tp: int) -> None:
    """MLA saves nothing by tensor parallelism."""
    assert budget(config("deepseek-v3"), tp=tp).ranks[-1].kv.bytes_per_token == 70_272


@pytest.mark.parametrize(
    ("count", "pp", "expected"),
    [
        (32, 1, (32,)),
        (32, 4, (8, 8, 8, 8)),
        (61, 2, (31, 30)),
        (61, 4, (15, 15, 16, 15)),
        (43, 10, (4, 4, 4, 4, 4, 4, 5, 5, 5, 4)),
        (5, 3, (2, 2, 1)),
        (3, 3, (1, 1, 1)),
    ],
)
def test_pipeline_stages(count: int, pp: int, expected: tuple[int, ...]) -> None:
    """The remainder goes to the stages before the last, from the back, as vLLM splits."""
    assert expected == stage_layers(count, pp)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, 65_536),
        ({"kv_cache_quant_algo": "FP8"}, 65_536),
        ({"kv_cache_scheme": None}, 131_072),
        ({}, 131_072),
        ({"kv_cache_scheme": {"num_bits": 4, "type": "int"}}, None),
        ({"kv_cache_quant_algo": "NVFP4"}, 36_864),
    ],
)
def test_auto_honours_what_the_checkpoint_declares(declared: dict[str, Any], expected: int | None) -> None:
    """A declared KV format counts, fp8 weights alone do not, and one that is not known gives no number."""
    content = config("llama-3.1-8b") | {"quantization_config": {"quant_method": "fp8", **declared}}

    result = budget(content)

    assert expected == result.ranks[0].kv.bytes_per_token
    assert (expected is None) == any(text.startswith("KV cache: ") for text in result.unknown)


def test_a_flag_wins_over_what_the_checkpoint_declares() -> None:
    """KV in bf16 on a checkpoint that declares fp8."""
    quantized = {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}

    result = budget(config("llama-3.1-8b") | {"quantization_config": quantized}, kv_cache_dtype="bf16")

    assert result.ranks[0].kv.bytes_per_token == 131_072
