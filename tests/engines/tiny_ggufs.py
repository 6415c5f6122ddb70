"""GGUF files small enough for a real llama.cpp on CPU, written here byte by byte: ``python -m tests.engines.tiny_ggufs D``.

A GGUF (version 3) is counts, typed metadata, tensor infos and the data, each tensor on a multiple of 32 bytes. All
tensors are float32 and zero: these models are loaded and their caches measured, nothing is generated with them.
"""

import math
import struct
import sys
from pathlib import Path

from msgspec import Struct

VOCABULARY = 259
ALIGNMENT = 32

Value = int | float | str | bool | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
Shapes = dict[str, tuple[int, ...]]

_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_F32_TENSOR = 0
_HIDDEN, _INNER, _HEADS, _HEAD_DIM, _CONTEXT = 256, 256, 8, 32, 8192


class TinyGguf(Struct, frozen=True, kw_only=True):
    """An architecture, its metadata (keys without ``<architecture>.``) and its tensors, rows last."""

    architecture: str
    metadata: dict[str, Value]
    tensors: Shapes

    def write(self, path: Path) -> Path:
        """Write the file and return its path."""
        own = {f"{self.architecture}.{key}": value for key, value in self.metadata.items()}
        path.write_bytes(gguf({"general.architecture": self.architecture, **own, **_tokenizer()}, self.tensors))
        return path


def gguf(metadata: dict[str, Value], tensors: Shapes) -> bytes:
    """A whole file."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    head += b"".join(_text(key) + _typed(value) for key, value in metadata.items())
    offset = 0
    for name, shape in tensors.items():
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, _F32_TENSOR, offset)
        offset += _padded(4 * math.prod(shape))
    return head + bytes(_padded(len(head)) - len(head)) + bytes(offset)


def llama(layers: int = 4) -> TinyGguf:
    """Grouped-query attention: 2 KV heads x 32 in each layer."""
    return TinyGguf(architecture="llama", metadata=_attention(layers), tensors=_decoder(layers, _heads(2)))


def gemma3(layers: int = 7, window: int = 512) -> TinyGguf:
    """Every sixth layer sees all, the others a window; 2 KV heads x 32."""
    norms = {name: (_HEAD_DIM,) for name in ("attn_q_norm", "attn_k_norm")}
    norms |= {name: (_HIDDEN,) for name in ("post_attention_norm", "post_ffw_norm")}
    return TinyGguf(
        architecture="gemma3",
        metadata=_attention(layers) | {"attention.sliding_window": window},
        tensors=_decoder(layers, _heads(2) | norms),
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
    return TinyGguf(architecture="deepseek2", metadata=metadata, tensors=_decoder(layers, shapes))


def mamba(layers: int = 3, inner: int = 512, state: int = 16, kernel: int = 4) -> TinyGguf:
    """No attention: a recurrent state of each sequence."""
    layer: Shapes = {"attn_norm": (_HIDDEN,)} | _mamba_layer(inner, state, kernel)
    metadata: dict[str, Value] = {
        "block_count": layers,
        "context_length": _CONTEXT,
        "embedding_length": _HIDDEN,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.layer_norm_rms_epsilon": 1e-5,
        **_ssm(inner, state, kernel),
    }
    return TinyGguf(architecture="mamba", metadata=metadata, tensors=_blocks(layers, layer))


def jamba(layers: int = 4, inner: int = 512, state: int = 16, kernel: int = 4) -> TinyGguf:
    """Mamba and attention in turn: the second half of the layers has 2 KV heads x 32."""
    attention = [index >= layers // 2 for index in range(layers)]
    tensors = _blocks(0, {})
    norms: Shapes = {"attn_norm": (_HIDDEN,), "ffn_norm": (_HIDDEN,)}
    for index, has in enumerate(attention):
        extra: Shapes = {f"ssm_{part}_norm": (size,) for part, size in (("dt", 16), ("b", state), ("c", state))}
        layer = norms | _mlp() | (_heads(2) if has else _mamba_layer(inner, state, kernel) | extra)
        tensors |= _numbered(index, layer)
    metadata = _attention(layers) | _ssm(inner, state, kernel)
    metadata["attention.head_count_kv"] = tuple(2 if has else 0 for has in attention)
    return TinyGguf(architecture="jamba", metadata=metadata, tensors=tensors)


def _attention(layers: int, kv_heads: int = 2) -> dict[str, Value]:
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
    biased = {"ssm_conv1d": 1, "ssm_dt": 1}  # these have a bias as long as their dimension of that number
    shapes: Shapes = {}
    for name, shape in layer.items():
        shapes[f"blk.{index}.{name}" + ("" if name in bare else ".weight")] = shape
        if name in biased:
            shapes[f"blk.{index}.{name}.bias"] = (shape[biased[name]],)
    return shapes


def _heads(kv_heads: int) -> Shapes:
    return {
        "attn_q": (_HIDDEN, _HEADS * _HEAD_DIM),
        "attn_k": (_HIDDEN, kv_heads * _HEAD_DIM),
        "attn_v": (_HIDDEN, kv_heads * _HEAD_DIM),
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


def _typed(value: Value) -> bytes:
    if isinstance(value, tuple):
        items = [_typed(item) for item in value]
        kind = _INT32 if isinstance(value[0], int) else struct.unpack_from("<I", items[0])[0]
        return struct.pack("<IIQ", _ARRAY, kind, len(items)) + b"".join(item[4:] for item in items)
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", _FLOAT32, value)
    return struct.pack("<I", _STRING) + _text(value)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


MODELS = {"llama": llama, "gemma3": gemma3, "deepseek2": deepseek2, "mamba": mamba, "jamba": jamba}


def main(arguments: list[str]) -> int:
    for name, make in MODELS.items():
        print(make().write(Path(arguments[0]) / f"tiny-{name}.gguf"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
