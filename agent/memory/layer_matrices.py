"""The matrices of a decoder layer as most models have it: norms, what mixes tokens, and an MLP or experts."""

from collections.abc import Iterator

from agent.memory.families.family import Family
from agent.memory.feed_forward import mlp, router, shared_gate
from agent.memory.fields import Fields
from agent.memory.layers import Heads, IndexKeys, Latent, Layer, State
from agent.memory.matrices import Matrix, vector
from agent.memory.mixers import (
    attention,
    block_indexer,
    delta_attention,
    gated_delta_net,
    indexer,
    latent_attention,
    lightning_attention,
    mamba1,
    mamba2,
)

Part = Iterator[Matrix]


def decoder_layer(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    norms = fields.size("norms") if "norms" in fields.values else family.norms
    yield vector("norms", fields.size("hidden_size") * norms)
    yield from mixer(fields, family, layer)
    yield from mixture(fields, family) if layer.experts else dense(fields, family)


def mixer(fields: Fields, family: Family, layer: Layer) -> Part:
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    match layer.caches:
        case (Heads() as cache, *keys):
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
            for key in keys:
                if isinstance(key, IndexKeys):
                    own = fields.part("sparse_attention_config").size("sparse_num_index_heads")
                    yield from block_indexer(hidden, own, key)
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
        bias, conv_bias = fields.flag("mamba_proj_bias"), fields.flag("mamba_conv_bias", default=True)
        yield from mamba2(hidden, state, bias=bias, conv_bias=conv_bias)
    elif state.kind == "kda":
        full_gate = fields.part("linear_attn_config").flag("use_full_rank_gate")
        yield from delta_attention(hidden, state, width=fields.size("linear_head_dim"), full_gate=full_gate)
    elif state.kind == "lightning":
        yield from lightning_attention(hidden, state, width=fields.size("head_dim"))


def dense(fields: Fields, family: Family) -> Part:
    yield from mlp(
        "mlp",
        fields.size("hidden_size"),
        fields.size("intermediate_size"),
        matrices=family.mlp_matrices,
        bias=fields.switched(family.mlp_bias),
    )


def mixture(fields: Fields, family: Family, *, width_of_states: int | None = None) -> Part:
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
