"""One ``/metrics`` page of vLLM: the few lines that are needed, under one name each, by replica."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from collectors.errors import Unreadable
from collectors.exposition import Labels, Sample, Wanted, possible
from collectors.readings import AdaptersReading, OffloadReading
from collectors.vllm.beside import adapters_of, lmcache_of, offload_of
from collectors.vllm.names import (
    ADAPTERS,
    CACHE_CONFIG,
    LMCACHE,
    NAMES,
    OFFLOAD_CONFIG,
    PREFIXES,
    PROCESS_START,
    SIMPLE_OFFLOAD_CONFIG,
    SLEEP_STATE,
    V0_ONLY,
    Field,
)

_INFO = {ADAPTERS, CACHE_CONFIG, OFFLOAD_CONFIG, SIMPLE_OFFLOAD_CONFIG, SLEEP_STATE, V0_ONLY}
_BARE_NAMES = {name for names in NAMES.values() for name in names} | _INFO
_OF_THE_SERVER = {name: name for name in (PROCESS_START, *LMCACHE)}  # without a replica
FULL_NAMES = {prefix + name: name for prefix in PREFIXES for name in _BARE_NAMES} | _OF_THE_SERVER
_WANTED = Wanted(FULL_NAMES, spare={prefix + ADAPTERS for prefix in PREFIXES})  # vLLM never forgets a set of them
_OTHERS = frozenset({ADAPTERS, *_OF_THE_SERVER})
_OLDEST_FIRST = [(name, field) for field, names in NAMES.items() for name in reversed(names)]
_UNKNOWN = frozenset({"", "None", "0"})
MAX_REPLICAS = 512
_MAX_NAME = 128

Values = dict[str, float]  # by replica
Sleep = Literal["weights_offloaded", "discard_all"]  # levels 1 and 2


class Page(Struct, frozen=True, kw_only=True):
    """What a page says; one without any vLLM series has no replicas.

    ``cache_config`` holds the labels of ``cache_config_info`` by replica, ``disputed`` the names of those that two
    samples of one replica disagree about (they are left out), ``contested`` whether two disagree about its usage,
    ``notes`` which values can't be. ``missing``: replicas that pages before had, of the same run. ``paused``: the
    scheduler stands still, and the KV pool may have been released. ``v0``: a page of the engine before V1.
    """

    models: tuple[str, ...]
    replicas: tuple[str, ...]
    values: dict[Field, Values]
    cache_config: dict[str, Labels]
    disputed: frozenset[str]
    contested: bool
    sleep: Sleep | None
    paused: bool
    offload: tuple[OffloadReading, ...]
    adapters: tuple[AdaptersReading, ...]
    v0: bool
    started_at: float | None
    notes: tuple[str, ...]
    missing: tuple[str, ...] = ()


def parse_page(text: str, *, source: str) -> Page:
    """The needed facts of a page, whose ``source`` is named in messages; values that can't be are left out.

    Several samples of one fact and replica (a ``pid`` label per API server, dead ones included) count as their maximum.

    Raises:
        Unreadable: cut off, a needed line that is malformed, or far more of them, or of replicas, than there can be.
    """
    samples = _WANTED.samples(text, source=source)
    served = _served(samples)
    replica = _naming(served)
    by_name: dict[str, list[Sample]] = {}
    kept, notes = possible(samples)
    for sample in kept:
        by_name.setdefault(FULL_NAMES[sample.name], []).append(sample)
    replicas = _replicas(served, replica)
    if len(replicas) > MAX_REPLICAS:
        raise Unreadable("too_large", f"{source} names {len(replicas)} replicas; expected at most {MAX_REPLICAS}")
    most = _most(by_name, {id(labels): replica(labels) for labels in served})
    values: dict[Field, Values] = {field: {} for field in NAMES}
    for name, field in _OLDEST_FIRST:
        if name in most:
            values[field] = most[name]
    cache_config, disputed = _agreed(by_name.get(CACHE_CONFIG, ()), replica)
    native, _ = _agreed(by_name.get(OFFLOAD_CONFIG, ()), replica)
    simple, _ = _agreed(by_name.get(SIMPLE_OFFLOAD_CONFIG, ()), replica)
    states = by_name.get(SLEEP_STATE, ())
    starts = [sample.value for sample in by_name.get(PROCESS_START, ())] or values["created_at"].values()
    return Page(
        models=tuple(dict.fromkeys(labels["model_name"] for labels in served if labels.get("model_name"))),
        replicas=replicas,
        values=values,
        cache_config=cache_config,
        disputed=disputed,
        contested=_contested(by_name, replica),
        sleep=_sleep(states),
        paused=_sleep(states) is None and any(_is_awake(one) and not one.value for one in states),
        offload=tuple(
            one
            for name in replicas
            for one in offload_of(name, values, cache_config.get(name, {}), native.get(name, {}), simple.get(name, {}))
        )
        + lmcache_of([sample for name in LMCACHE for sample in by_name.get(name, ())]),
        adapters=adapters_of(by_name.get(ADAPTERS, ())),
        v0=V0_ONLY in by_name,
        started_at=min(starts, default=None),
        notes=notes,
    )


def _replicas(served: Sequence[Labels], replica: Callable[[Labels], str]) -> tuple[str, ...]:
    """In the order of their numbers. ``cache_config_info`` names no model: where models share a page it adds none."""
    named = {replica(labels) for labels in served if _family(labels)} or {replica(labels) for labels in served}
    return tuple(sorted(named, key=lambda name: (len(name), name)))


def _naming(served: Iterable[Labels]) -> Callable[[Labels], str]:
    """How to name a sample's replica: by its data-parallel rank, within its family where the page has several."""
    several = len({family for labels in served if (family := _family(labels))}) > 1

    def replica(labels: Labels) -> str:
        rank = labels.get("engine", "")[:_MAX_NAME] or "0"
        family = _family(labels) if several else None
        return f"{family[:_MAX_NAME]}/{rank}" if family else rank

    return replica


