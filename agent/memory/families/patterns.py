"""Which layer of a model is of which type: the list a config gives, or what its class derives from other fields.

A type is the name a family's row has a kind of layer for. Lists are cut to the number of layers: some files append
those of multi-token-prediction layers.
"""

from collections.abc import Callable
from typing import Any

from agent.memory.families.attention import window_in_use
from agent.memory.fields import Fields, ModelConfigError, whole
from agent.memory.units import shown

FULL, SLIDING, CHUNKED, LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"
CROSS, SPARSE, SHARED = "cross_attention", "sparse_attention", "shared"
INDEXED = "full"  # as configs call a layer with an indexer of its own

Pattern = Callable[[Fields, int], list[str]]


def alike(fields: Fields, count: int) -> list[str]:
    """All layers of the first type."""
    return [FULL] * count


def listed(otherwise: Pattern) -> Pattern:
    """``layer_types``, or what the class derives where there is none."""

    def pattern(fields: Fields, count: int) -> list[str]:
        given = fields.entries("layer_types", count)
        return otherwise(fields, count) if given is None else [_name("layer_types", value) for value in given]

    return pattern


@listed
def windowed(fields: Fields, count: int) -> list[str]:
    """A window on all layers, or on none."""
    return [SLIDING if window_in_use(fields) else FULL] * count


@listed
def late_windows(fields: Fields, count: int) -> list[str]:
    """Qwen: a window, where it is switched on, from layer ``max_window_layers`` on."""
    first = fields.size("max_window_layers", least=0) if fields.flag("use_sliding_window") else count
    return [SLIDING if index >= first else FULL for index in range(count)]


@listed
def all_linear(fields: Fields, count: int) -> list[str]:
    """Granite 4: where nothing is listed, every layer keeps a state."""
    return [LINEAR] * count


def every(period: int | str, other: str = SLIDING) -> Pattern:
    """Full attention in each layer whose number, from 1, is a multiple of ``period`` or of the key it names."""

    @listed
    def pattern(fields: Fields, count: int) -> list[str]:
        step = fields.size(period) if isinstance(period, str) else period
        return [other if (index + 1) % step else FULL for index in range(count)]

    return pattern


def last_full(pattern: Pattern) -> Pattern:
    """The same, but the last layer always sees everything (Gemma 4)."""
    return lambda fields, count: [*pattern(fields, count)[:-1], FULL]


def sharing(pattern: Pattern) -> Pattern:
    """The last ``num_kv_shared_layers`` layers read another layer's cache."""

    def shared(fields: Fields, count: int) -> list[str]:
        own = count - (fields.optional_size("num_kv_shared_layers", least=0, most=count) or 0)
        return pattern(fields, count)[:own] + [SHARED] * (count - own)

    return shared


@listed
def chunks(fields: Fields, count: int) -> list[str]:
    """Llama 4: layers with rotary positions see a chunk; by default all but each fourth."""
    flags = fields.entries("no_rope_layers") and fields.entries("no_rope_layers", count)
    rotary = flags or [bool((index + 1) % fields.size("nope_layer_interval")) for index in range(count)]
    return [CHUNKED if flag else FULL for flag in rotary]


def flagged(key: str, names: tuple[str, str]) -> Pattern:
    """A list of 0 and 1, one a layer."""

    def pattern(fields: Fields, count: int) -> list[str]:
        flags = fields.entries(key, count)
        if flags is None:
            raise ModelConfigError(f"config key {key!r} is missing; expected a list of 0 and 1, one a layer")
        return [names[bool(flag)] for flag in flags]

    return pattern


def mimo(fields: Fields, count: int) -> list[str]:
    """MiMo-V2: ``hybrid_layer_pattern``; by default the first and each sixth layer see everything."""
    if "hybrid_layer_pattern" in fields.values:
        return flagged("hybrid_layer_pattern", (FULL, SLIDING))(fields, count)
    return _mimo(fields, count)


@listed
def _mimo(fields: Fields, count: int) -> list[str]:
    return [SLIDING if index and (index + 1) % 6 else FULL for index in range(count)]


def periodic(fields: Fields, count: int) -> list[str]:
    """Jamba: attention at each ``attn_layer_offset`` of a period."""
    period, offset = fields.size("attn_layer_period"), fields.size("attn_layer_offset", least=0)
    return [FULL if index % period == offset else LINEAR for index in range(count)]


def chosen(key: str, there: str, other: str) -> Pattern:
    """The layers whose indices a key lists, and all others."""

    def pattern(fields: Fields, count: int) -> list[str]:
        indices = _indices(fields.entries(key))
        return [there if index in indices else other for index in range(count)]

    return pattern


def named(key: str) -> Pattern:
    """A list of names under a key of its own."""
    return lambda fields, count: [_name(key, value) for value in fields.entries(key, count) or []]


def kimi(fields: Fields, count: int) -> list[str]:
    """Kimi: the layers, from 1, that ``linear_attn_config`` lists; else ``layer_types`` or the class default."""
    given = fields.part("linear_attn_config").entries("full_attn_layers")
    if given is None:
        return _kimi(fields, count)
    full = _indices(given)
    return [FULL if index + 1 in full else LINEAR for index in range(count)]


@listed
def _kimi(fields: Fields, count: int) -> list[str]:
    return [LINEAR if not index or index % 4 else FULL for index in range(count)]


def indexers(fields: Fields, count: int) -> list[str]:
    """DeepSeek sparse attention: which layers choose for themselves, by list, letters or frequency and offset."""
    if "index_topk" not in fields.values:
        return alike(fields, count)
    given = fields.entries("indexer_types", count)
    if given is not None:
        return [_name("indexer_types", value) for value in given]
    pattern = fields.text("index_topk_pattern")
    if pattern is not None:
        return [SHARED if pattern[index : index + 1] == "S" else INDEXED for index in range(count)]
    frequency = fields.optional_size("index_topk_freq") or 1
    offset = fields.optional_size("index_skip_topk_offset", least=0)
    skipped = 2 if offset is None else offset
    return [SHARED if max(index - skipped + 1, 0) % frequency else INDEXED for index in range(count)]


def block_sparse_layers(fields: Fields, count: int) -> list[str]:
    """MiniMax-M3: the layers that ``sparse_attention_freq`` marks."""
    marks = fields.part("sparse_attention_config").entries("sparse_attention_freq", count)
    return alike(fields, count) if marks is None else [SPARSE if mark else FULL for mark in marks]


def ratios(fields: Fields, count: int) -> list[str]:
    """DeepSeek V4: the ratio of compression of each layer."""
    given = fields.entries("compress_ratios", count)
    if given is None:
        raise ModelConfigError("config key 'compress_ratios' is missing; expected a list of ratios, one a layer")
    return [str(whole("compress_ratios", value, least=0)) for value in given]


def sources(fields: Fields, count: int) -> list[str]:
    """DeepSeek V4.1: only ``kv_source_layer_ids`` keep a history, of their ratio; all others read it."""
    owners = _indices(fields.entries("kv_source_layer_ids"))
    return [ratio if index in owners else "0" for index, ratio in enumerate(ratios(fields, count))]


def _indices(entries: list[Any] | None) -> set[int]:
    return {entry for entry in entries or () if isinstance(entry, int)}


def _name(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise ModelConfigError(f"config key {key!r}: expected names of layer types, got {shown(value)}")
    return value
