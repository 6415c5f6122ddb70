"""GGUF files small enough for a real llama.cpp on CPU: ``python -m tests.engines.tiny_ggufs DIRECTORY``.

All tensors are float32 and zero: these models are loaded and their caches measured, nothing is generated with them.
``config`` says the same in a Hugging Face config's words.
"""

import sys
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.collectors.gguf_files import Value, write_gguf

VOCABULARY = 259

Shapes = dict[str, tuple[int, ...]]

_HIDDEN, _INNER, _HEADS, _KV_HEADS, _HEAD_DIM, _CONTEXT = 256, 256, 8, 2, 32, 8192
_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": _HIDDEN,
    "intermediate_size": _INNER,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _KV_HEADS,
    "max_position_embeddings": _CONTEXT,
    "tie_word_embeddings": False,
    "dtype": "float32",
}


class TinyGguf(Struct, frozen=True, kw_only=True):
    """An architecture, its metadata (keys without ``<architecture>.``) and its tensors, rows last."""

    architecture: str
    metadata: dict[str, Value]
    tensors: Shapes
    config: dict[str, Any]

    def write(self, path: Path) -> Path:
        """Write the file and return its path."""
        own = {f"{self.architecture}.{key}": value for key, value in self.metadata.items()}
        tensors = {name: ("F32", shape) for name, shape in self.tensors.items()}
        write_gguf(path, {"general.architecture": self.architecture, **own, **_tokenizer()}, tensors)
        return path


def llama(layers: int = 4, context: int = _CONTEXT) -> TinyGguf:
    """Grouped-query attention: 2 KV heads x 32 in each layer."""
    config = {"model_type": "llama", "num_hidden_layers": layers, "head_dim": _HEAD_DIM}
    return TinyGguf(
        architecture="llama",
        metadata=_attention(layers) | {"context_length": context},
        tensors=_decoder(layers, _heads()),
        config=_COMMON | config | {"max_position_embeddings": context},
    )


def gemma3(layers: int = 7, window: int = 512) -> TinyGguf:
    """Every sixth layer sees all, the others a window; 2 KV heads x 32."""
    norms = dict.fromkeys(("attn_q_norm", "attn_k_norm"), (_HEAD_DIM,))
    norms |= dict.fromkeys(("post_attention_norm", "post_ffw_norm"), (_HIDDEN,))
    return TinyGguf(
        architecture="gemma3",
        metadata=_attention(layers) | {"attention.sliding_window": window},
        tensors=_decoder(layers, _heads() | norms),
        config=_COMMON
        | {
            "model_type": "gemma3_text",
            "num_hidden_layers": layers,
            "head_dim": _HEAD_DIM,
            "sliding_window": window,
            "sliding_window_pattern": 6,
        },
    )


def deepseek2(layers: int = 3, latent: int = 512, rope: int = 64) -> TinyGguf:
    """Latent attention: one vector of 512 + 64 elements."""
    query, nope, value = 64, 64, 64
    shapes: Shapes = {
        "attn_q_a": (_HIDDEN, query),
        "attn_q_a_norm": (query,),
        "attn_q_b": (query, _HEADS * (nope + rope)),
        "attn_kv_a_mqa": (_HIDDEN, latent + rope),
        "attn_kv_a_norm": (latent,),
        "attn_k_b": (nope, latent, _HEADS),
        "attn_v_b": (latent, value, _HEADS),
        "attn_output": (_HEADS * value, _HIDDEN),
    }
    metadata = _attention(layers, kv_heads=1) | {
        "attention.key_length": latent + rope,
        "attention.value_length": latent,
        "attention.key_length_mla": nope + rope,
        "attention.value_length_mla": value,
        "attention.q_lora_rank": query,
        "attention.kv_lora_rank": latent,
        "rope.dimension_count": rope,
        "leading_dense_block_count": layers,
        "expert_feed_forward_length": 64,
        "expert_count": 4,
        "expert_used_count": 2,
        "expert_shared_count": 1,
        "expert_weights_scale": 1.0,
        "expert_weights_norm": True,
        "expert_gating_func": 2,
    }
    config = {
        "model_type": "deepseek_v2",
        "num_hidden_layers": layers,
        "num_key_value_heads": _HEADS,
        "q_lora_rank": query,
        "kv_lora_rank": latent,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": value,
        "first_k_dense_replace": layers,
        "moe_intermediate_size": 64,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
    }
    return TinyGguf(
        architecture="deepseek2", metadata=metadata, tensors=_decoder(layers, shapes), config=_COMMON | config
    )


def deepseek32(layers: int = 3, width: int = 128) -> TinyGguf:
    """Latent attention with an indexer, whose keys have 128 elements."""
    dense, heads, query = deepseek2(layers), 4, 64
    indexer: Shapes = {
        "indexer.k_norm": (width,),
        "indexer.proj": (_HIDDEN, heads),
        "indexer.attn_k": (_HIDDEN, width),
        "indexer.attn_q_b": (query, heads * width),
    }
    tensors = dense.tensors
    for index in range(layers):
        tensors = tensors | _numbered(index, indexer)
    names = {"head_count": heads, "key_length": width, "top_k": 64}
    config = {"model_type": "deepseek_v32", "index_n_heads": heads, "index_head_dim": width, "index_topk": 64}
    return TinyGguf(
        architecture="deepseek32",
        metadata=dense.metadata | {f"attention.indexer.{name}": value for name, value in names.items()},
        tensors=tensors,
        config=dense.config | config,
    )


