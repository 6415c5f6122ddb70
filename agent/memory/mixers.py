"""The matrices by which a layer mixes tokens: attention of each kind, and recurrences, named as checkpoints name them.

Source: vLLM 0.33 model_executor/models and models/deepseek_v4, 0.32 models/kimi_k3 and models/minimax_m3;
huggingface/transformers 5 models.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from agent.memory.layers import Heads, IndexKeys, Latent, State
from agent.memory.matrices import Matrix, vector

_OVER: Literal["attention"] = "attention"


def attention(
    hidden: int,
    heads: int,
    cache: Heads,
    *,
    gated: bool = False,
    qkv_bias: bool = False,
    out_bias: bool = False,
    norm: Literal["head", "all_heads"] | None = None,
    sinks: bool = False,
) -> Iterator[Matrix]:
    """Heads with K and V of their own widths; a gate doubles Q, and a sink is one number a head."""
    parts = (
        ("q", heads, heads * cache.k_dim * (2 if gated else 1)),
        ("k", cache.heads, cache.heads * cache.k_dim),
        ("v", cache.heads, cache.heads * cache.v_dim),
    )
    for name, units, rows in parts:
        yield _rows(f"self_attn.{name}_proj", rows, hidden, units=units)
        if qkv_bias:
            yield vector(f"self_attn.{name}_proj.bias", rows, units=units, split=True)
    yield _columns("self_attn.o_proj", hidden, heads * cache.v_dim, units=heads)
    if out_bias:
        yield vector("self_attn.o_proj.bias", hidden)
    if norm == "head":
        yield vector("self_attn.qk_norm", 2 * cache.k_dim)
    if norm == "all_heads":
        yield vector("self_attn.q_norm", heads * cache.k_dim, units=heads, split=True)
        yield vector("self_attn.k_norm", cache.heads * cache.k_dim, units=cache.heads, split=True)
    if sinks:
        yield vector("self_attn.sinks", heads, split=True)


def latent_attention(
    hidden: int, heads: int, cache: Latent, *, q_rank: int | None, nope: int, v: int
) -> Iterator[Matrix]:
    """MLA: compressions on every rank, and what unfolds them split by heads."""
    q = heads * (nope + cache.rope)
    if q_rank is None:
        yield _rows("self_attn.q_proj", q, hidden, units=heads)
    else:
        yield Matrix(name="self_attn.q_a_proj", rows=q_rank, columns=hidden)
        yield vector("self_attn.q_a_layernorm", q_rank)
        yield _rows("self_attn.q_b_proj", q, q_rank, units=heads)
    yield Matrix(name="self_attn.kv_a_proj_with_mqa", rows=cache.rank + cache.rope, columns=hidden)
    yield vector("self_attn.kv_a_layernorm", cache.rank)
    yield _rows("self_attn.kv_b_proj", heads * (nope + v), cache.rank, units=heads)
    yield _columns("self_attn.o_proj", hidden, heads * v, units=heads)


def indexer(hidden: int, q_rank: int, heads: int, keys: IndexKeys) -> Iterator[Matrix]:
    """What chooses tokens for DeepSeek's sparse attention: on every rank; its key norm has a bias."""
    yield Matrix(name="self_attn.indexer.wq_b", rows=heads * keys.dim, columns=q_rank)
    yield Matrix(name="self_attn.indexer.wk", rows=keys.dim, columns=hidden)
    yield vector("self_attn.indexer.k_norm", 2 * keys.dim)
    yield Matrix(name="self_attn.indexer.weights_proj", rows=heads, columns=hidden, stored="plain")


def gated_delta_net(hidden: int, state: State, *, key_heads: int, key: int, value: int) -> Iterator[Matrix]:
    """Q, K, V and a gate Z, two numbers a value head, a convolution over Q, K and V, and a norm as wide as a head."""
    keys, values = key_heads * key, state.heads * value
    yield _rows("linear_attn.in_proj_qkvz", 2 * keys + 2 * values, hidden, units=key_heads)
    yield _rows("linear_attn.in_proj_ba", 2 * state.heads, hidden, units=key_heads, plain=True)
    yield _convolution("linear_attn.conv1d", state, units=key_heads)
    yield vector("linear_attn.A_log", 2 * state.heads, units=state.heads, split=True)
    yield vector("linear_attn.norm", value)
    yield _columns("linear_attn.out_proj", hidden, values, units=state.heads)


