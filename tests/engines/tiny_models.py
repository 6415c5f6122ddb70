"""Models small enough for a real engine on CPU, written here byte by byte, so that their tensor bytes are known.

``python -m tests.engines.tiny_models DIRECTORY`` writes them all. No library is needed: safetensors is a length, a JSON
header and the data; the tokenizer is a byte-level one without merges.
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

VOCABULARY = 512
BF16_BYTES = 2
_SPECIAL_TOKENS = ("<unk>", "<s>", "</s>", "<pad>")
_SMALL = bytes(0x3C if value % 2 else 0xBC for value in range(256))  # high bytes of bf16 numbers of size 0.008 to 0.03
_ONE = b"\x80\x3f"

Shapes = dict[str, tuple[int, ...]]


class TinyModel(Struct, frozen=True, kw_only=True):
    """A model on disk. ``kv_bytes_per_token`` in bf16, by hand from the config; ``tensor_bytes`` of all tensors."""

    path: Path
    tensor_bytes: int
    kv_bytes_per_token: int


_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 3,
    "dtype": "bfloat16",
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-06,
    "max_position_embeddings": 8192,
    "hidden_act": "silu",
    "initializer_range": 0.02,
}

LLAMA: dict[str, Any] = _COMMON | {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rope_theta": 10000.0,
}

MLA: dict[str, Any] = _COMMON | {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 64,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "num_nextn_predict_layers": 0,
    "rope_theta": 10000.0,
}


MLA_YARN = MLA | {  # SGLang on CPU takes no latent attention without a rope that is scaled
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
}

GEMMA3: dict[str, Any] = _COMMON | {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "sliding_window": 512,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}


def make_llama(directory: Path) -> TinyModel:
    """Two layers with grouped-query attention: K and V x 2 layers x 2 heads x 32 x 2 bytes = 512 bytes a token."""
    return _make(directory, LLAMA, _llama_shapes(LLAMA), kv_bytes_per_token=2 * 2 * 2 * 32 * BF16_BYTES)


def make_mla(directory: Path) -> TinyModel:
    """Three layers with DeepSeek's latent attention: 3 layers x (512 + 64) x 2 bytes = 3,456 bytes a token."""
    return _make(directory, MLA, _mla_shapes(MLA), kv_bytes_per_token=3 * (512 + 64) * BF16_BYTES)


def make_mla_yarn(directory: Path) -> TinyModel:
    """The same with a scaled rope."""
    return _make(directory, MLA_YARN, _mla_shapes(MLA_YARN), kv_bytes_per_token=3 * (512 + 64) * BF16_BYTES)


def make_gemma3(directory: Path) -> TinyModel:
    """Five layers with a window and one without: of that one K and V x 2 heads x 32 x 2 bytes = 256 bytes a token."""
    return _make(directory, GEMMA3, _gemma3_shapes(GEMMA3), kv_bytes_per_token=2 * 2 * 32 * BF16_BYTES)


def _make(directory: Path, config: dict[str, Any], shapes: Shapes, *, kv_bytes_per_token: int) -> TinyModel:
    directory.mkdir(parents=True, exist_ok=True)
    _write_json(directory / "config.json", config)
    _write_tokenizer(directory)
    tensor_bytes = _write_safetensors(directory / "model.safetensors", shapes)
    return TinyModel(path=directory, tensor_bytes=tensor_bytes, kv_bytes_per_token=kv_bytes_per_token)


def _llama_shapes(config: dict[str, Any]) -> Shapes:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    q, kv = heads * config["head_dim"], config["num_key_value_heads"] * config["head_dim"]
    attention: Shapes = {
        "q_proj": (q, hidden),
        "k_proj": (kv, hidden),
        "v_proj": (kv, hidden),
        "o_proj": (hidden, q),
    }
    return _decoder_shapes(config, attention)


def _gemma3_shapes(config: dict[str, Any]) -> Shapes:
    """Norms of each head's q and k, and two more of the feed-forward part; the head is the embedding."""
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    shapes = _llama_shapes(config)
    del shapes["lm_head.weight"]
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        shapes |= {f"{layer}.self_attn.{side}_norm.weight": (head_dim,) for side in ("q", "k")}
        shapes |= {f"{layer}.{when}_feedforward_layernorm.weight": (hidden,) for when in ("pre", "post")}
    return shapes


def _mla_shapes(config: dict[str, Any]) -> Shapes:
    hidden, heads, latent = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    attention: Shapes = {
        "q_proj": (heads * (nope + rope), hidden),
        "kv_a_proj_with_mqa": (latent + rope, hidden),
        "kv_a_layernorm": (latent,),
        "kv_b_proj": (heads * (nope + value), latent),
        "o_proj": (hidden, heads * value),
    }
    return _decoder_shapes(config, attention)


def _decoder_shapes(config: dict[str, Any], attention: Shapes) -> Shapes:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    shapes: Shapes = {
        "model.embed_tokens.weight": (VOCABULARY, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (VOCABULARY, hidden),
    }
    layer: Shapes = {f"self_attn.{name}.weight": shape for name, shape in attention.items()} | {
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    for index in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    return shapes


def _write_safetensors(path: Path, shapes: Shapes) -> int:
    """Write bf16 tensors, small random numbers and ones for norms; returns the bytes of all tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + _elements(shape) * BF16_BYTES
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for data in _tensors(shapes):
            file.write(data)
    return end


def _tensors(shapes: Shapes) -> Iterator[bytes]:
    numbers = random.Random(1)
    for shape in shapes.values():
        elements = _elements(shape)
        if len(shape) == 1:
            yield _ONE * elements
            continue
        data = bytearray(numbers.randbytes(elements * BF16_BYTES))
        data[1::2] = bytes(data[1::2]).translate(_SMALL)
        yield bytes(data)


def _elements(shape: tuple[int, ...]) -> int:
    product = 1
    for length in shape:
        product *= length
    return product


def _write_tokenizer(directory: Path) -> None:
    letters = list(_byte_letters().values())
    filler = [f"<extra_{index}>" for index in range(VOCABULARY - len(_SPECIAL_TOKENS) - len(letters))]
    vocabulary = {token: index for index, token in enumerate([*_SPECIAL_TOKENS, *letters, *filler])}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": token} | flags for index, token in enumerate(_SPECIAL_TOKENS)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "unk_token": None, "vocab": vocabulary, "merges": []},
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "model_max_length": _COMMON["max_position_embeddings"],
        "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }
    _write_json(directory / "tokenizer.json", tokenizer)
    _write_json(directory / "tokenizer_config.json", settings)


def _byte_letters() -> dict[int, str]:
    """One printable letter for each byte: its own where Latin-1 prints it, else the next from U+0100 on (as GPT-2)."""
    own = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in own]
    return {byte: chr(byte) if byte in own else chr(256 + others.index(byte)) for byte in range(256)}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    directory = Path(arguments[0])
    for name, make in (("llama", make_llama), ("mla", make_mla), ("gemma3", make_gemma3)):
        model = make(directory / name)
        print(f"{model.path}: {model.tensor_bytes} tensor bytes, {model.kv_bytes_per_token} KV bytes per token")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
