"""vLLM's groups, pages and blocks: its own planner's vectors, published figures, and what each option changes."""

from typing import Any

import pytest

from agent.memory.arguments import from_flags
from agent.memory.budget import Budget, Device, compute
from agent.memory.kv_cache import KvBudget
from collectors.readings import ModelFiles
from tests.agent.memory.models import GIB, ROWS, budget, config, row_config

PLANS = [(row, plan) for row in ROWS for plan in row.get("plans", ())]
NO_PREFIX: dict[str, Any] = {"prefix_caching": "off"}
CASE_FLAGS: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B fp8": {"kv_cache_dtype": "fp8"},
    "Llama-3.1-70B tp8": {"tp": 8},
    "Qwen2.5-72B tp8": {"tp": 8},
    "Qwen3-30B-A3B tp8 (kv replicated)": {"tp": 8},
    "DeepSeek-V3 bf16 bs64": {"block_size": 64},
    "DeepSeek-V3.2 fp8_ds_mla+indexer": {"kv_cache_dtype": "fp8"},
    "GLM-5.2 fp8": {"kv_cache_dtype": "fp8"},
    "Mistral-Small-4-119B": {"block_size": 16},
    "gpt-oss-120b hybrid off": {"disable_hybrid_kv_cache_manager": "true"},
    "Qwen3-Next-80B": NO_PREFIX,
    "Qwen3.5-27B": NO_PREFIX,
    "Qwen3.5-397B": NO_PREFIX,
    "Nemotron-H-56B": NO_PREFIX,
    "Nemotron-3-Nano-30B": NO_PREFIX,
    "Jamba-v0.1": NO_PREFIX,
    "Kimi-K3 tp8": NO_PREFIX | {"tp": 8},
}
KINDS = {
    "full": "FullAttentionSpec",
    "mla": "MLAAttentionSpec",
    "window": "SlidingWindowSpec",
    "chunk": "ChunkedLocalAttentionSpec",
    "cross": "CrossAttentionSpec",
    "state": "MambaSpec",
    "uniform": "UniformTypeKVCacheSpecs",
}


@pytest.mark.parametrize(("row", "plan"), PLANS, ids=[plan["case"] for _, plan in PLANS])
def test_the_planner_of_vllm_0_33(row: dict[str, Any], plan: dict[str, Any]) -> None:
    """Groups, pages, blocks, blocks per request, concurrency, log tokens and bytes needed, to the byte."""
    given: dict[str, Any] = {name: plan[name] for name in ("max_model_len", "kv_pool_bytes", "max_num_batched_tokens")}

    kv = budget(row_config(row), **given, **CASE_FLAGS.get(plan["case"], {})).ranks[0].kv

    groups = [[g.layers, KINDS[g.kind], g.block_size, g.page_bytes, g.blocks_per_request] for g in kv.groups]
    assert plan["groups"] == groups
    assert plan["bytes_per_block"] == kv.bytes_per_block
    assert (plan["blocks"], plan["blocks"] * plan["bytes_per_block"]) == (kv.blocks, kv.pool_bytes)
    assert plan["blocks_per_request"] == _blocks(kv)
    assert plan["max_concurrency"] == pytest.approx(kv.max_concurrency, abs=0.0001)
    assert (plan["log_tokens"], plan["request_bytes"]) == (kv.pool_tokens, kv.request_bytes)


def test_all_vectors_are_there() -> None:
    """The 35 published ones."""
    assert len(PLANS) == 35


def _kv(name: str, **flags: Any) -> KvBudget:
    return budget(config(name), **flags).ranks[0].kv


def _blocks(kv: KvBudget) -> int:
    return sum(group.blocks_per_request or 0 for group in kv.groups)


def test_the_slope_of_v4_is_that_of_its_largest_group() -> None:
    """1,002,240 B for 256 tokens; 21 records and keys and 20 records of 128 would fill 3,850.25 B a token."""
    kv = _kv("deepseek-v4-flash", kv_cache_dtype="fp8", max_model_len=1 << 20, max_num_batched_tokens=8192)

    assert (kv.bytes_per_token, kv.bytes_per_token_logical) == (3915, 3850.25)
    assert [group.page_bytes for group in kv.groups] == [
        823_680,  # 22 windows of 64 x 584 B, padded to a multiple of 576: 37,440
        786_240,  # 21 of them
        1_002_240,  # 21 x (64 x 584 -> 37,440) + 21 x (64 x 132 -> 8,640) + 20 x (2 x 584 -> 1,728)
        870_912,  # 21 x (4 x 2,048 x 4 B -> 32,832) + 21 x (4 x 512 x 4 B -> 8,640)
        656_640,  # 20 x (8 x 1,024 x 4 B -> 32,832)
    ]


