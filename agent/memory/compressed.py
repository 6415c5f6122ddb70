"""The matrices of DeepSeek V4: compressed attention, hyper-connections, and experts of which all layers consist.

Checked against the stored elements of DeepSeek-V4-Flash, type by type. Source: vLLM 0.33 models/deepseek_v4, and for
V4.1 vLLM 0.32 models/deepseek_v41.
"""

from collections.abc import Iterator

from agent.memory.fields import Fields
from agent.memory.layers import IndexKeys, Layer, Record
from agent.memory.matrices import Matrix, vector


def record_attention(fields: Fields) -> Iterator[Matrix]:
    """Q and one record for all heads, compressed; an output in groups; a sink for each head."""
    hidden, heads, dim = fields.size("hidden_size"), fields.size("num_attention_heads"), fields.size("head_dim")
    q_rank, o_rank, groups = fields.size("q_lora_rank"), fields.size("o_lora_rank"), fields.size("o_groups")
    yield Matrix(name="self_attn.wq_a", rows=q_rank, columns=hidden)
    yield Matrix(name="self_attn.wkv", rows=dim, columns=hidden)
    yield vector("self_attn.norms", q_rank + dim)
    yield Matrix(name="self_attn.wq_b", rows=heads * dim, columns=q_rank, split="rows", units=heads, over="attention")
    yield Matrix(
        name="self_attn.wo_a",
        rows=groups * o_rank,
        columns=heads * dim // groups,
        split="rows",
        units=groups,
        over="attention",
    )
    yield Matrix(
        name="self_attn.wo_b", rows=hidden, columns=groups * o_rank, split="columns", units=groups, over="attention"
    )
    yield vector("self_attn.attn_sink", heads, split=True, stored="fp32")


def own_history(fields: Fields, layer: Layer) -> Iterator[Matrix]:
    """Compressors of a layer's history and of its keys, and the indexer of the latter."""
    hidden, q_rank, dim = fields.size("hidden_size"), fields.size("q_lora_rank"), fields.size("head_dim")
    for cache in layer.caches:
        if isinstance(cache, Record) and cache.window is None:
            yield from _compressor("self_attn.compressor", hidden, dim, cache.ratio)
        if isinstance(cache, IndexKeys):
            index_heads = fields.size("index_n_heads")
            yield Matrix(name="self_attn.indexer.wq_b", rows=index_heads * cache.dim, columns=q_rank)
            yield Matrix(name="self_attn.indexer.weights_proj", rows=index_heads, columns=hidden, stored="plain")
            yield from _compressor("self_attn.indexer.compressor", hidden, cache.dim, cache.ratio)


def shared_history(fields: Fields, layer: Layer, index: int) -> Iterator[Matrix]:
    """V4.1: a compressor (with scores unless each token has a record) and keys made of its records, where others read
    them; an indexer in each of ``index_source_layer_ids``."""
    hidden, dim, keys = fields.size("hidden_size"), fields.size("head_dim"), fields.size("index_head_dim")
    history = [cache for cache in layer.caches if isinstance(cache, Record) and cache.window is None]
    for cache in history:
        parts = 1 if cache.ratio == 1 else 2
        yield Matrix(name="self_attn.compressor.wkv_gate", rows=parts * dim, columns=hidden, stored="plain")
        yield vector("self_attn.compressor.norm", dim)
    if index in (fields.entries("index_source_layer_ids") or ()):
        heads = fields.size("index_n_heads")
        yield Matrix(name="self_attn.indexer.wq_b", rows=heads * keys, columns=fields.size("q_lora_rank"))
        yield Matrix(name="self_attn.indexer.weights_proj", rows=heads, columns=hidden, stored="plain")
        if history:
            yield Matrix(name="self_attn.indexer.wk", rows=keys, columns=dim, stored="plain")
            yield vector("self_attn.indexer.k_norm", keys)


def engram(fields: Fields) -> Iterator[Matrix]:
    """V4.1: what makes keys of each stream and a value of the rows an n-gram looks up; its tables stay on the host."""
    hidden, streams = fields.size("hidden_size"), fields.size("hc_mult")
    found = (fields.size("engram_max_ngram_size") - 1) * fields.size("engram_n_heads") * fields.size("engram_head_dim")
    yield Matrix(name="engram.wkv", rows=hidden * (streams + 1), columns=found, split="rows")
    yield vector("engram.norms", 2 * streams * hidden)


def hyper_connections(fields: Fields) -> Iterator[Matrix]:
    """How a layer's attention and its experts mix the streams of hidden states, in fp32."""
    streams = fields.size("hc_mult")
    mixed = (2 + streams) * streams
    yield Matrix(name="hc_fn", rows=mixed, columns=streams * fields.size("hidden_size"), count=2, stored="fp32")
    yield vector("hc_base_and_scale", 2 * (mixed + 3), stored="fp32")


def last_connection(fields: Fields) -> Matrix:
    """How the streams become one before the head, in fp32."""
    streams = fields.size("hc_mult")
    return vector("hc_head", streams * streams * fields.size("hidden_size") + streams + 1, stored="fp32")


def hashed(fields: Fields, index: int) -> Iterator[Matrix]:
    """In the first layers a table sends each token to its experts; later ones have a bias of the router."""
    if index < (fields.optional_size("num_hash_layers", least=0) or 0):
        per_token = fields.size("num_experts_per_tok")
        yield Matrix(name="mlp.gate.tid2eid", rows=fields.size("vocab_size"), columns=per_token, stored="fp32")
    else:
        yield vector("mlp.gate.bias", fields.size("num_experts"), stored="fp32")


def _compressor(name: str, hidden: int, dim: int, ratio: int) -> Iterator[Matrix]:
    """Value and score of each token, twice as wide where groups overlap (ratio 4), with positions in fp32."""
    width = dim * (2 if ratio == 4 else 1)
    yield Matrix(name=f"{name}.wkv_gate", rows=2 * width, columns=hidden, stored="plain")
    yield vector(f"{name}.norm", dim)
    yield vector(f"{name}.ape", ratio * width, stored="fp32")
