"""``/v1/loads`` of SGLang: what each scheduler says of its load, whether metrics are on or not; since 0.5.8.

Answered from memory that the schedulers share, without asking them. Tokens that are kept for their prefix are not in
use there, and not told apart from free ones; nothing is counted. Bytes are rounded to a thousandth of a GiB, so of them
only what the weights took is used. Source: SGLang ``srt/entrypoints/v1_loads.py``, ``srt/managers/load_snapshot.py``.
"""

from msgspec import DecodeError, Struct, json
from msgspec.structs import asdict

from collectors.errors import Unreadable
from collectors.exposition import Sample, possible
from collectors.sglang.names import Field
from collectors.sglang.page import MAX_REPLICAS, Page

_OFF = (
    "metrics are off, so cached tokens, retractions and token counts are not known; start SGLang with --enable-metrics"
)
_FIELDS: dict[str, Field] = {
    "num_running_reqs": "running",
    "num_waiting_reqs": "waiting",
    "num_used_tokens": "used",
    "max_total_num_tokens": "capacity",
    "token_usage": "used_ratio",
    "weight_gb": "weights_gib",
}


class _Memory(Struct, frozen=True):
    weight_gb: float | None = None


class _Load(Struct, frozen=True, gc=False):
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
    samples, notes = possible(sample for load in loads for sample in _samples(load))
    values: dict[str, dict[Field, float]] = {_replica(load): {} for load in loads}
    for sample in samples:
        values[sample.labels["dp_rank"]][_FIELDS[sample.name]] = sample.value
    return Page(
        model=None,
        replicas=tuple(values),
        leads=dict.fromkeys(values, (0, 0)),
        values=values,
        live={replica: {} for replica in values},
        graphs_gib={},
        requests={},
        notes=(_OFF, *notes),
    )


def _replica(load: _Load) -> str:
    return str(load.dp_rank)[:9]


def _samples(load: _Load) -> list[Sample]:
    """As a page of metrics would have them."""
    labels = {"dp_rank": _replica(load)}
    told = {**asdict(load), "weight_gb": load.memory.weight_gb if load.memory else None}
    return [Sample(name, labels, told[name]) for name in _FIELDS if told[name] is not None]
