"""The matrices of a model before its layers and after them, besides embedding, head and the last norm.

Source: huggingface/transformers 5.19 models gemma3n, gemma4, mllama and whisper; vLLM 0.32 models/kimi_k3.
"""

from collections.abc import Callable, Iterator

from agent.memory.compressed import last_connection
from agent.memory.feed_forward import mlp
from agent.memory.fields import Fields
from agent.memory.layers import Heads
from agent.memory.matrices import Matrix, vector
from agent.memory.mixers import attention

_IMAGE_TOKENS = 8  # rows of Mllama's embedding beyond its vocabulary


def encoder_attention(hidden: int, heads: int) -> Iterator[Matrix]:
    """Whisper's: biases everywhere but in K."""
    cache = Heads(heads=heads, k_dim=hidden // heads, v_dim=hidden // heads)
    for matrix in attention(hidden, heads, cache, qkv_bias=True, out_bias=True):
        if matrix.name != "self_attn.k_proj.bias":
            yield matrix


def layer_inputs(fields: Fields) -> Iterator[Matrix]:
    """Gemma: a second embedding with a part for each layer, and the projection of the first to the same."""
    hidden, part = fields.size("hidden_size"), fields.optional_size("hidden_size_per_layer_input", least=0)
    if part:
        width, rows = fields.size("num_hidden_layers") * part, fields.size("vocab_size_per_layer_input")
        yield Matrix(name="embed_tokens_per_layer", rows=rows, columns=width, split="rows", stored="plain")
        yield Matrix(name="per_layer_model_projection", rows=width, columns=hidden, split="rows", stored="plain")
        yield vector("per_layer_projection_norm", part)


def _streams(fields: Fields) -> Iterator[Matrix]:
    """Gemma 3n: besides, what makes several streams of the embedding and one of them again."""
    hidden, others = fields.size("hidden_size"), fields.size("altup_num_inputs") - 1
    yield from layer_inputs(fields)
    for name in ("altup_projections", "altup_unembed_projections"):
        yield Matrix(name=name, rows=hidden, columns=hidden, count=others, split="rows", stored="plain")


def _image_tokens(fields: Fields) -> Iterator[Matrix]:
    yield Matrix(name="embed_tokens.image", rows=_IMAGE_TOKENS, columns=fields.size("hidden_size"), stored="plain")


def _whisper(fields: Fields) -> Iterator[Matrix]:
    """The whole encoder, and the positions of encoder and decoder; convolutions see 3 frames, norms have biases."""
    hidden, heads = fields.size("hidden_size"), fields.size("encoder_attention_heads")
    positions = fields.size("max_source_positions") + fields.size("max_position_embeddings")
    frames = 3 * (fields.size("num_mel_bins") + hidden)
    yield Matrix(name="embed_positions", rows=positions, columns=hidden, stored="plain")
    yield Matrix(name="encoder.conv", rows=hidden, columns=frames, stored="plain")
    yield vector("encoder.conv.bias_and_norm", 4 * hidden)
    for _ in range(fields.size("encoder_layers", most=1000)):
        yield vector("encoder.norms", 4 * hidden)
        yield from encoder_attention(hidden, heads)
        yield from mlp("encoder.mlp", hidden, fields.size("encoder_ffn_dim"), matrices=2, bias=True)


def _residuals(fields: Fields) -> Iterator[Matrix]:
    """Kimi-K3: what the output takes of earlier blocks of layers."""
    if fields.optional_size("attn_res_block_size"):
        yield vector("output_attn_res", 2 * fields.size("hidden_size"))


FIRST: dict[str, Callable[[Fields], Iterator[Matrix]]] = {
    "gemma3n": _streams,
    "gemma4": layer_inputs,
    "mllama": _image_tokens,
    "whisper": _whisper,
}
"""By the kind of a family's layers: what is loaded beside the embedding."""

LAST: dict[str, Callable[[Fields], Iterator[Matrix]]] = {
    "compressed": lambda fields: iter((last_connection(fields),)),
    "kimi": _residuals,
}
"""What comes beside the last norm."""