def test_one_request_of_a_million_tokens_on_v4() -> None:
    """4,096 blocks of history, and 259 + 259 + 4,099 + 2,065 for what two steps of 8,192 tokens hold in windows."""
    kv = _kv("deepseek-v4-flash", kv_cache_dtype="fp8", max_model_len=1 << 20, max_num_batched_tokens=8192)

    assert kv.fixed_bytes_per_request == (259 + 259 + 4099 + 2065) * 1_002_240
    assert (kv.request_bytes or 0) / GIB == pytest.approx(10.060, abs=0.0005)


def test_v4_pro_is_padded_too() -> None:
    """1,435,968 B for 256 tokens."""
    assert _kv("deepseek-v4-pro", kv_cache_dtype="fp8").bytes_per_token == 5609.25


@pytest.mark.parametrize(
    ("device", "dtype", "expected"),
    [
        (None, "nvfp4_ds_mla", 890),  # 2.5 records a token of 288 B, and keys of 68
        ("NVIDIA B200", "fp8", 1650),  # 528 + 132
        ("NVIDIA H200", "fp8", 1790),  # 584 + 132
        (None, "bfloat16", 2890),  # 1,024 + 132
    ],
)
def test_slopes_of_v4_1(device: str | None, dtype: str, expected: int) -> None:
    """Three layers keep a record of two tokens and one of each: 2.5 a token; its layout follows the device."""
    result = budget(config("deepseek-v4.1-flash"), Device(name=device), kv_cache_dtype=dtype)

    assert expected == result.ranks[0].kv.bytes_per_token_logical


def test_v4_keeps_8_bits_unless_told() -> None:
    """``auto`` is the packed layout; any other of the two has to be asked for."""
    assert budget(config("deepseek-v4-flash")).arguments["kv_cache_dtype"].value == "fp8_ds_mla"
    assert _kv("deepseek-v4-flash", kv_cache_dtype="bfloat16").bytes_per_token_logical == 6229


# Nemotron-Nano-9B-v2: 10,240 channels, 128 state heads of 80 x 128, 8 groups; 8 KV heads of 128.
NANO: dict[str, Any] = config("nemotron-h-56b") | {
    "hidden_size": 4480,
    "num_attention_heads": 40,
    "head_dim": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 80,
    "ssm_state_size": 128,
    "mamba_ssm_cache_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("content", "flags", "block_size", "token_bytes"),
    [
        # (10,240 + 8 x 2 x 128) x 3 x 2 B + 128 x 80 x 128 x 2 B = 2,695,168: 42 steps of 16 x 4,096 (vllm#24280)
        (NANO, {}, 672, 4096),
        (config("qwen3.5-27b"), {"tp": 2, "kv_cache_dtype": "fp8"}, 1568, 1024),  # as an operator's log shows
        (config("qwen3-next-80b-a3b"), {}, 544, 2048),  # 1,097,728: 34 steps of 16 x 2,048
        (config("qwen3-next-80b-a3b"), {"block_size": 64}, 576, 2048),  # 9 steps of 64
        (config("kimi-k3"), {"tp": 8}, 768, 1152),  # MLA: 814,080 in 6 steps of 128 x 1,152
    ],
    ids=["mamba2", "delta-net-fp8", "delta-net", "larger-steps", "latent"],
)
def test_a_state_decides_the_block(
    content: dict[str, Any], flags: dict[str, Any], block_size: int, token_bytes: int
) -> None:
    """The attention's page must hold a state, in steps of the kernel's block; the state's page is padded to it."""
    groups = budget(content, **flags).ranks[0].kv.groups

    assert block_size == groups[0].block_size
    assert {group.page_bytes for group in groups} == {block_size * token_bytes}


