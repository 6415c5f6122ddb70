"""Slots for LoRA adapters: bytes that a real vLLM 0.32 allocated, and by hand where it was not run."""

from typing import Any

import pytest

from agent.memory.arguments import Arguments, from_flags
from agent.memory.budget import Budget, Device, compute
from collectors.readings import ModelFiles
from tests.agent.memory.models import config

H100 = Device(name="NVIDIA H100 80GB HBM3", total_bytes=85_520_809_984, cuda_bytes=85_018_542_080)
TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
# Of one slot and rank 1: Q 64 + 128, K and V 64 + 64 each, O 128 + 64, gate and up 64 + 128 each, down 128 + 64.
LAYER = 192 + 2 * 128 + 192 + 2 * 192 + 192
TABLE = 512 + 64


def budget(content: dict[str, Any], device: Device = H100, **flags: Any) -> Budget:
    files = ModelFiles(path="/m", config=content, tensor_bytes=1 << 20, tensor_source="index")
    return compute(files, from_flags(flags, engine="vllm"), device)


def slots(content: dict[str, Any], **flags: Any) -> list[int | None]:
    """By rank."""
    return [rank.lora_bytes for rank in budget(content, **flags).ranks]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 458_752),
        ({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "tie_word_embeddings": True}, 458_752),
        ({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "head_dim": None}, 262_144),
        ({"architectures": ["MistralForCausalLM"], "model_type": "mistral"}, 311_296),
    ],
)
def test_a_real_engine_allocated_as_much(changes: dict[str, Any], expected: int) -> None:
    """Four slots of rank 16 in bfloat16, all A and B tensors of vLLM 0.32 on CPU summed."""
    content = {key: value for key, value in {**TINY, **changes}.items() if value is not None}

    assert slots(content, max_loras=4, max_lora_rank=16) == [expected]
    if not changes:
        assert expected == 4 * 16 * 2 * (2 * LAYER + 2 * TABLE)


def test_llama_8b_over_two_ranks() -> None:
    """A of Q, K, V, gate and up whole, their B halved; A of O and down halved, their B whole; tables never split."""
    h, m, v = 4096, 14_336, 128_256
    layer = (h + h // 2) + 2 * (h + 512) + (h // 2 + h) + 2 * (h + m // 2) + (m // 2 + h)
    expected = 8 * 32 * 2 * (32 * layer + 2 * (v + h)) + 8 * v  # and the map of the vocabulary

    assert slots(config("llama-3.1-8b"), tp=2, max_loras=8, max_lora_rank=32) == [expected] * 2


def test_fully_sharded_each_rank_has_less() -> None:
    """The ranks of A and the outputs of B are split over tensor ranks as well."""
    h, m, v = 4096, 14_336, 128_256
    rows = [(h // 2, h), (512, h), (512, h), (m // 2, h), (m // 2, h)]  # outputs of a rank, inputs
    columns = [(h, h // 2), (h, m // 2)]  # outputs, inputs of a rank
    layer = sum(16 * inputs + 32 * outputs for outputs, inputs in rows)
    layer += sum(32 * inputs + 32 * outputs // 2 for outputs, inputs in columns)
    expected = 8 * 2 * (32 * layer + 2 * 32 * (v + h)) + 8 * v

    assert (
        slots(config("llama-3.1-8b"), tp=2, max_loras=8, max_lora_rank=32, fully_sharded_loras=True) == [expected] * 2
    )


def test_stages_hold_the_tables_that_they_have() -> None:
    """The embedding's slots lie on the first, those of the head on the last."""
    sizes = slots(TINY, pp=2, max_loras=1, max_lora_rank=8)

    assert sizes == [8 * 2 * (LAYER + TABLE)] * 2


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, 0),
        ({"enable_lora": True}, 16 * 2 * (2 * LAYER + 2 * TABLE)),
        ({"enable_lora": False, "max_loras": 4}, 0),
        ({"max_loras": 2, "lora_dtype": "float32"}, 2 * 16 * 4 * (2 * LAYER + 2 * TABLE)),
    ],
)
def test_defaults(flags: dict[str, Any], expected: int) -> None:
    """One slot of rank 16 in the model's dtype, and none without LoRA."""
    assert slots(TINY, **flags) == [expected]


def test_the_pool_is_less_by_the_slots() -> None:
    """They count as the model does, within the engine's share of the device."""
    without, with_ = budget(config("llama-3.1-8b")), budget(config("llama-3.1-8b"), max_loras=8, max_lora_rank=64)
    (rank,), (more,) = without.ranks, with_.ranks

    assert rank.kv.pool_bytes is not None
    assert more.kv.pool_bytes is not None
    assert more.lora_bytes is not None
    block = more.kv.bytes_per_block or 0  # which are whole
    assert abs(rank.kv.pool_bytes - more.kv.pool_bytes - more.lora_bytes) < block
    assert more.weights_bytes == rank.weights_bytes
    term = next(term for term in with_.terms if term.name == "lora")
    assert (term.value, term.formula[:21]) == (more.lora_bytes, "8 slots of rank 64: r")


def test_where_the_modules_are_not_known_nothing_is_guessed() -> None:
    """Experts, latent attention: neither slots nor the size of the pool are known, and it is said."""
    found = budget(config("deepseek-v3"), max_loras=2)

    assert {rank.lora_bytes for rank in found.ranks} == {None}
    assert {rank.kv.pool_bytes for rank in found.ranks} == {None}
    assert any(text.startswith("LoRA:") for text in found.unknown)
    assert any("the bytes of adapters are not known" in text for text in found.unknown)


def test_a_vocabulary_that_is_refused() -> None:
    """vLLM takes no adapters of a head with more than 258,048 tokens."""
    assert budget({**TINY, "vocab_size": 262_144}, max_loras=1).refused == (
        "vLLM refuses LoRA with a vocabulary of 262,144, above 258,048",
    )


def test_weights_in_part_on_the_host_are_not_claimed() -> None:
    """Which tensors stay on the host is the engine's to say: the weights on the device are not known, nor the pool."""
    (rank,) = (found := budget(TINY, cpu_offload_gb=4)).ranks

    assert (rank.weights_bytes, rank.kv.pool_bytes) == (None, None)
    assert any("4 GiB of a rank's are kept in host memory" in text for text in found.unknown)
    assert (
        compute(ModelFiles(path="/m", config=TINY, tensor_bytes=1 << 20), Arguments(cpu_offload_gb=0.0), H100)
        .ranks[0]
        .weights_bytes
        == 1 << 20
    )
