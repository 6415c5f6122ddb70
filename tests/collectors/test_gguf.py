"""GGUF headers: right, split, cut off, damaged and hostile."""

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from agent.memory.model_config import parse_model
from collectors.errors import CollectorError
from collectors.gguf import TYPES, read_header
from collectors.model_files import read_model
from tests.collectors.gguf_files import Shapes, Value, header_of, write_gguf

LLAMA: dict[str, Value] = {
    "general.architecture": "llama",
    "general.alignment": 32,
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.key_length": 32,
    "llama.context_length": 4096,
    "llama.rope.dimension_count": 32,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.tokens": ["<s>", "</s>", "a", "b"],
    "tokenizer.ggml.scores": [0, 1, 2, 3],
    "tokenizer.ggml.add_bos_token": True,
}
TENSORS: Shapes = {
    "token_embd.weight": ("Q4_0", (64, 4)),  # 4 rows of 2 blocks of 18 B
    "blk.0.attn_q.weight": ("Q4_0", (64, 128)),
    "blk.0.attn_norm.weight": ("F32", (64,)),
    "blk.1.attn_q.weight": ("Q8_0", (64, 128)),
    "output_norm.weight": ("F32", (64,)),
    "output.weight": ("F16", (64, 4)),
}


def fault(path: Path) -> CollectorError:
    with pytest.raises(CollectorError) as caught:
        read_model(path)
    assert "\n" not in str(caught.value)
    return caught.value


def write_head(path: Path, head: bytes) -> Path:
    path.write_bytes(head)
    return path


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        # weights and scales of one block by its elements; the published bits per weight
        ("Q8_0", 8.5),
        ("Q6_K", 6.5625),
        ("Q5_K", 5.5),
        ("Q5_0", 5.5),
        ("Q5_1", 6),
        ("Q4_K", 4.5),
        ("Q4_0", 4.5),
        ("Q4_1", 5),
        ("IQ4_NL", 4.5),
        ("IQ4_XS", 4.25),
        ("Q3_K", 3.4375),
        ("IQ3_S", 3.4375),
        ("IQ3_XXS", 3.0625),
        ("Q2_K", 2.625),
        ("IQ2_S", 2.5625),
        ("IQ2_XS", 2.3125),
        ("IQ2_XXS", 2.0625),
        ("IQ1_M", 1.75),
        ("IQ1_S", 1.5625),
        ("TQ2_0", 2.0625),
        ("TQ1_0", 1.6875),
        ("MXFP4", 4.25),
        ("NVFP4", 4.5),
        ("Q1_0", 1.125),
        ("BF16", 16),
        ("F32", 32),
    ],
)
def test_bits_of_each_type(name: str, bits: float) -> None:
    """Whole blocks, scales included."""
    block, size = next((block, size) for kind, block, size in TYPES.values() if kind == name)

    assert size * 8 / block == bits


def test_a_model_in_one_file(tmp_path: Path) -> None:
    """Bytes per layer, module and type from the table alone; the metadata under a config's names."""
    path = tmp_path / "tiny.gguf"
    write_gguf(path, LLAMA, TENSORS)

    model = read_model(path)

    assert (model.tensor_bytes, model.tensor_source) == (144 + 4608 + 256 + 8704 + 256 + 512, "headers")
    assert model.layer_bytes == (4608 + 256, 8704)
    assert model.other_bytes == {"token_embd": 144, "output_norm": 256, "output": 512}
    assert model.bytes_by_dtype == {"Q4_0": 4752, "F32": 512, "Q8_0": 8704, "F16": 512}
    assert (model.path, model.config_path, model.notes) == (str(path), str(path), ())
    shape = parse_model(model.config)
    assert (shape.model_type, len(shape.layers), shape.max_positions) == ("llama", 2, 4096)
    assert shape.decoder is not None
    assert shape.blueprint is not None
    assert (shape.decoder.vocabulary, shape.decoder.head_dim, shape.blueprint.tied) == (4, 32, False)


def test_a_model_in_parts(tmp_path: Path) -> None:
    """Named by any part, or by a directory that holds no other; the first has the metadata."""
    first, second = (tmp_path / f"m-{number:05}-of-00002.gguf" for number in (1, 2))
    write_gguf(first, LLAMA, {name: TENSORS[name] for name in list(TENSORS)[:2]})
    write_gguf(second, {"split.no": 1}, {name: TENSORS[name] for name in list(TENSORS)[2:]})
    (tmp_path / "mmproj-m.gguf").write_bytes(b"a vision tower of its own")

    for path in (first, second, tmp_path):
        model = read_model(path)
        assert model.tensor_bytes == 14480
        assert model.config["model_type"] == "llama"

    second.unlink()
    assert read_model(first).notes == (f"1 of 2 parts are not in {tmp_path}, so tensor bytes are not known",)
    assert read_model(first).tensor_bytes is None