def jamba(layers: int = 4, inner: int = 512, state: int = 16, kernel: int = 4) -> TinyGguf:
    """Mamba and attention in turn: every second layer has 2 KV heads x 32."""
    attention = [index % 2 == 1 for index in range(layers)]
    tensors = _blocks(0, {})
    norms: Shapes = {"attn_norm": (_HIDDEN,), "ffn_norm": (_HIDDEN,)}
    for index, has in enumerate(attention):
        extra: Shapes = {f"ssm_{part}_norm": (size,) for part, size in (("dt", 16), ("b", state), ("c", state))}
        layer = norms | _mlp() | (_heads() if has else _mamba_layer(inner, state, kernel) | extra)
        tensors |= _numbered(index, layer)
    metadata = _attention(layers) | _ssm(inner, state, kernel)
    metadata["attention.head_count_kv"] = tuple(2 if has else 0 for has in attention)
    config = {
        "model_type": "jamba",
        "num_hidden_layers": layers,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 1,
        "num_experts_per_tok": 1,
        "mamba_d_state": state,
        "mamba_d_conv": kernel,
        "mamba_expand": inner // _HIDDEN,
        "mamba_dt_rank": 16,
    }
    return TinyGguf(architecture="jamba", metadata=metadata, tensors=tensors, config=_COMMON | config)


def _attention(layers: int, kv_heads: int = _KV_HEADS) -> dict[str, Value]:
    return {
        "block_count": layers,
        "context_length": _CONTEXT,
        "embedding_length": _HIDDEN,
        "feed_forward_length": _INNER,
        "attention.head_count": _HEADS,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": _HEAD_DIM,
        "attention.value_length": _HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": _HEAD_DIM,
    }


def _ssm(inner: int, state: int, kernel: int) -> dict[str, Value]:
    return {"ssm.conv_kernel": kernel, "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": 16}


def _decoder(layers: int, attention: Shapes) -> Shapes:
    return _blocks(layers, {"attn_norm": (_HIDDEN,), "ffn_norm": (_HIDDEN,)} | attention | _mlp())


def _blocks(layers: int, layer: Shapes) -> Shapes:
    shapes: Shapes = {
        "token_embd.weight": (_HIDDEN, VOCABULARY),
        "output_norm.weight": (_HIDDEN,),
        "output.weight": (_HIDDEN, VOCABULARY),
    }
    for index in range(layers):
        shapes |= _numbered(index, layer)
    return shapes


def _numbered(index: int, layer: Shapes) -> Shapes:
    bare = ("ssm_a", "ssm_d")  # these have no ".weight"
    biased = {
        "ssm_conv1d": 1,
        "ssm_dt": 1,
        "indexer.k_norm": 0,
    }  # these have a bias as long as their dimension of that number
    shapes: Shapes = {}
    for name, shape in layer.items():
        shapes[f"blk.{index}.{name}" + ("" if name in bare else ".weight")] = shape
        if name in biased:
            shapes[f"blk.{index}.{name}.bias"] = (shape[biased[name]],)
    return shapes


def _heads() -> Shapes:
    return {
        "attn_q": (_HIDDEN, _HEADS * _HEAD_DIM),
        "attn_k": (_HIDDEN, _KV_HEADS * _HEAD_DIM),
        "attn_v": (_HIDDEN, _KV_HEADS * _HEAD_DIM),
        "attn_output": (_HEADS * _HEAD_DIM, _HIDDEN),
    }


def _mlp() -> Shapes:
    return {"ffn_gate": (_HIDDEN, _INNER), "ffn_down": (_INNER, _HIDDEN), "ffn_up": (_HIDDEN, _INNER)}


def _mamba_layer(inner: int, state: int, kernel: int) -> Shapes:
    rank = 16
    return {
        "ssm_in": (_HIDDEN, 2 * inner),
        "ssm_conv1d": (kernel, inner),
        "ssm_x": (inner, rank + 2 * state),
        "ssm_dt": (rank, inner),
        "ssm_a": (state, inner),
        "ssm_d": (inner,),
        "ssm_out": (inner, _HIDDEN),
    }


def _tokenizer() -> dict[str, Value]:
    """SentencePiece's form: three special tokens and one for each byte."""
    pieces = ("<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)))
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": (0.0,) * len(pieces),
        "tokenizer.ggml.token_type": (2, 3, 3, *(6,) * 256),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


MODELS = {"llama": llama, "gemma3": gemma3, "deepseek2": deepseek2, "deepseek32": deepseek32, "jamba": jamba}


def main(arguments: list[str]) -> int:
    for name, make in MODELS.items():
        print(make().write(Path(arguments[0]) / f"tiny-{name}.gguf"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
