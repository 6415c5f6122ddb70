"""TensorRT-LLM: bytes of a token and a block by hand, weights by the files of an engine, and what stays unknown.

Qwen2.5-0.5B: 24 layers of 2 KV heads of 64, so a token takes 24 x 2 x 2 x 64 = 6,144 elements.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from agent.memory.arguments import Arguments
from agent.memory.budget import Budget, Device, compute
from collectors.model_files import read_model
from collectors.readings import ModelFiles
from tests.collectors.tensorrt_llm.engines import engine_folder

ELEMENTS = 24 * 2 * 2 * 64
LLAMA = ModelFiles(
    path="/m",
    config={
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    },
)


def budget(model: ModelFiles, **arguments: Any) -> Budget:
    return compute(model, Arguments(**{"engine": "tensorrt_llm", **arguments}), Device())


@pytest.mark.parametrize(
    ("algorithm", "token"), [(None, ELEMENTS * 2), ("FP8", ELEMENTS), ("INT8", ELEMENTS), ("NVFP4", ELEMENTS * 9 // 16)]
)
def test_an_engine(tmp_path: Path, algorithm: str | None, token: int) -> None:
    """Its tokens in the format it was built for, 64 in a block, 512 blocks a request; its file is its weights."""
    found = budget(read_model(engine_folder(tmp_path, 5000, changes={"kv_cache_quant_algo": algorithm})))

    (rank,) = found.ranks
    assert (rank.weights_bytes, rank.weights_evidence) == (5000, "computed")
    assert (rank.kv.bytes_per_token, rank.kv.bytes_per_block, rank.kv.request_bytes) == (
        token,
        token * 64,
        token * 32768,
    )
    assert (rank.kv.pool_bytes, rank.total_bytes, found.fits) == (None, None, None)
    assert found.unknown == ("size of the KV pool: a share of what is free after a trial run",)


def test_an_engine_of_several_ranks(tmp_path: Path) -> None:
    """Each stage the larger of its files, each rank one of two heads of 12 of the layers."""
    found = budget(read_model(engine_folder(tmp_path, 10, 20, 30, 40, tp=2, pp=2)))

    assert [(rank.pp_rank, rank.tp_rank, rank.weights_bytes) for rank in found.ranks] == [
        (0, 0, 20),
        (0, 1, 20),
        (1, 0, 40),
        (1, 1, 40),
    ]
    assert {rank.kv.bytes_per_token for rank in found.ranks} == {ELEMENTS * 2 // 2 // 2}


def test_more_ranks_than_heads_replicate_them(tmp_path: Path) -> None:
    """Four ranks of two heads keep one each; three can't share two."""
    found = budget(read_model(engine_folder(tmp_path, 1, 1, 1, 1, tp=4)))
    assert found.ranks[0].kv.bytes_per_token == ELEMENTS

    found = budget(read_model(engine_folder(tmp_path, 1, 1, 1, tp=3)))
    assert found.ranks[0].kv.bytes_per_token is None
    assert any("do not spread evenly" in text for text in found.unknown)


def test_what_an_engine_was_built_for_is_not_given_otherwise(tmp_path: Path) -> None:
    """A shorter limit is; it belongs to no other engine."""
    model = read_model(engine_folder(tmp_path, 5000))

    assert budget(model, max_model_len=1000).ranks[0].kv.request_bytes == 16 * 64 * ELEMENTS * 2
    for wrong, text in (
        ({"tp": 2}, "argument 'tp': the engine was built for 1, got 2"),
        ({"kv_cache_dtype": "fp8"}, "built for bfloat16, got fp8"),
        ({"max_model_len": 40000}, "built for 32768, got 40000"),
        ({"engine": "vllm"}, "give --engine tensorrt_llm"),
        ({"engine": "tgi"}, "give --engine tensorrt_llm"),
    ):
        with pytest.raises(ValueError, match=re.escape(text)):
            budget(model, **wrong)
    assert budget(model, tp=1, kv_cache_dtype="auto").ranks[0].kv.bytes_per_token == ELEMENTS * 2


def test_an_engine_whose_files_or_caches_are_not_known(tmp_path: Path) -> None:
    """Each for itself."""
    found = budget(read_model(engine_folder(tmp_path)))
    assert (found.ranks[0].weights_bytes, found.ranks[0].kv.bytes_per_token) == (None, ELEMENTS * 2)
    assert "weights: the files of the engine do not tell them" in found.unknown

    found = budget(read_model(engine_folder(tmp_path, 7, changes={"architecture": "MambaForCausalLM"})))
    assert (found.ranks[0].weights_bytes, found.ranks[0].kv.bytes_per_token) == (7, None)


def test_a_checkpoint_on_one_rank() -> None:
    """Its format has to be given, for a file of options may say otherwise; the block's size only the engine says."""
    known = budget(LLAMA, kv_cache_dtype="fp8").ranks[0].kv
    assert (known.bytes_per_token, known.bytes_per_block) == (32 * 2 * 8 * 128, None)
    assert budget(LLAMA, kv_cache_dtype="fp8", block_size=32).ranks[0].kv.bytes_per_block == 32 * 32 * 2 * 8 * 128

    for arguments in ({}, {"kv_cache_dtype": "auto"}, {"kv_cache_dtype": "fp8", "tp": 2}):
        found = budget(LLAMA, **arguments)
        assert found.ranks[0].kv.bytes_per_token is None
        assert any(text.startswith("KV: ") for text in found.unknown)


def test_caches_that_tensorrt_llm_may_keep_otherwise() -> None:
    """Windows have pools of their own there."""
    config = {**LLAMA.config, "model_type": "mistral", "sliding_window": 4096}

    found = budget(ModelFiles(path="/m", config=config), kv_cache_dtype="fp8")

    assert found.ranks[0].kv.bytes_per_token is None