def test_parts_that_are_not_there(tmp_path: Path) -> None:
    """Without the first nothing is known; a name may not count absurdly; two models need a choice."""
    lone = tmp_path / "m-00002-of-00002.gguf"
    write_gguf(lone, {}, TENSORS)
    absurd = tmp_path / "m-00002-of-99999.gguf"
    absurd.write_bytes(b"")

    assert str(fault(lone)) == (
        f"{tmp_path}/m-00001-of-00002.gguf: no such file; the first part has the model's metadata"
    )
    assert str(fault(absurd)) == f"{absurd}: expected part 1 to 4096 at most, got 2 of 99999"
    absurd.unlink()
    write_gguf(tmp_path / "other.gguf", LLAMA, TENSORS)
    assert str(fault(tmp_path)) == (
        f"{tmp_path}: 2 GGUF models; name one of them, such as m-00001-of-00002.gguf, other.gguf"
    )


@pytest.mark.parametrize(
    ("metadata", "tensors", "expected"),
    [
        (
            {"general.architecture": "llama", "llama.expert_count": 8, "llama.expert_used_count": 2},
            ["output.weight"],
            {"model_type": "mixtral", "num_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": False},
        ),
        (
            {"general.architecture": "qwen2", "qwen2.block_count": 3},
            ["blk.0.attn_q.bias", "token_embd.weight"],
            {"model_type": "qwen2", "num_hidden_layers": 3, "attention_bias": True, "tie_word_embeddings": True},
        ),
        (  # key lengths of one head beside those of the compressed vector
            {
                "general.architecture": "deepseek2",
                "deepseek2.attention.head_count_kv": 1,
                "deepseek2.attention.kv_lora_rank": 512,
                "deepseek2.attention.q_lora_rank": 1536,
                "deepseek2.attention.key_length": 576,
                "deepseek2.attention.value_length": 512,
                "deepseek2.attention.key_length_mla": 192,
                "deepseek2.attention.value_length_mla": 128,
                "deepseek2.rope.dimension_count": 64,
            },
            ["blk.3.exp_probs_b.bias"],
            {
                "model_type": "deepseek_v3",
                "kv_lora_rank": 512,
                "q_lora_rank": 1536,
                "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64,
                "v_head_dim": 128,
                "topk_method": "noaux_tc",
            },
        ),
        (  # older files: of a head alone
            {
                "general.architecture": "deepseek2",
                "deepseek2.attention.kv_lora_rank": 512,
                "deepseek2.attention.key_length": 192,
                "deepseek2.attention.value_length": 128,
                "deepseek2.rope.dimension_count": 64,
            },
            [],
            {"model_type": "deepseek_v2", "qk_nope_head_dim": 128, "v_head_dim": 128},
        ),
        (  # layers for multi-token prediction are counted on
            {"general.architecture": "glm4moe", "glm4moe.block_count": 47, "glm4moe.nextn_predict_layers": 1},
            ["blk.0.attn_q_norm.weight"],
            {"model_type": "glm4_moe", "num_hidden_layers": 46, "num_nextn_predict_layers": 1, "use_qk_norm": True},
        ),
        (
            {"general.architecture": "gemma3", "gemma3.attention.sliding_window": 1024},
            [],
            {"model_type": "gemma3_text", "sliding_window": 1024},
        ),
        (
            {
                "general.architecture": "qwen3next",
                "qwen3next.ssm.conv_kernel": 4,
                "qwen3next.ssm.state_size": 128,
                "qwen3next.ssm.group_count": 16,
                "qwen3next.ssm.time_step_rank": 32,
                "qwen3next.ssm.inner_size": 4096,
            },
            [],
            {
                "model_type": "qwen3_next",
                "linear_conv_kernel_dim": 4,
                "linear_key_head_dim": 128,
                "linear_num_key_heads": 16,
                "linear_num_value_heads": 32,
                "linear_value_head_dim": 128,
            },
        ),
        ({"general.architecture": "rwkv7"}, [], {"model_type": "gguf/rwkv7"}),
        (  # layers that differ
            {"general.architecture": "llama", "llama.attention.head_count_kv": [8, 8, 1]},
            [],
            {"model_type": "gguf/llama"},
        ),
        (  # a list of one value for all
            {"general.architecture": "llama", "llama.attention.head_count_kv": [8, 8, 8]},
            [],
            {"model_type": "llama", "num_key_value_heads": 8},
        ),
        ({}, [], {"model_type": "gguf/"}),
    ],
    ids=[
        "mixtral",
        "qwen2",
        "deepseek-v3",
        "deepseek-v2",
        "glm4-moe",
        "gemma3",
        "qwen3-next",
        "foreign",
        "uneven",
        "even",
        "nameless",
    ],
)
def test_metadata_under_a_configs_names(
    tmp_path: Path, metadata: dict[str, Value], tensors: list[str], expected: dict[str, Any]
) -> None:
    """Where the mapping is sure; else a type that nobody knows."""
    path = tmp_path / "m.gguf"
    write_gguf(path, metadata, dict.fromkeys(tensors, ("F32", (1,))))

    config = read_model(path).config

    assert {name: config.get(name) for name in expected} == expected


