"""The matrices of a decoder, from its config, as checkpoints name and shape them.

With H hidden, dk and dv head widths: attention H(nh dk) + H nkv(dk + dv) + nh dv H, with Q twice as wide where a gate
is in it; MLA, its indexer, recurrences and compressors have modules of their own; a gated MLP is 3 H I, an expert
likewise, a router E H. A family whose matrices are not all known has no blueprint, and its weights no count.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.compressed import compressed_attention, hashed, hyper_connections, last_connection
from agent.memory.families.family import Family
from agent.memory.families.local import searched_part, searched_width
from agent.memory.feed_forward import mlp, router, shared_gate
from agent.memory.fields import Fields
from agent.memory.layers import Heads, IndexKeys, Latent, Layer, State
from agent.memory.matrices import Matrix, Stored, vector
from agent.memory.mixers import attention, gated_delta_net, indexer, latent_attention, mamba1, mamba2

Part = Iterator[Matrix]


class Blueprint(Struct, frozen=True, kw_only=True):
    """All matrices of a model without its vision or audio parts. ``tied``: the embedding serves as the head.

    ``mtp``: those of its multi-token-prediction layers, which share embedding and head with the model.
    """

    layers: tuple[tuple[Matrix, ...], ...]
    embedding: Matrix
    last: tuple[Matrix, ...]  # norm, and what else is between the layers and the head
    tied: bool
    mtp: tuple[Matrix, ...] = ()

    @property
    def parameters(self) -> int:
        """Multi-token-prediction layers left out."""
        kinds = {layer: _elements(layer) for layer in set(self.layers)}
        tables = self.embedding.elements * (1 if self.tied else 2)
        return sum(kinds[layer] for layer in self.layers) + tables + _elements(self.last)


def blueprint(fields: Fields, family: Family, layers: Sequence[Layer], mtp: Sequence[Layer] = ()) -> Blueprint | None:
    """What a model is built of; None where a family's matrices are not all known.

    Raises:
        ModelConfigError: a width is missing or absurd.
    """
    if not family.counted:
        return None
    matrices = KINDS[family.matrices or "decoder"]
    built: dict[tuple[Layer, int], tuple[Matrix, ...]] = {}
    for index, layer in enumerate(layers):
        own = index if family.matrices else 0
        if (layer, own) not in built:
            built[layer, own] = tuple(matrices(fields, family, layer, index))
    norm = vector("norm", fields.size("hidden_size") * family.final_norms)
    return Blueprint(
        layers=tuple(built[layer, index if family.matrices else 0] for index, layer in enumerate(layers)),
        embedding=Matrix(
            name="embed_tokens",
            rows=fields.size("vocab_size"),
            columns=fields.size("hidden_size"),
            split="rows",
            stored="plain",
        ),
        last=(norm, last_connection(fields)) if family.matrices == "compressed" else (norm,),
        tied=fields.flag("tie_word_embeddings", default=family.tied),
        mtp=tuple(matrix for layer in mtp for matrix in _prediction(fields, family, layer, len(layers))),
    )


def _prediction(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """A layer whose input is projected from the last hidden state and the next token's embedding, each with a norm.

    The projection stays in 16 bit, but for DeepSeek V4.
    """
    hidden = fields.size("hidden_size")
    stored: Stored = "weights" if family.matrices == "compressed" else "plain"
    yield Matrix(name="eh_proj", rows=hidden, columns=2 * hidden, stored=stored)
    yield vector("mtp.norms", 3 * hidden)
    yield from KINDS[family.matrices or "decoder"](fields, family, layer, index)


def _decoder_layer(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    norms = fields.size("norms") if "norms" in fields.values else family.norms
    yield vector("norms", fields.size("hidden_size") * norms)
    yield from _mixer(fields, family, layer)
    yield from _mixture(fields, family) if layer.experts else _dense(fields, family)


def _block(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """Nemotron-H: each layer is a mixer, an MLP or experts, with a norm."""
    yield vector("norms", fields.size("hidden_size"))
    if layer.experts:
        yield from _latent_mixture(fields, family)
    elif layer.caches:
        yield from _mixer(fields, family, layer)
    else:
        yield from _dense(fields, family)


def _compressed_layer(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """DeepSeek V4."""
    yield vector("norms", 2 * fields.size("hidden_size"))
    yield from compressed_attention(fields, layer)
    yield from hyper_connections(fields)
    yield from _mixture(fields, family)
    yield from hashed(fields, index)


def _searched(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """Layers found by search: an MLP of its own width or none, and attention or none, each with a norm."""
    hidden = fields.size("hidden_size")
    own = searched_part(fields, index, "ffn")
    factor = own.values.get("ffn_mult")
    parts = [tuple(_mixer(fields, family, layer))]
    if own.flag("replace_with_linear"):
        parts.append((Matrix(name="mlp.linear", rows=hidden, columns=hidden),))
    elif isinstance(factor, int | float) and not own.flag("no_op"):
        parts.append(tuple(mlp("mlp", hidden, searched_width(hidden, factor))))
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
    yield from _decoder_layer(heads, replace(family, sinks=flagged), layer, index)


KINDS: dict[str, Callable[[Fields, Family, Layer, int], Part]] = {
    "decoder": _decoder_layer,
    "blocks": _block,
    "compressed": _compressed_layer,
    "nas": _searched,
    "mimo": _two_widths,
}


def _mixer(fields: Fields, family: Family, layer: Layer) -> Part:
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    match layer.caches:
        case (Heads() as cache, *_):
            switch = family.qk_norm_key
            yield from attention(
                hidden,
                heads,
                cache,
                gated=family.gated,
                qkv_bias=fields.switched(family.qkv_bias),
                out_bias=fields.switched(family.out_bias),
                norm=family.qk_norm if switch is None or fields.flag(switch) else None,
                sinks=family.sinks,
            )
        case (Latent() as cache, *keys):
            q_rank = fields.optional_size("q_lora_rank")
            nope, v = fields.size("qk_nope_head_dim"), fields.size("v_head_dim")
            yield from latent_attention(hidden, heads, cache, q_rank=q_rank, nope=nope, v=v)
            for key in keys:
                if isinstance(key, IndexKeys):
                    yield from indexer(hidden, q_rank or hidden, fields.size("index_n_heads"), key)
        case (State() as state,):
            yield from _recurrence(fields, state)


def _recurrence(fields: Fields, state: State) -> Part:
    hidden = fields.size("hidden_size")
    if state.kind == "gated_delta_net":
        yield from gated_delta_net(
            hidden,
            state,
            key_heads=fields.size("linear_num_key_heads"),
            key=fields.size("linear_key_head_dim"),
            value=fields.size("linear_value_head_dim"),
        )
    elif state.kind == "mamba1":
        yield from mamba1(hidden, state, dt_rank=fields.optional_size("mamba_dt_rank") or -(-hidden // 16), norms=True)
    elif state.kind == "mamba2":
        yield from mamba2(hidden, state)


def _dense(fields: Fields, family: Family) -> Part:
    yield from mlp(
        "mlp",
        fields.size("hidden_size"),
        fields.size("intermediate_size"),
        matrices=family.mlp_matrices,
        bias=fields.switched(family.mlp_bias),
    )


def _mixture(fields: Fields, family: Family, *, width_of_states: int | None = None) -> Part:
    """A router, its experts on states of a width of their own where that is given, and what every token passes."""
    hidden, count = fields.size("hidden_size"), fields.size("num_experts")
    width = fields.size(family.expert_width)
    biased = bool(family.router_bias) and all(
        fields.values.get(key) == value for key, value in family.router_bias.items()
    )
    yield from router(hidden, count, bias=biased)
    yield from mlp(
        "mlp.experts",
        width_of_states or hidden,
        width,
        matrices=family.mlp_matrices,
        bias=family.expert_bias,
        count=count,
        over="experts",
    )
    shared = fields.optional_size("shared_experts", least=0) or 0
    shared_width = fields.optional_size("shared_expert_intermediate_size", least=0) or shared * width
    if shared_width:
        yield from mlp("mlp.shared_experts", hidden, shared_width, matrices=family.mlp_matrices)
        if family.shared_gate:
            yield shared_gate(hidden)


def _latent_mixture(fields: Fields, family: Family) -> Part:
    """Nemotron 3: experts may work on states compressed to ``moe_latent_size``."""
    hidden, latent = fields.size("hidden_size"), fields.optional_size("moe_latent_size")
    yield from _mixture(fields, family, width_of_states=latent)
    if latent:
        yield Matrix(name="mlp.fc1_latent_proj", rows=latent, columns=hidden)
        yield Matrix(name="mlp.fc2_latent_proj", rows=hidden, columns=latent)


def _elements(matrices: Sequence[Matrix]) -> int:
    return sum(matrix.elements for matrix in matrices)
