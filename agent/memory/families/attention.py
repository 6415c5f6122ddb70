"""What one attention layer caches, for each kind of attention, from the fields of a config.

Source: vLLM 0.33 v1/kv_cache_interface.py and the models' files; class defaults are those of transformers 5.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from agent.memory.fields import Fields, ModelConfigError
from agent.memory.layers import Compressor, Heads, IndexKeys, Latent, Layer, Record

Widths = tuple[str, ...]


def heads(fields: Fields) -> Layer:
    """K and V of each KV head, of all tokens."""
    return _heads(fields)


def sliding(fields: Fields) -> Layer:
    """The same of the last tokens alone."""
    return _window(fields, heads(fields))


def chunked(fields: Fields) -> Layer:
    """The same of the tokens since the last multiple of the chunk; without a chunk, of all."""
    return _reach(heads(fields), "chunk", fields.optional_size("attention_chunk_size"))


def wide_values(fields: Fields) -> Layer:
    """MiMo-V2: K and V of different widths."""
    return _heads(fields, v=("v_head_dim", "head_dim"))


def sliding_wide_values(fields: Fields) -> Layer:
    """MiMo-V2: sliding layers have heads and widths of their own."""
    layer = _heads(
        fields,
        heads=("swa_num_attention_heads", "num_attention_heads"),
        kv=("swa_num_key_value_heads", "num_key_value_heads"),
        k=("swa_head_dim", "head_dim"),
        v=("swa_v_head_dim", "v_head_dim", "swa_head_dim", "head_dim"),
    )
    return _window(fields, layer, keys=("sliding_window_size", "sliding_window"))


def gemma4_global(fields: Fields) -> Layer:
    """Gemma 4: wider and fewer heads in global layers. ``attention_k_eq_v`` saves weights: K and V are both cached."""
    fewer = ("num_global_key_value_heads",) if fields.flag("attention_k_eq_v") else ()
    return _heads(fields, kv=(*fewer, "num_key_value_heads"), k=("global_head_dim", "head_dim"))


def step_sliding(fields: Fields) -> Layer:
    """Step 3.5 and 3.7: ``attention_other_setting`` may give sliding layers heads of their own."""
    own = fields.part("attention_other_setting")
    if own.values.get("attention_type") != "sliding_attention":
        return sliding(fields)
    return _window(fields, _heads(fields.over(own.values)))


def latent(fields: Fields) -> Layer:
    """One compressed vector for all heads."""
    return Layer(kind="mla", caches=(Latent(rank=fields.size("kv_lora_rank"), rope=fields.size("qk_rope_head_dim")),))


def sparse_latent(fields: Fields) -> Layer:
    """DeepSeek sparse attention: the latent, and the keys by which an indexer chooses among its tokens."""
    return _indexed(sparse_latent_shared(fields), IndexKeys(dim=fields.size("index_head_dim")))


def sparse_latent_shared(fields: Fields) -> Layer:
    """The same where the layer takes the choice of an earlier layer."""
    cache = Latent(rank=fields.size("kv_lora_rank"), rope=fields.size("qk_rope_head_dim"), sparse=True)
    return Layer(kind="dsa", caches=(cache,))


def block_sparse(fields: Fields) -> Layer:
    """MiniMax-M3: heads, and plain index keys that choose blocks."""
    return _indexed(
        heads(fields), IndexKeys(dim=fields.part("sparse_attention_config").size("sparse_index_dim"), packed=False)
    )


def cross(fields: Fields) -> Layer:
    """Mllama: K and V of the image alone, all tiles of (side / patch)² + 1 tokens."""
    vision = fields.part("vision_config")
    side, patch = vision.size("image_size"), vision.size("patch_size")
    tokens = vision.size("max_num_tiles") * ((side // patch) ** 2 + 1)
    return replace(_reach(heads(fields), "encoder", tokens), kind="cross")


def encoder_decoder(fields: Fields) -> Layer:
    """Whisper: a decoder layer caches its own tokens and the whole output of the encoder."""
    own = heads(fields)
    other = _reach(own, "encoder", fields.size("max_source_positions"))
    return Layer(kind="mha", caches=(*own.caches, *other.caches))


def window_record(fields: Fields) -> Layer:
    """DeepSeek V4: records of the last tokens alone."""
    return Layer(kind="window", caches=(_record(fields, window=fields.size("sliding_window")),))


def compressed_sparse(fields: Fields) -> Layer:
    """DeepSeek V4: besides, a record and index keys of every 4 tokens; groups overlap, so two wide are open."""
    return _compressed(fields, ratio=4, overlap=2, indexed=True, kind="csa")


def heavily_compressed(fields: Fields) -> Layer:
    """DeepSeek V4: besides, a record of every 128 tokens."""
    return _compressed(fields, ratio=128, overlap=1, indexed=False, kind="hca")


def compressed_source(fields: Fields) -> Layer:
    """DeepSeek V4.1: a layer whose history, a record of every second token, others read too."""
    dim, window = fields.size("head_dim"), window_record(fields)
    history = (_record(fields, ratio=2), IndexKeys(dim=fields.size("index_head_dim"), ratio=2))
    compressor = Compressor(elements=2 * dim, window=2, ratio=2)
    return Layer(kind="csa", caches=(*window.caches, *history, compressor))


def whole_source(fields: Fields) -> Layer:
    """DeepSeek V4.1: the same with a record of each token, for which nothing is compressed."""
    history = (_record(fields), IndexKeys(dim=fields.size("index_head_dim")))
    return Layer(kind="csa", caches=(*window_record(fields).caches, *history))


def nothing(kind: str, *, experts: bool = False) -> Layer:
    """A layer that caches nothing of its own."""
    return Layer(kind=kind, experts=experts)


def grouped(fields: Fields, kv_heads: int) -> Layer:
    """Heads with so many KV heads."""
    return _heads(fields.over({"num_key_value_heads": kv_heads}))


def _heads(
    fields: Fields,
    *,
    heads: Widths = ("num_attention_heads",),
    kv: Widths = ("num_key_value_heads",),
    k: Widths = ("head_dim",),
    v: Widths = (),
) -> Layer:
    """Heads by the first key of each that the config has."""
    count = fields.size(_first(fields, heads))
    kv_key, k_key = _first(fields, kv), _first(fields, k)
    kv_heads = fields.optional_size(kv_key) or count
    if count % kv_heads:
        raise ModelConfigError(
            f"config key {kv_key!r}: expected a divisor of {_first(fields, heads)} {count}, got {kv_heads}"
        )
    width = fields.optional_size(k_key) or head_dim(fields)
    values = fields.optional_size(_first(fields, v)) if v else width
    kind = "mha" if kv_heads == count else "mqa" if kv_heads == 1 else "gqa"
    return Layer(kind=kind, caches=(Heads(heads=kv_heads, k_dim=width, v_dim=values or width),))


def head_dim(fields: Fields) -> int:
    """The width of a head: as given, else hidden size by heads."""
    given = fields.optional_size("head_dim")
    if given is not None:
        return given
    hidden, count = fields.size("hidden_size"), fields.size("num_attention_heads")
    if hidden % count:
        raise ModelConfigError(
            f"config key 'num_attention_heads': expected a divisor of hidden_size {hidden} (there is no head_dim), "
            f"got {count}"
        )
    return hidden // count


def window_in_use(fields: Fields, keys: Widths = ("sliding_window",)) -> int | None:
    """The window, unless it is switched off or as long as the context."""
    window, context = fields.optional_size(_first(fields, keys)), fields.optional_size("max_position_embeddings")
    off = fields.values.get("use_sliding_window") is False
    return None if window is None or off or (context is not None and window >= context) else window


def _first(fields: Fields, keys: Sequence[str]) -> str:
    return next((key for key in keys if key in fields.values), keys[-1])


def _window(fields: Fields, layer: Layer, keys: Widths = ("sliding_window",)) -> Layer:
    return _reach(layer, "window", window_in_use(fields, keys))


def _reach(layer: Layer, reach: Literal["window", "chunk", "encoder"], tokens: int | None) -> Layer:
    if tokens is None:
        return layer
    return Layer(kind=layer.kind, caches=tuple(replace(cache, reach=reach, tokens=tokens) for cache in layer.caches))


def _indexed(layer: Layer, keys: IndexKeys) -> Layer:
    return Layer(kind=layer.kind, caches=(*layer.caches, keys))


def _record(fields: Fields, *, ratio: int = 1, window: int | None = None) -> Record:
    return Record(dim=fields.size("head_dim"), rope=fields.size("qk_rope_head_dim"), ratio=ratio, window=window)


def _compressed(fields: Fields, *, ratio: int, overlap: int, indexed: bool, kind: str) -> Layer:
    """A compressor keeps value and score of each token of the open groups: two, twice as wide, where they overlap."""
    dim, keys = fields.size("head_dim"), fields.size("index_head_dim")
    widths = (dim, keys) if indexed else (dim,)
    history = (_record(fields, ratio=ratio), *((IndexKeys(dim=keys, ratio=ratio),) if indexed else ()))
    open_groups = (Compressor(elements=2 * overlap * width, window=overlap * ratio, ratio=ratio) for width in widths)
    return Layer(kind=kind, caches=(*window_record(fields).caches, *history, *open_groups))
