"""Queries of a dashboard asked of a real Prometheus, and what is wrong with the answers."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tests.dashboards.grafana import View
from tests.dashboards.model import annotations, panels
from tests.prometheus import Prometheus

AT_MOST_SECONDS = 1.0
TRIES = 3
LEGEND = re.compile(r"\{\{(\w+)\}\}")
Ask = Callable[[], list[dict[str, Any]]]


def problems(
    document: Mapping[str, Any],
    view: View,
    server: Prometheus,
    *,
    without_data: Mapping[str, str],
    without_label: Mapping[tuple[str, str], str],
) -> list[str]:
    """What is wrong with the answers to the queries of every panel and annotation: none, slow, without a label shown.

    Args:
        without_data: a word of a query and why it finds nothing; that it does find something is a problem too.
        without_label: a word of a query with a label, and why its series go without.
    """
    found = []
    for title, query, labels, ask in _requests(dict(document), view, server):
        reasons = [reason for word, reason in without_data.items() if word in query]
        excused = {label for word, label in without_label if word in query}
        found += [f"{title}: {problem}: {query}" for problem in _problems(ask, reasons, labels - excused)]
    return found


def fastest(ask: Ask) -> tuple[float, list[dict[str, Any]]]:
    """Seconds that an answer takes, of three tries unless one is quick enough, and the answer."""
    taken = float("inf")
    for _ in range(TRIES):
        begun = time.monotonic()
        answer = ask()
        taken = min(taken, time.monotonic() - begun)
        if taken <= AT_MOST_SECONDS:
            break
    return taken, answer


def _requests(document: dict[str, Any], view: View, server: Prometheus) -> Iterator[tuple[str, str, set[str], Ask]]:
    """Title, query, labels that are shown and the request, of every panel's queries and every annotation."""

    def over_time(query: str) -> Ask:
        return lambda: server.range(query, start=view.start, end=view.end, step=view.step)

    def at_the_end(query: str) -> Ask:
        return lambda: server.at(query, view.end)

    for panel in panels(document):
        for target in panel["targets"]:
            query = view.filled_in(target["expr"])
            ask = at_the_end(query) if target.get("instant") else over_time(query)
            yield panel["title"], query, set(LEGEND.findall(target.get("legendFormat", ""))), ask
    for mark in annotations(document):
        query = view.filled_in(mark["expr"])
        yield mark["name"], query, set(LEGEND.findall(mark["titleFormat"] + mark["textFormat"])), over_time(query)


def _problems(ask: Ask, reasons: Sequence[str], labels: set[str]) -> Iterator[str]:
    taken, found = fastest(ask)
    if taken > AT_MOST_SECONDS:
        yield f"took {taken:.2f} s"
    if not found and not reasons:
        yield "no data"
    if found and reasons:
        yield f"has data, though {'; '.join(reasons)}"
    carried = {label for series in found for label in series["metric"]}
    if found and (missing := labels - carried):
        yield f"no series has {', '.join(sorted(missing))}"