def test_a_vocabulary_is_counted_and_not_kept(tmp_path: Path) -> None:
    """A list of texts has a length, and so has a list longer than any model has layers."""
    path = tmp_path / "m.gguf"
    write_gguf(path, {"a": ["x"] * 300, "b": [1] * 20_000, "c": [True, False], "d": "y" * 70_000}, {})

    header = read_header(path)

    assert header.values == {"c": [True, False]}
    assert header.lengths == {"a": 300, "b": 20_000, "c": 2}


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    """Anywhere: in the counts, the metadata, the table or the data."""
    path = tmp_path / "m.gguf"
    write_gguf(path, LLAMA, TENSORS)
    size = path.stat().st_size
    header = len(header_of(LLAMA, TENSORS))

    os.truncate(path, size - 1)
    assert str(fault(path)) == f"{path}: cut off: expected {size} bytes, got {size - 1}; download it again"
    for length in (header, header - 1, header // 2, 30, 12, 6):
        os.truncate(path, length)
        assert fault(path).reason == "truncated"


BASE = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1)
KEY = struct.pack("<Q1s", 1, b"k")


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"", "expected a file that begins with GGUF, got b''"),
        (b"PK\x03\x04" + bytes(60), "expected a file that begins with GGUF, got b'PK"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a git-lfs pointer instead of the weights; run git lfs pull"),
        (struct.pack("<4sIQQ", b"GGUF", 1, 0, 0), "expected GGUF version 2 or 3, got 1; convert it"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "got 50331648 (big-endian); convert it"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 1 << 40, 0), "expected at most 1000000 tensors and 65536 entries"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, (1 << 64) - 1), "expected at most 1000000 tensors and 65536 entries"),
        (BASE + struct.pack("<Q", (1 << 64) - 1), "cut off: expected"),
        (BASE + KEY + struct.pack("<I", 13), "expected a type of value from 0 to 12 for key 'k', got 13"),
        (BASE + KEY + struct.pack("<IIQ", 9, 9, 1), "expected a type of value from 0 to 12 for key 'k', got 9"),
        (BASE + KEY + struct.pack("<IIQ", 9, 8, 1 << 60), "cut off: expected"),
        (BASE + KEY + struct.pack("<IIQ", 9, 4, (1 << 64) - 1), "cut off: expected"),
        (
            struct.pack("<4sIQQ", b"GGUF", 3, 0, 2) + (KEY + struct.pack("<II", 4, 1)) * 2,
            "expected key 'k' once in the metadata",
        ),
        (
            struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + struct.pack("<Q17sII", 17, b"general.alignment", 4, 0),
            "expected a multiple of 8 as general.alignment, got '0'",
        ),
        (struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + KEY + struct.pack("<I", 5), "at most 4 dimensions of a tensor"),
        (
            struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + KEY + struct.pack("<IQIQ", 1, 32, 99, 0),
            "tensor 'k' has type 99, which is not known here; update",
        ),
        (
            struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + KEY + struct.pack("<IQIQ", 1, 33, 2, 0),
            "expected rows of a multiple of 32 elements in Q4_0 tensor 'k'",
        ),
        (
            struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + KEY + struct.pack("<IQQIQ", 2, 1 << 63, 1 << 63, 0, 0),
            "cut off: expected",
        ),
    ],
)
def test_a_header_that_cannot_be_used(tmp_path: Path, head: bytes, message: str) -> None:
    """Counts and lengths are claims: one sentence, at once, whatever they say."""
    path = write_head(tmp_path / "m.gguf", head)

    error = str(fault(path))

    assert error.startswith(f"{path}: ")
    assert message in error


def test_tensors_that_lie_upon_each_other(tmp_path: Path) -> None:
    """Offsets inside the file, and more bytes than it has."""
    table = b"".join(struct.pack("<Q1s", 1, name) + struct.pack("<IQIQ", 1, 64, 0, 0) for name in (b"a", b"b"))
    path = write_head(tmp_path / "m.gguf", struct.pack("<4sIQQ", b"GGUF", 3, 2, 0) + table)
    os.truncate(path, -(-path.stat().st_size // 32) * 32 + 256)

    assert "expected tensors that fit into 256 bytes, got 512" in str(fault(path))


def test_a_header_longer_than_the_limit(tmp_path: Path) -> None:
    """A file may be large, its header not."""
    path = tmp_path / "m.gguf"
    write_gguf(path, {"a": ["x" * 100] * 100}, {})

    with pytest.raises(CollectorError, match="expected a header of at most 1000 bytes, got more"):
        read_header(path, max_bytes=1000)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Opening it would block until somebody writes."""
    path = tmp_path / "m.gguf"
    os.mkfifo(path)

    assert str(fault(path)) == f"{path}: expected a regular file"
