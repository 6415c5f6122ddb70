"""Model directories: no config leads anywhere but to a budget or a reason, no weight file to more than a refusal."""

import json
import tempfile
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from agent.memory.arguments import Arguments
from agent.memory.budget import Device, compute
from agent.memory.planners.registry import PLANNERS
from collectors.errors import CollectorError
from collectors.model_files import read_model
from collectors.readings import ModelFiles
from collectors.safetensors import Tensor, read_header
from tests.collectors import gguf_files
from tests.collectors.replay import FIXTURES
from tests.fuzz.mutations import damaged_bytes, damaged_json, json_values
from tests.fuzz.trying import outcome, tried

CONFIGS = [json.loads(path.read_text("utf-8")) for path in sorted((FIXTURES / "models" / "configs").glob("**/*.json"))]
H100 = Device(name="NVIDIA H100 80GB HBM3", total_bytes=85_520_809_984, cuda_bytes=85_018_542_080)
arguments = st.builds(
    Arguments,
    engine=st.sampled_from(tuple(PLANNERS)),
    tp=st.sampled_from((None, 1, 2, 8, 7)),
    pp=st.sampled_from((None, 1, 2, 5)),
    dp=st.sampled_from((None, 1, 4)),
    kv_cache_dtype=st.sampled_from((None, "auto", "fp8", "fp8_ds_mla", "nvfp4_ds_mla", "q8_0", "nonsense")),
    max_model_len=st.sampled_from((None, 1, 4096, 1 << 31)),
    gpu_memory_utilization=st.sampled_from((None, 0.01, 0.9, 1.0)),
    num_gpu_blocks=st.sampled_from((None, 1, 1 << 40)),
    quantization=st.sampled_from((None, "fp8", "awq")),
    engine_version=st.sampled_from((None, "0.6.6", "0.33.0", "nonsense")),
)
HEADER = {
    "__metadata__": {"format": "pt"},
    "model.embed_tokens.weight": {"dtype": "BF16", "shape": [8, 4], "data_offsets": [0, 64]},
    "model.layers.0.mlp.up_proj.weight": {"dtype": "F8_E4M3", "shape": [4, 4], "data_offsets": [64, 80]},
}
DATA = b"\0" * 80


def weight_file(header: bytes, length: int | None = None, data: bytes = DATA) -> bytes:
    """A safetensors file; ``length`` is what it claims of its header."""
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


RIGHT = weight_file(json.dumps(HEADER).encode())


@tried(
    damaged_json(CONFIGS) | st.dictionaries(st.text(max_size=8), json_values, max_size=4),
    arguments,
    briefly=60,
    at_length=100_000,
)
def test_any_config_has_a_budget_or_a_reason(config: dict[str, object], given: Arguments) -> None:
    """The numbers of a budget are never below zero, and no absurd size keeps the agent busy."""
    assume(isinstance(config, dict))
    budget, reason = outcome(lambda: compute(ModelFiles(path="/models/m", config=config), given, H100), ValueError)

    assert "\n" not in reason
    for rank in budget.ranks if budget else ():
        assert (rank.weights_bytes or 0) >= 0
        assert (rank.kv.bytes_per_token or 0) >= 0
        assert (rank.kv.bytes_per_block or 0) >= 0


@st.composite
def one_number_wrong(draw: st.DrawFn) -> dict[str, object]:
    """A true config in which one number, at any depth, is what none can be."""
    config = draw(st.sampled_from(CONFIGS))
    place = draw(st.sampled_from(list(_numbers(config))))
    wrong = draw(st.sampled_from((0, -1, False, True, 1e-9, 0.5, 2**31 - 1, "x", [], {})))
    return _with(config, place, wrong)  # type: ignore[no-any-return] # a place within an object gives an object


def _numbers(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where numbers are; of a list its first and last entry."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, (*place, key))
    elif isinstance(value, list) and value:
        for index in {0, len(value) - 1}:
            yield from _numbers(value[index], (*place, index))
    elif isinstance(value, int | float):
        yield place


def _with(value: Any, place: tuple[Any, ...], new: object) -> Any:
    if not place:
        return new
    changed = copy(value)
    changed[place[0]] = _with(value[place[0]], place[1:], new)
    return changed


@tried(one_number_wrong(), arguments, briefly=150, at_length=50_000)
def test_one_number_that_can_not_be(config: dict[str, object], given: Arguments) -> None:
    """It ends in one sentence, or in a budget where the number does not count."""
    _, reason = outcome(lambda: compute(ModelFiles(path="/models/m", config=config), given, H100), ValueError)

    assert "\n" not in reason


def header_of(path: Path, content: bytes) -> list[Tensor]:
    path.write_bytes(content)
    return list(read_header(path))


@tried(
    damaged_bytes([RIGHT])
    | damaged_json([HEADER]).map(lambda header: weight_file(json.dumps(header).encode("utf-8", "replace")))
    | st.builds(weight_file, st.binary(max_size=64), st.sampled_from((None, 0, 1, 1 << 40, (1 << 64) - 1))),
    briefly=80,
)
def test_any_weight_file_is_tensors_that_fit_into_it_or_a_refusal(content: bytes) -> None:
    """Lengths and offsets are claims: they are checked before they are used."""
    with tempfile.TemporaryDirectory() as folder:
        tensors, refusal = outcome(lambda: header_of(Path(folder) / "model.safetensors", content), CollectorError)

    assert "\n" not in refusal
    assert sum(tensor.bytes for tensor in tensors or ()) <= len(content)
    assert all(tensor.bytes >= 0 for tensor in tensors or ())


GGUF: dict[str, gguf_files.Value] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": [1, 1],
    "llama.rope.freq_base": 1e4,
    "tokenizer.ggml.tokens": ["a", "b"],
}
GGUF_FILES = [
    gguf_files.header_of(GGUF, {"token_embd.weight": ("Q8_0", (64, 2)), "blk.0.attn_q.weight": ("F32", (64,))})
    + bytes(512),
    gguf_files.header_of({"general.architecture": "deepseek2", "deepseek2.attention.kv_lora_rank": 8}, {}),
]


@tried(damaged_bytes(GGUF_FILES) | st.binary(max_size=64).map(lambda rest: GGUF_FILES[0][:24] + rest), briefly=80)
def test_any_gguf_file_is_a_model_or_a_refusal(content: bytes) -> None:
    """Its tensors fit into it, and its metadata is a config with a budget or a reason."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "m.gguf").write_bytes(content)
        model, refusal = outcome(lambda: read_model(Path(folder) / "m.gguf"), CollectorError)

    assert "\n" not in refusal
    assert model is None or (model.tensor_bytes or 0) <= len(content)
    if model is not None:
        outcome(lambda: compute(model, Arguments(), H100), ValueError)


@tried(
    damaged_bytes([json.dumps(CONFIGS[0]).encode()]) | st.binary(max_size=100),
    damaged_json([{"metadata": {"total_size": 80}, "weight_map": {"a": "model.safetensors", "b": "../../etc/passwd"}}]),
    damaged_bytes([RIGHT]) | st.just(RIGHT),
    briefly=40,
    at_length=2000,
)
def test_any_model_directory_is_a_model_or_a_refusal(config: bytes, index: object, weights: bytes) -> None:
    """Config, index and weight file, each damaged in its own way."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_bytes(config)
        (Path(folder) / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
        (Path(folder) / "model.safetensors").write_bytes(weights)
        model, refusal = outcome(lambda: read_model(Path(folder)), CollectorError)

    assert "\n" not in refusal
    assert model is None or (model.tensor_bytes or 0) >= 0
