"""``/v1/loads`` of SGLang: what each scheduler says of its load, whether metrics are on or not; since 0.5.8.

Answered from memory that the schedulers share, without asking them. Tokens that are kept for their prefix are not in
use there, and not told apart from free ones; nothing is counted. Bytes are rounded to a thousandth of a GiB, so of them
only what the weights took is used. Source: SGLang ``srt/entrypoints/v1_loads.py``, ``srt/managers/load_snapshot.py``.
"""

from msgspec import DecodeError, Struct, json

from collectors.errors import Unreadable
from collectors.sglang.names import Field
from collectors.sglang.page import MAX_REPLICAS, Page

_OFF = (
    "metrics are off, so cached tokens, retractions and token counts are not known; start SGLang with --enable-metrics"
)


class _Memory(Struct, frozen=True):
    weight_gb: float | None = None


class _Load(Struct, frozen=True):
    dp_rank: int
    num_running_reqs: float | None = None
    num_waiting_reqs: float | None = None
    num_used_tokens: float | None = None
    max_total_num_tokens: float | None = None
    token_usage: float | None = None
    memory: _Memory | None = None


class _Loads(Struct, frozen=True):
    loads: tuple[_Load, ...]


def parse_loads(text: str, *, source: str) -> Page:
    """The loads as a page of metrics that has only these.

    Raises:
        Unreadable: not such loads, or far more replicas than there can be.
    """
    try:
        loads = json.decode(text, type=_Loads).loads
    except (DecodeError, RecursionError) as exc:
        raise Unreadable("malformed", f"{source} is not the JSON that SGLang answers there") from exc
    if len(loads) > MAX_REPLICAS:
        raise Unreadable("too_large", f"{source} names {len(loads)} replicas; expected at most {MAX_REPLICAS}")
    values = {str(load.dp_rank)[:9]: _values(load) for load in loads}
    return Page(
        model=None,
        replicas=tuple(values),
        leads=dict.fromkeys(values, (0, 0)),
        values=values,
        live={replica: {} for replica in values},
        graphs_gib={},
        requests={},
        notes=(_OFF,),
    )


def _values(load: _Load) -> dict[Field, float]:
    found: dict[Field, float | None] = {
        "running": load.num_running_reqs,
        "waiting": load.num_waiting_reqs,
        "used": load.num_used_tokens,
        "capacity": load.max_total_num_tokens,
        "used_ratio": load.token_usage,
        "weights_gib": load.memory.weight_gb if load.memory else None,
    }
    return {name: value for name, value in found.items() if value is not None}
