"""The whole prediction: its record, whether it fits, what is unknown, and properties that always hold."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.memory.arguments import Arguments
from agent.memory.budget import Budget, Device, LayerGroup, RankBudget, compute
from agent.memory.model_config import ModelConfigError
from collectors.readings import ModelFiles
from tests.agent.memory.models import GIB, KNOWN, ROWS, budget, config, row_config

H100 = Device(name="NVIDIA H100 80GB HBM3", total_bytes=85_520_809_984, cuda_bytes=85_018_542_080)
A10 = Device(name="NVIDIA A10", total_bytes=23_028 << 20, cuda_bytes=22_502 << 20)


def test_the_json_record_has_the_promised_shape() -> None:
    """Names of ``vramscope.budget/1``, integers for bytes, null for what is not known."""
    document = msgspec.to_builtins(budget(config("llama-3.1-8b"), H100))

    assert document["schema"] == "vramscope.budget/1"
    assert {"name", "model_type", "architecture", "parameters", "layers"} <= set(document["model"])
    widths = {"kind": "gqa", "count": 32, "kv_heads": 8, "k_dim": 128, "v_dim": 128}
    assert document["model"]["layers"] == (widths | {"reach": None, "tokens": None},)
    assert document["arguments"]["tp"] == {"value": 1, "source": "default"}
    assert set(document["device"]) == {"name", "total_bytes", "cuda_bytes"}
    rank = document["ranks"][0]
    assert {
        "tp_rank",
        "pp_rank",
        "weights_bytes",
        "weights_evidence",
        "kv",
        "runtime",
        "total_bytes",
        "headroom_bytes",
    } <= set(rank)
    assert set(rank["kv"]) == {
        "bytes_per_token",
        "bytes_per_token_bounds",
        "bytes_per_token_logical",
        "fixed_bytes_per_request",
        "groups",
        "bytes_per_block",
        "blocks",
        "pool_bytes",
        "pool_tokens",
        "request_bytes",
        "max_concurrency",
        "state_bytes",
        "unusable_bytes",
        "apart_block_bytes",
        "apart_bytes",
    }
    assert set(rank["kv"]["groups"][0]) == {"kind", "layers", "block_size", "page_bytes", "blocks_per_request"}
    assert {"low", "likely", "high"} <= set(rank["runtime"]["activations"])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/models/llama", "llama"),
        ("/models/llama/", "llama"),
        ("/models/llama-3.1", "llama-3.1"),
        ("/models/llama/config.json", "llama"),
        ("/models/llama/model.safetensors.index.json", "llama"),
        ("/models/llama-3.1.json", "llama-3.1"),
    ],
)
def test_the_name_of_a_model(path: str, name: str) -> None:
    """That of its directory, or of a config under a name of its own."""
    result = compute(ModelFiles(path=path, config=config("llama-3.1-8b")), Arguments(), Device())

    assert result.model.name == name


def test_all_ranks_are_listed() -> None:
    """One entry for each tensor-parallel rank of each stage, replicas left out."""
    ranks = budget(config("llama-3.1-70b"), H100, tp=4, pp=2, dp=2).ranks

    assert [(rank.tp_rank, rank.pp_rank) for rank in ranks] == [(tp, pp) for pp in range(2) for tp in range(4)]


def test_layers_of_one_kind_are_one_group() -> None:
    """Layers with and without experts cache the same."""
    groups = budget(config("deepseek-v3")).model.layers

    assert groups == (LayerGroup(kind="mla", count=61, kv_heads=1, k_dim=576, v_dim=0),)


def test_it_fits() -> None:
    """Llama-3.1-8B with its full context on an 80 GiB device."""
    result = budget(config("llama-3.1-8b"), H100)

    assert (result.fits, result.unknown) == (True, ())


def test_one_request_of_full_length_must_fit_the_pool() -> None:
    """On 22 GiB the pool holds about 4 GiB; 131,072 tokens need 16."""
    result = budget(config("llama-3.1-8b"), A10)

    assert result.fits is False
    assert (
        "one request of 131,072 tokens needs 16.00 GiB of KV, the pool holds 4.06 GiB: the engine will not start"
        in (result.warnings)
    )


def test_weights_must_fit() -> None:
    """A negative rest is an empty pool; that the least of the rest exceeds the device is said."""
    result = budget(config("llama-3.1-70b"), H100)

    rank = result.ranks[0]
    assert (result.fits, rank.kv.blocks, rank.kv.pool_bytes) == (False, 0, 0)
    assert (rank.headroom_bytes or 0) < 0
    assert any(text.startswith("weights, pool and the least runtime need 13") for text in result.warnings)


@pytest.mark.parametrize("tp", [3, 64])
def test_what_the_engine_refuses_does_not_fit(tp: int) -> None:
    """32 attention heads over 3 or 64 ranks: vLLM would not start."""
    assert budget(config("llama-3.1-8b"), H100, tp=tp).fits is False


def test_a_pool_that_only_just_fits_is_said() -> None:
    """The pool holds one request if the runtime is as likely, none if it is high."""
    result = budget(config("llama-3.1-8b"), A10, max_model_len=32_000)

    assert result.fits is True
    assert "if the runtime is as high as it may be, not even one request of full length fits" in result.warnings


def test_a_given_pool_needs_no_device() -> None:
    """KV bytes given: blocks are known and it fits or not, without a device."""
    result = budget(config("llama-3.1-8b"), kv_pool_bytes=20 * GIB)

    assert (result.fits, result.ranks[0].kv.blocks, result.ranks[0].headroom_bytes) == (True, 10_240, None)
    assert budget(config("llama-3.1-8b"), kv_pool_bytes=15 * GIB).fits is False


def test_without_a_device_the_slope_is_known() -> None:
    """The pool is not, and that is said."""
    result = budget(config("llama-3.1-8b"))

    rank = result.ranks[0]
    assert (rank.kv.bytes_per_token, rank.kv.request_bytes) == (131_072, 16 * GIB)
    assert (rank.kv.blocks, rank.total_bytes, result.fits) == (None, None, None)
    assert result.unknown == ("size of the KV pool: the device's memory is not known",)


def test_a_device_whose_reserve_is_not_known() -> None:
    """Its NVML total stands for the CUDA total, with a warning."""
    result = budget(config("llama-3.1-8b"), Device(total_bytes=80 * GIB))

    assert result.fits is True
    assert result.warnings[0].startswith("what the driver reserves of the device is not known")


@pytest.mark.parametrize("name", ["llama-3.2-1b", "gemma-3-27b", "deepseek-v3"])
def test_what_an_engine_without_a_planner_may_hold_otherwise(name: str) -> None:
    """Tied embeddings once or twice, parts for vision, layers that predict several tokens."""
    files = ModelFiles(path="m", config=config(name), tensor_bytes=10 * GIB, tensor_source="index")

    (rank,) = compute(files, Arguments(engine="tgi"), Device()).ranks

    assert rank.weights_evidence in ("predicted", None)


@pytest.mark.parametrize(
    ("flags", "dtype", "evidence"),
    [
        ({}, "bfloat16", "computed"),
        ({"dp": 2}, "bfloat16", "computed"),
        ({"tp": 2}, "bfloat16", "predicted"),
        ({"pp": 2}, "bfloat16", "predicted"),
        ({"dp": 2, "ep": True}, "bfloat16", "predicted"),
        ({"quantization": "fp8"}, "bfloat16", "predicted"),
        ({"dtype": "float32"}, "bfloat16", "predicted"),
        ({}, "float32", "predicted"),
    ],
)
def test_an_engine_without_a_planner(flags: dict[str, Any], dtype: str, evidence: str) -> None:
    """Only the weights, and for certain only where one rank holds the checkpoint as it is."""
    files = ModelFiles(
        path="m",
        config=config("llama-3.1-8b") | {"torch_dtype": dtype},
        tensor_bytes=16_060_522_496,
        tensor_source="index",
    )
    budget = compute(files, Arguments(engine="lmdeploy", **flags), Device(total_bytes=80 * GIB))

    assert {rank.weights_evidence for rank in budget.ranks} == {evidence}
    if evidence == "computed":
        assert [rank.weights_bytes for rank in budget.ranks] == [16_060_522_496]
    assert (budget.fits, budget.ranks[0].kv.blocks, budget.ranks[0].runtime) == (None, None, None)
    assert budget.unknown == ("KV pool and runtime: how lmdeploy sizes them is not known here",)


FLAGS = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2, 3, 8, 16]),
        "pp": st.sampled_from([1, 2, 3]),
        "dp": st.sampled_from([1, 2]),
        "block_size": st.sampled_from([16, 64, 256]),
        "max_model_len": st.integers(1, 1 << 20),
        "engine_version": st.sampled_from(["0.9.0", "0.19.1", "0.20.1", "0.33.0"]),
        "enforce_eager": st.booleans(),
        "prefix_caching": st.booleans(),
    }
)
FEW = settings(max_examples=120, deadline=None, derandomize=True)


def _kv_bytes(rank: RankBudget) -> int:
    return rank.kv.request_bytes or 0


@FEW
@given(row=st.sampled_from(ROWS), flags=FLAGS, more=st.integers(0, 1 << 20))
def test_more_tokens_never_need_fewer_bytes(row: dict[str, Any], flags: dict[str, Any], more: int) -> None:
    """A longer request needs at least the bytes of a shorter one, on every rank."""
    shorter = budget(row_config(row), **flags)
    longer = budget(row_config(row), **flags | {"max_model_len": flags["max_model_len"] + more})

    assert all(_kv_bytes(a) <= _kv_bytes(b) for a, b in zip(shorter.ranks, longer.ranks, strict=True))


@FEW
@given(row=st.sampled_from(ROWS), flags=FLAGS)
def test_fewer_bits_never_grow_the_slope(row: dict[str, Any], flags: dict[str, Any]) -> None:
    """From 32 bits to 16 and 8 the slope shrinks, with padding and without, whatever the model keeps."""
    pools = [
        budget(row_config(row), **flags | {"kv_cache_dtype": width}).ranks[0].kv
        for width in ("float32", "bfloat16", "fp8")
    ]

    for slopes in ([kv.bytes_per_token or 0 for kv in pools], [kv.bytes_per_token_logical or 0 for kv in pools]):
        assert slopes == sorted(slopes, reverse=True)


@FEW
@given(row=st.sampled_from(KNOWN), flags=FLAGS)
def test_scales_cost_less_than_what_they_save(row: dict[str, Any], flags: dict[str, Any]) -> None:
    """fp8 with scales lies between bf16 and plain fp8; int4 with scales below fp8 with scales."""
    widths = ("bfloat16", "fp8_per_token_head", "fp8", "int4_per_token_head")
    sixteen, scaled, eight, four = (
        budget(row_config(row), **flags | {"kv_cache_dtype": width}).ranks[0].kv.bytes_per_token or 0
        for width in widths
    )

    assert eight < scaled < sixteen
    assert four < scaled


@FEW
@given(row=st.sampled_from(ROWS), flags=FLAGS)
def test_a_rank_never_needs_more_than_the_whole(row: dict[str, Any], flags: dict[str, Any]) -> None:
    """Weights and KV of each rank are at most those of a single rank."""
    whole = budget(row_config(row), **flags | {"tp": 1, "pp": 1, "dp": 1}).ranks[0]

    for rank in budget(row_config(row), **flags).ranks:
        assert (rank.kv.bytes_per_token or 0) <= (whole.kv.bytes_per_token or 0)
        assert _kv_bytes(rank) <= _kv_bytes(whole)
        assert (rank.weights_bytes or 0) <= (whole.weights_bytes or 0)


@FEW
@given(row=st.sampled_from(KNOWN), flags=FLAGS, gib=st.integers(1, 300))
def test_ranks_add_up(row: dict[str, Any], flags: dict[str, Any], gib: int) -> None:
    """Weights, pool, runtime less activations, and headroom are the device; ranges in order; pools of whole blocks."""
    for rank in budget(row_config(row), Device(total_bytes=gib * GIB, cuda_bytes=gib * GIB), **flags).ranks:
        kv, runtime = rank.kv, rank.runtime
        assert runtime is not None
        assert None not in (kv.blocks, kv.bytes_per_block, kv.pool_bytes, rank.weights_bytes, rank.headroom_bytes)
        assert (kv.blocks or 0) * (kv.bytes_per_block or 0) == kv.pool_bytes
        parts = (rank.weights_bytes or 0) + (kv.pool_bytes or 0) + runtime.likely
        assert parts + (rank.headroom_bytes or 0) - runtime.activations.likely == gib * GIB
        assert all(0 <= part.low <= part.likely <= part.high for part in runtime.parts)


KEYS = sorted({key for row in ROWS for key in row_config(row)})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 40) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=5,
)


def _outcome(content: dict[str, Any], flags: dict[str, Any]) -> Budget | None:
    try:
        return budget(content, H100, **flags)
    except ModelConfigError:
        return None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    row=st.sampled_from(ROWS),
    changes=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3),
    tp=st.sampled_from([1, 8]),
    dropped=st.sets(st.sampled_from(KEYS), max_size=3),
)
def test_any_config_ends_in_a_budget_or_a_sentence(
    row: dict[str, Any], changes: dict[str, Any], tp: int, dropped: set[str]
) -> None:
    """A budget, an unknown with its reason, or one sentence; and it can be written as JSON."""
    content = {key: value for key, value in (row_config(row) | changes).items() if key not in dropped}

    result = _outcome(content, {"tp": tp})

    if result is not None:
        msgspec.json.encode(result)
        assert (result.fits is None) <= bool(result.unknown)  # a refused server never fits, whatever is not known
        assert not (result.fits and result.unknown)