@pytest.mark.parametrize(
    ("version", "flags", "blocks"),
    [
        ("0.33.0", {}, 3),  # Mamba2 at block boundaries: the last two, and a checkpoint of the prefill
        ("0.33.0", NO_PREFIX, 1),
        ("0.19.1", {}, 1),  # prefix caching of states had to be asked for
        ("0.19.1", {"prefix_caching": "on"}, 3),
        ("0.33.0", {"speculative": "ngram:2"}, 5),
        ("0.33.0", NO_PREFIX | {"speculative": "ngram:2"}, 3),
    ],
)
def test_states_of_a_request(version: str, flags: dict[str, Any], blocks: int) -> None:
    """One, two and a checkpoint with prefix caching, and one more for each speculated token."""
    groups = _kv("nemotron-3-nano-30b-a3b", engine_version=version, **flags).groups

    assert {group.blocks_per_request for group in groups if group.kind == "state"} == {blocks}


@pytest.mark.parametrize(
    ("flags", "in_flight"),
    [
        ({}, 2 * 8192),  # a step computes while the next is scheduled
        ({"async_scheduling": "false"}, 8192),
        ({"pp": 2}, 3 * 8192),
        ({"engine_version": "0.25.0"}, 8192),
        ({"max_num_batched_tokens": 1024}, 2 * 1024),
    ],
)
def test_a_window_is_held_for_the_tokens_in_flight(flags: dict[str, Any], in_flight: int) -> None:
    """gpt-oss: the last 127 tokens, those of all steps under way, and a block begun before."""
    kv = _kv("gpt-oss-20b", **{"max_model_len": 131_072, "max_num_batched_tokens": 8192} | flags)

    window = next(group for group in kv.groups if group.kind == "window")
    assert -(-(127 + in_flight) // 16) + 1 == window.blocks_per_request


def test_a_published_need_of_the_older_rule() -> None:
    """vllm#27508: 131,072 tokens of gpt-oss-120b need 4.54 GiB, (8,192 + 73) blocks of 589,824 B."""
    kv = _kv("gpt-oss-120b", engine_version="0.11.0", max_model_len=131_072, max_num_batched_tokens=1024)

    assert kv.request_bytes == (8192 + 73) * 589_824


def test_a_window_never_holds_more_than_the_request() -> None:
    """2,000 tokens: 125 blocks, and one begun before."""
    assert [group.blocks_per_request for group in _kv("gpt-oss-20b", max_model_len=2000).groups] == [125, 126]


def test_the_null_block() -> None:
    """A pool of exactly one request has no block left for nothing, so the engine will not start."""
    exact, more = (
        budget(config("llama-3.1-8b"), kv_pool_bytes=blocks * 2_097_152, max_model_len=131_072)
        for blocks in (8192, 8193)
    )

    assert (exact.fits, more.fits) == (False, True)
    assert (exact.ranks[0].kv.blocks, exact.ranks[0].kv.max_concurrency) == (8192, 1.0)


def test_stages_share_the_groups_of_the_whole_model() -> None:
    """Gemma-3-27B on two stages: 5 of 10 full layers each; the windows' six groups are cut alike."""
    first, second = (rank.kv for rank in budget(config("gemma-3-27b"), pp=2, kv_pool_bytes=20 * GIB).ranks)

    assert [group.layers for group in first.groups] == [5, 5, 5, 4, 4, 4, 4]
    assert [group.layers for group in second.groups] == [5, 4, 4, 5, 5, 4, 4]
    assert first.bytes_per_block == second.bytes_per_block == 5 * 131_072
    assert first.groups[1].blocks_per_request == second.groups[1].blocks_per_request


def test_a_group_may_be_empty_on_a_stage() -> None:
    """A stage of one window layer: its blocks are of one page, and a request still takes those of all groups."""
    first, second = (rank.kv for rank in budget(config("gpt-oss-20b"), pp=2, pp_layers="1,23", kv_pool_bytes=GIB).ranks)

    assert ([group.layers for group in first.groups], first.bytes_per_block) == ([0, 1], 32_768)
    assert (second.bytes_per_block, GIB // (12 * 32_768)) == (12 * 32_768, second.blocks)
    assert first.blocks == second.blocks
    assert (first.bytes_per_token, second.bytes_per_token) == (2048, 24_576)
    assert (first.bytes_per_token_logical, _blocks(first)) == (0, _blocks(second))


EAGLE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 201_088,
    "max_position_embeddings": 131_072,
}


def _with_draft(name: str, draft: dict[str, Any], **flags: object) -> Budget:
    files = ModelFiles(path="/models/some-model", config=config(name))
    arguments = from_flags({"speculative": "mtp:3", **flags}, engine="vllm")
    return compute(files, arguments, Device(), draft=ModelFiles(path="/models/draft", config=draft))


def test_a_draft_of_one_layer_fills_up_the_other_groups() -> None:
    """gpt-oss-20b: 12 windows and 13 full layers are cut into groups of 13, as 13 is less than 1.5 x 12."""
    kv = _with_draft("gpt-oss-20b", EAGLE).ranks[0].kv

    assert [(group.kind, group.layers) for group in kv.groups] == [("full", 13), ("window", 12)]
    assert (kv.bytes_per_block, kv.bytes_per_token) == (13 * 32_768, 13 * 2048)


def test_a_draft_is_on_the_last_stage() -> None:
    """Its layers and weights; the others do not grow."""
    plain, drafted = (
        result.ranks for result in (budget(config("llama-3.1-8b"), pp=2), _with_draft("llama-3.1-8b", EAGLE, pp=2))
    )

    layers = [[rank.kv.groups[0].layers for rank in ranks] for ranks in (plain, drafted)]
    more = [(b.weights_bytes or 0) - (a.weights_bytes or 0) for a, b in zip(plain, drafted, strict=True)]
    assert layers == [[16, 16], [16, 17]]
    assert more[0] == 0
    assert more[1] > 201_088 * 2880 * 2


@pytest.mark.parametrize(
    ("name", "flags", "slope"),
    [
        ("deepseek-v3", {}, 61 * 1152),
        ("deepseek-v3", {"speculative": "none"}, 61 * 1152),
        ("deepseek-v3", {"speculative": "mtp:1"}, 62 * 1152),
        ("deepseek-v3.2", {"speculative": "mtp:1", "kv_cache_dtype": "fp8"}, 62 * (656 + 132)),
    ],
)
def test_multi_token_prediction_adds_its_layer(name: str, flags: dict[str, Any], slope: int) -> None:
    """Only where the engine speculates with it."""
    assert slope == _kv(name, **flags).bytes_per_token


@pytest.mark.parametrize(
    ("name", "flags", "slope", "blocks"),
    [
        # Eight KV heads on 16 ranks are held twice; decode context parallelism halves the tokens instead.
        ("llama-3.1-70b", {"tp": 16}, 80 * 512, 8192),
        ("llama-3.1-70b", {"tp": 16, "dcp": 2}, 80 * 512 / 2, 4096),
        ("deepseek-v3", {"tp": 8, "dcp": 8}, 61 * 1152 / 8, 131_072 // 8 // 64),
    ],
)
def test_decode_context_parallelism(name: str, flags: dict[str, Any], slope: float, blocks: int) -> None:
    """Each rank keeps its share of the tokens of full attention."""
    kv = _kv(name, max_model_len=131_072, **flags)

    assert (slope, slope, blocks) == (kv.bytes_per_token, kv.bytes_per_token_logical, _blocks(kv))


def test_windows_are_not_split_by_context_parallelism() -> None:
    """gpt-oss: the full group halves, the windows stay."""
    flags: dict[str, Any] = {"max_model_len": 131_072, "max_num_batched_tokens": 8192, "tp": 16}

    whole, halved = _kv("gpt-oss-20b", **flags), _kv("gpt-oss-20b", **flags, dcp=2)

    assert [group.blocks_per_request for group in whole.groups] == [8192, 1033]
    assert [group.blocks_per_request for group in halved.groups] == [4096, 1033]


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("llama-3.1-70b", {"tp": 8, "dcp": 2}, "vLLM refuses dcp 2: at tp 8 the model's 8 KV heads allow up to 1"),
        ("deepseek-v3", {"tp": 8, "dcp": 3}, "vLLM refuses dcp 3: tp 8 is not divisible by it"),
        ("deepseek-v3", {"kv_cache_dtype": "nvfp4"}, "vLLM refuses kv_cache_dtype nvfp4 with latent attention"),
        (
            "qwen3-next-80b-a3b",
            {"disable_hybrid_kv_cache_manager": "true"},
            "vLLM can't hold this model's caches as one kind: it needs its hybrid KV cache manager",
        ),
    ],
)
def test_what_vllm_refuses(name: str, flags: dict[str, Any], said: str) -> None:
    """It would not start, so it does not fit."""
    result = budget(config(name), kv_pool_bytes=100 * GIB, **flags)

    assert said in result.warnings
    assert result.fits is False