def delta_attention(hidden: int, state: State, *, width: int, full_gate: bool) -> Iterator[Matrix]:
    """Kimi: Q, K and V with a convolution over them, a decay of each channel, an output gate of full or low rank."""
    heads, inner = state.heads, state.heads * width
    for name in ("q", "k", "v"):
        yield _rows(f"self_attn.{name}_proj", inner, hidden, units=heads)
    yield replace(_convolution("self_attn.conv1d", state, units=heads), stored="fp32")
    for name in ("f",) if full_gate else ("f", "g"):
        yield Matrix(name=f"self_attn.{name}_a_proj", rows=width, columns=hidden)
        yield _rows(f"self_attn.{name}_b_proj", inner, width, units=heads)
    if full_gate:
        yield _rows("self_attn.g_proj", inner, hidden, units=heads)
    yield _rows("self_attn.b_proj", heads, hidden, units=heads)
    yield vector("self_attn.A_log_and_dt", heads + inner, units=heads, split=True, stored="fp32")
    yield vector("self_attn.o_norm", width)
    yield _columns("self_attn.o_proj", hidden, inner, units=heads)


def lightning_attention(hidden: int, state: State, *, width: int) -> Iterator[Matrix]:
    """MiniMax: Q, K, V and a gate of the output, all of full width, and a norm over all heads."""
    heads, inner = state.heads, state.heads * width
    yield _rows("self_attn.qkv_proj", 3 * inner, hidden, units=heads)
    yield _rows("self_attn.output_gate", inner, hidden, units=heads)
    yield vector("self_attn.norm", inner, units=heads, split=True)
    yield _columns("self_attn.out_proj", hidden, inner, units=heads)


def output_gate(hidden: int, heads: int, width: int) -> Matrix:
    """How much of each head's output passes: ``width`` numbers a head."""
    return _rows("self_attn.g_proj", heads * width, hidden, units=heads)


def block_indexer(hidden: int, heads: int, keys: IndexKeys) -> Iterator[Matrix]:
    """What chooses blocks for MiniMax-M3: queries with the heads, and a key that every rank has."""
    yield _rows("self_attn.index_q_proj", heads * keys.dim, hidden, units=heads)
    yield Matrix(name="self_attn.index_k_proj", rows=keys.dim, columns=hidden)
    yield vector("self_attn.index_qk_norm", 2 * keys.dim)


def mamba1(hidden: int, state: State, *, dt_rank: int, norms: bool) -> Iterator[Matrix]:
    """Two inputs a channel, a convolution with bias, and dt, B and C of each channel (Jamba norms these)."""
    channels, states = state.conv_channels, state.head_elements
    yield _rows("mamba.in_proj", 2 * channels, hidden, units=channels)
    yield _convolution("mamba.conv1d", state, units=channels)
    yield vector("mamba.conv1d.bias", channels, split=True)
    yield _columns("mamba.x_proj", dt_rank + 2 * states, channels, units=channels)
    yield _rows("mamba.dt_proj", channels, dt_rank, units=channels, plain=True)
    yield vector("mamba.A_D_dt", channels * (states + 2), units=channels, split=True)
    if norms:
        yield vector("mamba.norms", dt_rank + 2 * states)
    yield _columns("mamba.out_proj", hidden, channels, units=channels)


def mamba2(hidden: int, state: State, *, bias: bool = False, conv_bias: bool = True) -> Iterator[Matrix]:
    """Two inputs a channel, B and C of each group, dt of each head; a convolution with bias; a norm over channels."""
    channels, groups = state.conv_channels, state.groups * state.group_channels
    units = state.groups if state.heads % state.groups == 0 else 0
    yield _rows("mixer.in_proj", 2 * channels + groups + state.heads, hidden, units=units)
    yield _convolution("mixer.conv1d", state, units=units)
    if conv_bias:
        yield vector("mixer.conv1d.bias", channels + groups, units=units, split=True)
    yield vector("mixer.A_D_dt", 3 * state.heads, units=state.heads, split=True)
    yield vector("mixer.norm", channels, units=units, split=True)
    yield _columns("mixer.out_proj", hidden, channels, units=units)
    if bias:
        yield vector("mixer.in_proj.bias", 2 * channels + groups + state.heads, units=units, split=True)
        yield vector("mixer.out_proj.bias", hidden)


def _convolution(name: str, state: State, *, units: int) -> Matrix:
    channels = state.conv_channels + state.groups * state.group_channels
    return _rows(name, channels, state.conv_width + 1, units=units, plain=True)


def _rows(name: str, rows: int, columns: int, *, units: int, plain: bool = False) -> Matrix:
    kept = units if units and rows % units == 0 else 0
    return Matrix(
        name=name,
        rows=rows,
        columns=columns,
        split="rows",
        units=kept,
        over=_OVER,
        stored="plain" if plain else "weights",
    )


def _columns(name: str, rows: int, columns: int, *, units: int) -> Matrix:
    kept = units if units and columns % units == 0 else 0
    return Matrix(name=name, rows=rows, columns=columns, split="columns", units=kept, over=_OVER)
