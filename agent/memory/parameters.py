"""The matrices of a decoder, from its config: counted whole, or as the share that one rank of vLLM keeps.

With H hidden, dk head width: attention H(nh dk) + H nkv(dk + dv) + nh dv H; MLA adds its two compressions; a gated MLP
is 3 H I, an expert likewise, a router E H. Sharding (vLLM 0.33 model_executor): outputs of Q, K, V, gate and up, inputs
of O and down are split; MLA's compressions, routers and norms are replicated; each rank keeps at least one KV head.
"""

from collections.abc import Iterator

from msgspec import Struct

from agent.memory.kv_cache import heads_per_rank
from agent.memory.layers import Heads, Layer
from agent.memory.model_config import Decoder, Experts, LatentAttention
from agent.memory.units import ceil_div


class Matrix(Struct, frozen=True, kw_only=True):
    """``count`` matrices of ``rows`` outputs by ``columns`` inputs; ``plain`` ones are never quantised."""

    rows: int
    columns: int
    count: int = 1
    plain: bool = False

    @property
    def elements(self) -> int:
        return self.rows * self.columns * self.count


class Shard(Struct, frozen=True, kw_only=True):
    """How a model is cut. Experts are cut over data-parallel ranks too; the vocabulary is padded before it is cut."""

    tp: int = 1
    experts: int = 1
    vocabulary_multiple: int = 1


WHOLE = Shard()


def rank_shard(*, tp: int, dp: int) -> Shard:
    """One rank of vLLM: vocabulary padded to a multiple of 64, experts over all ranks of all replicas."""
    return Shard(tp=tp, experts=tp * dp, vocabulary_multiple=64)


def layer_matrices(decoder: Decoder, layer: Layer, shard: Shard = WHOLE) -> tuple[Matrix, ...]:
    """All matrices and vectors of one decoder layer."""
    if decoder.mla:
        attention = _latent(decoder, decoder.mla, shard)
    else:
        kept = next((cache.heads for cache in layer.caches if isinstance(cache, Heads)), 0)
        attention = _heads(decoder, heads_per_rank(kept, shard.tp) if kept else 0, shard)
    feed_forward = (
        _mixture(decoder, decoder.experts, shard)
        if layer.experts and decoder.experts
        else _mlp(decoder, ceil_div(decoder.intermediate, shard.tp), bias=decoder.mlp_bias)
    )
    return (_vector(decoder.hidden * decoder.norms), *attention, *feed_forward)


def embedding(decoder: Decoder, shard: Shard = WHOLE) -> Matrix:
    """The token embedding; the output head has the same shape, and is the same table when tied."""
    padded = ceil_div(decoder.vocabulary, shard.vocabulary_multiple) * shard.vocabulary_multiple
    return Matrix(rows=ceil_div(padded, shard.tp), columns=decoder.hidden, plain=True)


def final_norm(decoder: Decoder) -> Matrix:
    return _vector(decoder.hidden * decoder.final_norms)


def count_parameters(decoder: Decoder, layers: tuple[Layer, ...]) -> int:
    """Weights of the whole decoder, multi-token-prediction layers and other modules (vision) left out."""
    kinds = {layer: sum(matrix.elements for matrix in layer_matrices(decoder, layer)) for layer in set(layers)}
    tables = embedding(decoder).elements * (1 if decoder.tied else 2)
    return sum(kinds[layer] for layer in layers) + tables + final_norm(decoder).elements


def _heads(decoder: Decoder, kv_heads: int, shard: Shard) -> Iterator[Matrix]:
    width = decoder.head_dim
    q, kv = ceil_div(decoder.heads, shard.tp) * width, kv_heads * width
    yield Matrix(rows=q, columns=decoder.hidden)
    yield Matrix(rows=kv, columns=decoder.hidden, count=2)
    yield Matrix(rows=decoder.hidden, columns=q)
    if decoder.qkv_bias:
        yield _vector(q + 2 * kv)
    if decoder.out_bias:
        yield _vector(decoder.hidden)
    if decoder.qk_norm == "head":
        yield _vector(2 * width)
    if decoder.qk_norm == "all_heads":
        yield _vector(q + kv)


def _latent(decoder: Decoder, mla: LatentAttention, shard: Shard) -> Iterator[Matrix]:
    hidden, heads = decoder.hidden, ceil_div(decoder.heads, shard.tp)
    q = heads * (mla.nope + mla.rope)
    if mla.q_rank is None:
        yield Matrix(rows=q, columns=hidden)
    else:
        yield Matrix(rows=mla.q_rank, columns=hidden)
        yield _vector(mla.q_rank)
        yield Matrix(rows=q, columns=mla.q_rank)
    yield Matrix(rows=mla.kv_rank + mla.rope, columns=hidden)
    yield _vector(mla.kv_rank)
    yield Matrix(rows=heads * (mla.nope + mla.v), columns=mla.kv_rank)
    yield Matrix(rows=hidden, columns=heads * mla.v)


def _mixture(decoder: Decoder, experts: Experts, shard: Shard) -> Iterator[Matrix]:
    yield Matrix(rows=experts.count, columns=decoder.hidden, plain=True)
    if experts.router_bias:
        yield _vector(experts.count)
    yield from _mlp(decoder, ceil_div(experts.width, shard.experts), count=experts.count)
    if experts.shared_width:
        yield from _mlp(decoder, ceil_div(experts.shared_width, shard.tp))
    if experts.shared_gate:
        yield Matrix(rows=1, columns=decoder.hidden, plain=True)


def _mlp(decoder: Decoder, width: int, *, count: int = 1, bias: bool = False) -> Iterator[Matrix]:
    inputs = decoder.mlp_matrices - 1
    yield Matrix(rows=width, columns=decoder.hidden, count=count * inputs)
    yield Matrix(rows=decoder.hidden, columns=width, count=count)
    if bias:
        yield _vector(inputs * width + decoder.hidden)


def _vector(length: int) -> Matrix:
    return Matrix(rows=length, columns=1, plain=True)