def test_log_tokens_of_hybrids_before_0_20() -> None:
    """Blocks // groups x block size then: 54,613 // 2 x 16 of gpt-oss-20b, whatever the context (vllm#40691)."""
    flags: dict[str, Any] = {"max_model_len": 131_072, "max_num_batched_tokens": 8192, "kv_pool_bytes": 20 * GIB}

    assert _kv("gpt-oss-20b", engine_version="0.19.1", **flags).pool_tokens == 436_896
    assert _kv("gpt-oss-20b", engine_version="0.33.0", **flags).pool_tokens == 775_960


def test_a_model_without_caches_needs_no_pool() -> None:
    """Every layer a no-op for attention: nothing to keep, and no division by it."""
    content = config("llama-3.3-nemotron-super-49b")
    blocks = [{**block, "attention": {"no_op": True}} for block in content["block_configs"]]

    kv = budget(content | {"block_configs": blocks}, kv_pool_bytes=GIB).ranks[0].kv

    assert (kv.bytes_per_token, kv.request_bytes, kv.groups, kv.pool_bytes) == (0, 0, (), 0)


def test_the_format_of_sparse_attention_in_8_bits() -> None:
    """fp8 is the packed layout of 656 B for a sparse latent, and 576 B plain for a dense one."""
    assert budget(config("deepseek-v3.2"), kv_cache_dtype="fp8").arguments["kv_cache_dtype"].value == "fp8_ds_mla"
    assert _kv("deepseek-v3.2", kv_cache_dtype="nvfp4_ds_mla").bytes_per_token == 61 * (352 + 132)
    assert _kv("deepseek-v3", kv_cache_dtype="fp8").bytes_per_token == 61 * 576


