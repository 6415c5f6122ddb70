"""One ``/metrics`` page of SGLang: the few lines that are needed, under one name each, by replica.

Of the ranks of a replica that report (all with ``--enable-metrics-for-all-schedulers``, else one) the first counts:
they hold the same tokens. Where requests have priorities, the sample without one is the sum of the others.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from collectors.errors import Unreadable
from collectors.exposition import Labels, Sample, Wanted, possible
from collectors.sglang.names import (
    GRAPHS,
    LIVE_MODES,
    LIVE_TOKENS,
    NAMES,
    PAGES_INFO,
    PREFIX,
    REQUEST_NAMES,
    Field,
    LiveField,
    RequestField,
)

MAX_REPLICAS = 512
FULL_NAMES = {
    PREFIX + name: name
    for name in (
        *(name for names in NAMES.values() for name in names),
        *REQUEST_NAMES.values(),
        LIVE_TOKENS,
        GRAPHS,
        PAGES_INFO,
    )
}
_WANTED = Wanted(FULL_NAMES)
_MAX_NAME = 128


class Page(Struct, frozen=True, kw_only=True):
    """What a page says; one without any scheduler's series has no replicas.

    ``values`` by replica; ``requests`` are of the whole server; ``graphs_gib`` sums the phases; ``leads``: the pipeline
    and tensor rank that they are of.
    """

    model: str | None
    replicas: tuple[str, ...]
    leads: Mapping[str, tuple[int, int]]
    values: Mapping[str, Mapping[Field, float]]
    live: Mapping[str, Mapping[LiveField, float]]
    graphs_gib: Mapping[str, float]
    requests: Mapping[RequestField, float]
    notes: tuple[str, ...]

    def count(self, replica: str, field: Field) -> int | None:
        """Whole tokens, slots or requests; None where it is not told."""
        return rounded(self.values[replica].get(field))


def rounded(value: float | None) -> int | None:
    """What a page can only tell as a float."""
    return None if value is None else round(value)


def parse_page(text: str, *, source: str) -> Page:
    """The needed facts of a page, whose ``source`` is named in messages; values not finite or absurd are left out.

    Raises:
        Unreadable: cut off, a needed line that is malformed, or far more of them, or of replicas, than there can be.
    """
    told = _WANTED.samples(text, source=source)
    samples, notes = possible(told)
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(FULL_NAMES[sample.name], []).append(sample)
    leads = _leads(sample.labels for sample in told)
    if len(leads) > MAX_REPLICAS:
        raise Unreadable("too_large", f"{source} names {len(leads)} replicas; expected at most {MAX_REPLICAS}")
    replicas = tuple(sorted(leads, key=lambda name: (len(name), name)))
    of = {name: _of_leads(found, leads) for name, found in by_name.items()}
    return Page(
        model=next((sample.labels["model_name"] for sample in told if sample.labels.get("model_name")), None),
        replicas=replicas,
        leads=leads,
        values={replica: _values(of, replica) for replica in replicas},
        live={replica: _live(of.get(LIVE_TOKENS, {}).get(replica, ())) for replica in replicas},
        graphs_gib={
            replica: sum(sample.value for sample in found) for replica, found in of.get(GRAPHS, {}).items() if found
        },
        requests={
            field: sum(sample.value for sample in _whole(by_name[name]))
            for field, name in REQUEST_NAMES.items()
            if name in by_name
        },
        notes=notes,
    )


def _leads(labels: Iterable[Labels]) -> dict[str, tuple[int, int]]:
    """The first pipeline and tensor rank that reports, by replica."""
    found: dict[str, tuple[int, int]] = {}
    for one in labels:
        if "tp_rank" in one and "cache_type" not in one:
            replica, rank = _replica(one), _rank(one)
            found[replica] = min(rank, found.get(replica, rank))
    return found


def _replica(labels: Labels) -> str:
    return labels.get("dp_rank", "")[:_MAX_NAME] or "0"


def _rank(labels: Labels) -> tuple[int, int]:
    return _number(labels.get("pp_rank")), _number(labels.get("tp_rank"))


def _number(text: str | None) -> int:
    return int(text[:9]) if text and text.isascii() and text.isdigit() else 0


def _of_leads(samples: Sequence[Sample], leads: Mapping[str, tuple[int, int]]) -> dict[str, list[Sample]]:
    """The samples of each replica's first rank."""
    found: dict[str, list[Sample]] = {}
    for sample in _whole(samples):
        replica = _replica(sample.labels)
        if leads.get(replica) == _rank(sample.labels):
            found.setdefault(replica, []).append(sample)
    return found


def _whole(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Without those of single priorities, and without totals where there are parts."""
    without = [sample for sample in samples if not sample.labels.get("priority")] or samples
    return [sample for sample in without if sample.labels.get("cache_source") != "total"] or without


def _values(of: Mapping[str, Mapping[str, Sequence[Sample]]], replica: str) -> dict[Field, float]:
    values: dict[Field, float] = {}
    for field, names in NAMES.items():
        found = next((of[name][replica] for name in names if replica in of.get(name, {})), ())
        if found:
            values[field] = max(sample.value for sample in found)
    for sample in of.get(PAGES_INFO, {}).get(replica, ()):
        values.setdefault("page_size", _number(sample.labels.get("page_size")))
        values.setdefault("pages", _number(sample.labels.get("num_pages")))
    return values


def _live(samples: Sequence[Sample]) -> dict[LiveField, float]:
    modes = ((LIVE_MODES.get(sample.labels.get("mode", "")), sample.value) for sample in samples)
    return {mode: value for mode, value in modes if mode is not None}