def _family(labels: Labels) -> str | None:
    """What has an engine 0 of its own: a Ray replica (named since 0.12, before only by its worker), else a model."""
    return labels.get("ReplicaId") or labels.get("WorkerId") or labels.get("model_name")


def _served(samples: Iterable[Sample]) -> Sequence[Labels]:
    """The labels of replicas, each set once, for most samples of a page share theirs."""
    return list({id(one.labels): one.labels for one in samples if FULL_NAMES[one.name] not in _OTHERS}.values())


def _most(by_name: Mapping[str, Sequence[Sample]], replicas: Mapping[int, str]) -> dict[str, Values]:
    """By name and replica, which is named by the identity of its labels, the highest value."""
    most: dict[str, Values] = {}
    for name, samples in by_name.items():
        if name in _OTHERS:
            continue
        found = most[name] = {}
        for sample in samples:
            key = replicas[id(sample.labels)]
            found[key] = max(sample.value, found.get(key, 0.0))
    return most


def _newest(by_name: dict[str, list[Sample]], names: tuple[str, ...]) -> Sequence[Sample]:
    return next((by_name[name] for name in names if name in by_name), ())


def _contested(by_name: dict[str, list[Sample]], replica: Callable[[Labels], str]) -> bool:
    """Of several API servers one knows the usage and the others say 0: two that say more are not both alive."""
    known = {(replica(one.labels), one.value) for one in _newest(by_name, NAMES["used_ratio"]) if one.value}
    return len(known) > len({name for name, _ in known})


def _agreed(samples: Sequence[Sample], replica: Callable[[Labels], str]) -> tuple[dict[str, Labels], frozenset[str]]:
    """Labels by replica: of several samples what one of them knows; what they disagree about is not known."""
    agreed: dict[str, Labels] = {}
    disputed: set[str] = set()
    for sample in samples:
        key = replica(sample.labels)
        labels = agreed.setdefault(key, sample.labels)
        if labels is not sample.labels:
            agreed[key] = _joined(labels, sample.labels, disputed)
    if disputed:
        for key, labels in agreed.items():
            agreed[key] = {name: value for name, value in labels.items() if name not in disputed}
    return agreed, frozenset(disputed)


def _joined(known: Labels, more: Labels, disputed: set[str]) -> Labels:
    """What one of them knows; names that they disagree about are added to ``disputed``."""
    joined = {**more, **known}
    for name, value in more.items():
        if joined[name] in _UNKNOWN:
            joined[name] = value
        elif value not in (joined[name], *_UNKNOWN) and name != "pid":
            disputed.add(name)
    return joined


def _is_awake(sample: Sample) -> bool:
    return sample.labels.get("sleep_state") == "awake"


def _sleep(samples: Sequence[Sample]) -> Sleep | None:
    """The deepest sleep of any replica; a pause of the scheduler is none.

    vLLM says so until all is awake again: of one that is woken in part it does not tell which.
    """
    on = {sample.labels.get("sleep_state") for sample in samples if sample.value == 1}
    levels: tuple[Sleep, ...] = ("discard_all", "weights_offloaded")
    return next((level for level in levels if level in on), None)
