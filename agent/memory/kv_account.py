"""Names and formulas of what layers cache, for the account: ``entry_bytes`` of ``kv_cache`` with its numbers shown."""

from agent.memory.kv_cache import COMPRESSOR_BYTES, Layouts, heads_per_rank, record_layout, state_columns, state_groups
from agent.memory.kv_formats import STATE_BYTES
from agent.memory.layers import Cache, Compressor, Heads, IndexKeys, Latent, Record, State


def entry_name(cache: Cache) -> str:
    """A kind of cache in a word; records by the tokens they stand for."""
    match cache:
        case Heads():
            return {"full": "kv", "encoder": "cross"}.get(cache.reach, cache.reach)
        case Latent():
            return "latent"
        case IndexKeys():
            return "index_key"
        case Record():
            return "window_record" if cache.window else f"record_of_{cache.ratio}"
        case Compressor():
            return f"compressor_of_{cache.ratio}"
        case State():
            return "state"


def entry_formula(cache: Cache, layouts: Layouts, *, tp: int) -> str:
    """Arithmetic that comes to the bytes of one entry on one rank."""
    match cache:
        case Heads():
            return f"{heads_per_rank(cache.heads, tp)} heads × ({_head(cache, layouts)})"
        case Latent():
            packed = layouts.kv.latent
            return packed.formula(cache.rank, cache.rope) if packed else _vector(cache.rank + cache.rope, layouts)
        case Record():
            packed = record_layout(cache, layouts.kv)
            return packed.formula(cache.dim - cache.rope, cache.rope) if packed else _vector(cache.dim, layouts)
        case IndexKeys():
            return layouts.index.formula(cache.dim) if cache.packed else f"{cache.dim} × {layouts.index_bytes}"
        case Compressor():
            return f"{cache.elements} × {COMPRESSOR_BYTES}"
        case State():
            return _state(cache, layouts, tp)


def _head(cache: Heads, layouts: Layouts) -> str:
    sides = [layouts.kv.k.formula(cache.k_dim)] + ([layouts.kv.v.formula(cache.v_dim)] if cache.v_dim else [])
    whole, multiple = " + ".join(sides), layouts.kv.multiple
    return f"ceil(({whole}) / {multiple}) × {multiple}" if multiple > 1 else whole


def _vector(elements: int, layouts: Layouts) -> str:
    extra = f" + {layouts.kv.v.extra}" if layouts.kv.v.extra else ""
    return f"{layouts.kv.k.formula(elements)}{extra}"


def _state(state: State, layouts: Layouts, tp: int) -> str:
    conv = STATE_BYTES[layouts.conv_dtype or state.conv_dtype or layouts.dtype]
    recurrent = STATE_BYTES[layouts.state_dtype or state.state_dtype or layouts.dtype]
    heads = f"ceil({state.heads} heads / {tp}) × {state.head_elements} × {recurrent}"
    if not state.conv_width:
        return heads
    channels = f"{state.conv_channels} + {state_groups(state, tp)} groups × {state.group_channels}"
    return f"ceil(({channels}) / {tp}) × {state_columns(state, layouts)} columns × {conv} + {heads}"
