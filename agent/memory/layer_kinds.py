"""The matrices of layers that are built in ways of their own, one function for each kind.

Source: huggingface/transformers 5.19 models, whose parameters they are checked against; Kimi-K3 and DeepSeek V4.1:
vLLM 0.32 models/kimi_k3 and models/deepseek_v41.
"""

from collections.abc import Callable

from msgspec.structs import replace

from agent.memory.around import encoder_attention
from agent.memory.compressed import engram, hashed, hyper_connections, own_history, record_attention, shared_history
from agent.memory.families.family import Family
from agent.memory.families.local import own_heads, searched_part, searched_width
from agent.memory.families.patterns import FULL
from agent.memory.feed_forward import mlp
from agent.memory.fields import Fields
from agent.memory.layer_matrices import Part, decoder_layer, dense, mixer, mixture
from agent.memory.layers import Heads, Latent, Layer
from agent.memory.matrices import Matrix, vector
from agent.memory.mixers import attention, output_gate


def _block(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """Nemotron-H: each layer is a mixer, an MLP or experts, with a norm."""
    yield vector("norms", fields.size("hidden_size"))
    if layer.experts:
        yield from _latent_mixture(fields, family)
    elif layer.caches:
        yield from mixer(fields, family, layer)
    else:
        yield from dense(fields, family)


def _compressed_layer(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """DeepSeek V4."""
    yield vector("norms", 2 * fields.size("hidden_size"))
    yield from record_attention(fields)
    yield from own_history(fields, layer)
    yield from hyper_connections(fields)
    yield from mixture(fields, family)
    yield from hashed(fields, index)


def _searched(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """Layers found by search: an MLP of its own width or none, and attention or none, each with a norm."""
    hidden = fields.size("hidden_size")
    parts = [tuple(mixer(fields, family, layer))]
    if searched_part(fields, index, "ffn").flag("replace_with_linear"):
        parts.append((Matrix(name="mlp.linear", rows=hidden, columns=hidden),))
    elif width := searched_width(fields, index):
        parts.append(tuple(mlp("mlp", hidden, width)))
    for part in filter(None, parts):
        yield vector("norms", hidden)
        yield from part


def _two_widths(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """MiMo-V2: sliding layers have heads of their own, and their attention has sinks."""
    cache = layer.caches[0]
    sliding = isinstance(cache, Heads) and cache.reach == "window"
    own = fields.over({"num_attention_heads": fields.values.get("swa_num_attention_heads")}) if sliding else fields
    heads = own if own.values.get("num_attention_heads") else fields
    flagged = fields.flag("add_swa_attention_sink_bias" if sliding else "add_full_attention_sink_bias")
    yield from decoder_layer(heads, replace(family, sinks=flagged), layer, index)


def _latent_mixture(fields: Fields, family: Family) -> Part:
    """Nemotron 3: experts may work on states compressed to ``moe_latent_size``."""
    hidden, latent = fields.size("hidden_size"), fields.optional_size("moe_latent_size")
    yield from mixture(fields, family, width_of_states=latent)
    if latent:
        yield Matrix(name="mlp.fc1_latent_proj", rows=latent, columns=hidden)
        yield Matrix(name="mlp.fc2_latent_proj", rows=hidden, columns=latent)


def _shared_compressed(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """DeepSeek V4.1: histories that others read, a bias of the router for images, and n-grams in some layers."""
    yield vector("norms", 2 * fields.size("hidden_size"))
    yield from record_attention(fields)
    yield from shared_history(fields, layer, index)
    yield from hyper_connections(fields)
    yield from mixture(fields, family)
    yield from hashed(fields, index)
    if fields.part("vision_config").values:
        yield vector("mlp.gate.bias_vl", fields.size("num_experts"), stored="fp32")
    if index in (fields.entries("engram_layer_ids") or ()):
        yield from engram(fields)


def _kimi(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """Kimi: K3 gates the output of latent attention, compresses what experts see and attends to earlier blocks."""
    hidden, compressed = fields.size("hidden_size"), fields.optional_size("routed_expert_hidden_size")
    yield vector("norms", 2 * hidden)
    yield from mixer(fields, family, layer)
    if fields.flag("mla_use_output_gate") and any(isinstance(cache, Latent) for cache in layer.caches):
        yield output_gate(hidden, fields.size("num_attention_heads"), fields.size("v_head_dim"))
    if not layer.experts:
        yield from dense(fields, family)
    else:
        yield from mixture(fields, family, width_of_states=compressed)
        if compressed:
            yield Matrix(name="mlp.routed_expert_projs", rows=hidden, columns=compressed, count=2, stored="plain")
            yield vector("mlp.routed_expert_norm", compressed if fields.flag("latent_moe_use_norm") else 0)
    if fields.optional_size("attn_res_block_size"):
        yield vector("res_norms_and_projs", 4 * hidden)


def _gemma3n(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """Gemma 3n: an MLP of its own width, a low-rank path beside attention, and several streams of hidden states."""
    hidden, streams = fields.size("hidden_size"), fields.size("altup_num_inputs")
    rank = fields.size("laurel_rank")
    widths = fields.entries("intermediate_sizes", fields.size("num_hidden_layers"))
    yield vector("norms", 4 * hidden)
    yield from _sharing_attention(fields, own_heads(fields, index), shares=not layer.caches)
    yield Matrix(name="laurel", rows=rank, columns=hidden, count=2)
    yield vector("laurel.norm", hidden)
    yield Matrix(name="altup.coefficients", rows=streams, columns=streams * (streams + 1), stored="plain")
    yield Matrix(name="altup.modality_router", rows=streams, columns=hidden, stored="plain")
    yield vector("altup.scale_and_norm", 2 * hidden)
    yield from _layer_input(fields)
    yield from mlp("mlp", hidden, widths[index] if widths else fields.size("intermediate_size"))


def _gemma4(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """Gemma 4: global layers may take K for V (vLLM then keeps K twice); experts stand beside an MLP, not for it."""
    hidden, own = fields.size("hidden_size"), own_heads(fields, index)
    shares, experts = not layer.caches, fields.flag("enable_moe_block")
    yield vector("norms", (7 if experts else 4) * hidden)
    yield vector("layer_scalar", 1)
    same = fields.flag("attention_k_eq_v") and fields.values["own_types"][index] == FULL
    yield from _sharing_attention(fields, own, shares=shares, same=same)
    yield from _layer_input(fields)
    wide = 2 if shares and fields.flag("use_double_wide_mlp") else 1
    yield from mlp("mlp", hidden, wide * fields.size("intermediate_size"))
    if experts:
        yield from mixture(fields, family)
        yield vector("mlp.router.scales", hidden + fields.size("num_experts"))


def _sharing_attention(fields: Fields, cache: Heads, *, shares: bool, same: bool = False) -> Part:
    """Q and O alone where K and V are another layer's; Q and K have norms."""
    left_out = ["self_attn.v_proj"] * (shares or same) + ["self_attn.k_proj"] * shares
    for matrix in attention(
        fields.size("hidden_size"),
        fields.size("num_attention_heads"),
        cache,
        qkv_bias=fields.flag("attention_bias"),
        out_bias=fields.flag("attention_bias"),
    ):
        if matrix.name.removesuffix(".bias") not in left_out:
            yield matrix
    yield vector("self_attn.qk_norm", cache.k_dim * (1 if shares else 2))


def _layer_input(fields: Fields) -> Part:
    """What a layer takes of its own part of the second embedding."""
    hidden, part = fields.size("hidden_size"), fields.optional_size("hidden_size_per_layer_input", least=0)
    if part:
        yield Matrix(name="per_layer_projections", rows=part, columns=hidden, count=2, stored="plain")
        yield vector("post_per_layer_input_norm", hidden)


def _step(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """Step: sliding layers may have heads of their own, and each head a gate."""
    other = fields.part("attention_other_setting").values
    cache = layer.caches[0]
    sliding = isinstance(cache, Heads) and cache.reach == "window"
    own = fields.over(other) if sliding and other.get("attention_type") == "sliding_attention" else fields
    yield from decoder_layer(own, family, layer, index)
    if fields.flag("use_head_wise_attn_gate", default=True):
        yield output_gate(fields.size("hidden_size"), own.size("num_attention_heads"), 1)


def _mllama(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """Mllama: cross-attention norms Q and K, and is gated like the MLP behind it."""
    crosses = layer.kind == "cross"
    yield from decoder_layer(fields, replace(family, qk_norm="head") if crosses else family, layer, index)
    if crosses:
        yield vector("cross_attn_gates", 2)


def _whisper(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """Whisper: attention to itself and to the encoder, and an MLP, each with a norm that has a bias."""
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    yield vector("norms", 6 * hidden)
    yield from encoder_attention(hidden, heads)
    yield from encoder_attention(hidden, heads)
    yield from mlp("mlp", hidden, fields.size("intermediate_size"), matrices=2, bias=True)


KINDS: dict[str, Callable[[Fields, Family, Layer, int], Part]] = {
    "decoder": decoder_layer,
    "blocks": _block,
    "compressed": _compressed_layer,
    "nas": _searched,
    "mimo": _two_widths,
    "shared_compressed": _shared_compressed,
    "kimi": _kimi,
    "gemma3n": _gemma3n,
    "gemma4": _gemma4,
    "step": _step,
    "mllama": _mllama,
    "whisper": _whisper,
}