@pytest.mark.parametrize(
    ("name", "speculative", "said"),
    [
        ("llama-3.1-8b", "draft:3", "KV cache: that of the model that speculates is not known; give it as draft_model"),
        ("llama-3.1-8b", "mtp:1", "KV cache: the layers that predict several tokens are not known from this config"),
        ("llama-3.1-8b", '{"method": "eagle3", "num_speculative_tokens": 3}', "KV cache: that of the model that spec"),
    ],
)
def test_layers_that_speculate_must_be_known(name: str, speculative: str, said: str) -> None:
    """They change a block's bytes, so without them there is no figure."""
    result = budget(config(name), kv_pool_bytes=GIB, speculative=speculative)

    assert result.unknown[-1].startswith(said)
    assert (result.ranks[0].kv.bytes_per_block, result.fits) == (None, None)


def test_an_unknown_draft_is_unknown() -> None:
    """A draft of an architecture that is not known."""
    result = _with_draft("llama-3.1-8b", EAGLE | {"model_type": "new"})

    assert any(text.startswith("KV cache: that of the draft model: model_type 'new'") for text in result.unknown)
    assert result.ranks[0].kv.bytes_per_token is None


@pytest.mark.parametrize(
    ("config_text", "slope"),
    [
        ('{"method": "deepseek_mtp", "num_speculative_tokens": 1}', 62 * 1152),
        ('{"method": "ngram", "num_speculative_tokens": 4}', 61 * 1152),
    ],
)
def test_a_speculative_config_as_the_engine_takes_it(config_text: str, slope: int) -> None:
    """The model's own layers count, guesses from the prompt keep nothing."""
    arguments = from_flags({"--speculative-config": config_text}, engine="vllm")

    files = ModelFiles(path="/models/some-model", config=config("deepseek-v3"))
    assert slope == compute(files, arguments, Device()).ranks[0].kv.bytes_per_token


def test_what_turboquant_leaves_out_is_said() -> None:
    """Its slope is that of all layers; the engine keeps four of a dense model in 16 bits."""
    result = budget(config("llama-3.1-8b"), kv_cache_dtype="turboquant_k8v4")

    assert result.ranks[0].kv.bytes_per_token == 32 * 8 * 196
    assert any("beside turboquant; not counted here" in text for text in result.warnings)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"block_size": 64}, "vLLM refuses block_size 64: the model keeps an entry for each 128 tokens"),
        ({"tp": 3}, "vLLM refuses tp 3: the model's 64 attention heads are not divisible by it"),
    ],
)
def test_what_vllm_refuses_of_compressed_attention(flags: dict[str, Any], said: str) -> None:
    """A block holds whole records; heads are split evenly."""
    result = budget(config("deepseek-v4-flash"), **flags)

    assert said in result.warnings
    assert result.fits is False
