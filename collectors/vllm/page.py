"""One ``/metrics`` page of vLLM: the few lines that are needed, under one name each, by replica."""

import math
import re
from collections.abc import Iterator

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from collectors.errors import Unreadable
from collectors.vllm.names import CACHE_CONFIG, NAMES, PREFIXES, PROCESS_START, SLEEP_STATE, Field

_BARE_NAMES = {name for names in NAMES.values() for name in names} | {CACHE_CONFIG, SLEEP_STATE}
_WANTED = {prefix + name: name for prefix in PREFIXES for name in _BARE_NAMES} | {PROCESS_START: PROCESS_START}
_NEEDED = re.compile(
    rf"^(?:{PROCESS_START}|(?:{'|'.join(PREFIXES)})(?:{'|'.join(sorted(_BARE_NAMES))}))[{{ ].*", re.MULTILINE
)
_MAX_LINES = 4096
_MAX_LINE_LENGTH = 65536

Values = dict[str, float]  # by replica


class Page(Struct, frozen=True, kw_only=True):
    """What a page says. ``cache_config`` holds the labels of ``cache_config_info`` by replica."""

    model: str | None
    replicas: tuple[str, ...]
    values: dict[Field, Values]
    cache_config: dict[str, dict[str, str]]
    sleeping: bool
    started_at: float | None


class _Sample(Struct, frozen=True):
    name: str
    labels: dict[str, str]
    value: float


def parse_page(text: str, *, source: str) -> Page:
    """The needed facts of a page, whose ``source`` is named in messages; values not finite or below 0 are left out.

    Several samples of one fact and replica (a ``pid`` label per API server, dead ones included) count as their maximum.

    Raises:
        Unreadable: no vLLM series at all, cut off, or a needed line that is malformed.
    """
    samples = list(_samples(text, source))
    served = [sample for sample in samples if sample.name != PROCESS_START]
    if not served:
        advice = "start vLLM without --disable-log-stats, or check that the URL is that of a vLLM server"
        raise Unreadable("no_series", f"{source} has no vllm: series; {advice}")
    values: dict[Field, Values] = {field: _values(served, names) for field, names in NAMES.items()}
    return Page(
        model=next((sample.labels["model_name"] for sample in served if sample.labels.get("model_name")), None),
        replicas=tuple(sorted({_replica(sample.labels) for sample in served}, key=lambda name: (len(name), name))),
        values=values,
        cache_config={_replica(sample.labels): sample.labels for sample in served if sample.name == CACHE_CONFIG},
        sleeping=_sleeping(served),
        started_at=_started_at(samples, values["created_at"]),
    )


def _samples(text: str, source: str) -> Iterator[_Sample]:
    for name, labels, value in _parsed(_needed_lines(text, source), source):
        if name in _WANTED and math.isfinite(value) and value >= 0:
            yield _Sample(_WANTED[name], labels, value)


def _needed_lines(text: str, source: str) -> list[str]:
    if text and not text.endswith(("\n", "# EOF")):
        raise Unreadable("truncated", f"{source} ends in the middle of a line; its answer was cut off on the way")
    lines = _NEEDED.findall(text)
    if len(lines) > _MAX_LINES or any(len(line) > _MAX_LINE_LENGTH for line in lines):
        got = f"more than {_MAX_LINES} needed lines, or one longer than {_MAX_LINE_LENGTH} characters"
        raise Unreadable("too_large", f"{source} has {got}; check that the URL is that of a vLLM server")
    return lines


def _parsed(lines: list[str], source: str) -> Iterator[tuple[str, dict[str, str], float]]:
    try:
        for family in text_string_to_metric_families("\n".join(lines)):
            for sample in family.samples:
                yield sample.name, sample.labels, float(sample.value)
    except Exception as exc:  # the parser promises no types, and the page is not ours
        advice = "expected the Prometheus text format: check that the URL is that of a vLLM server"
        raise Unreadable("malformed", f"{source} has a malformed line; {advice}") from exc


def _replica(labels: dict[str, str]) -> str:
    """The data-parallel rank, within its Ray replica where there is one."""
    rank = labels.get("engine") or "0"
    return f"{labels['ReplicaId']}/{rank}" if labels.get("ReplicaId") else rank


def _values(samples: list[_Sample], names: tuple[str, ...]) -> Values:
    for name in names:
        found: Values = {}
        for sample in samples:
            if sample.name == name:
                replica = _replica(sample.labels)
                found[replica] = max(sample.value, found.get(replica, 0.0))
        if found:
            return found
    return {}


def _sleeping(samples: list[_Sample]) -> bool:
    states = [(sample.labels.get("sleep_state"), sample.value) for sample in samples if sample.name == SLEEP_STATE]
    return any(state not in (None, "awake") and value == 1 for state, value in states)


def _started_at(samples: list[_Sample], created: Values) -> float | None:
    starts = [sample.value for sample in samples if sample.name == PROCESS_START]
    return min(starts, default=min(created.values(), default=None))
