"""Every query of every dashboard, asked as Grafana would of a real Prometheus that holds a day of a node."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.conftest import HeldDay
from tests.dashboards.day import SCRAPE_SECONDS
from tests.dashboards.grafana import View, opened
from tests.dashboards.model import FILES, annotations, load, panels

AT_MOST_SECONDS = 1.0
TRIES = 3
LEGEND = re.compile(r"\{\{(\w+)\}\}")
WITHOUT_DATA = {  # a word of the query: why it finds nothing on that day
    "vramscope_host_memory_": "no GPU of the node shares the host's memory",
    "vramscope_recording_start_timestamp_seconds": "the agent lives and replays nothing",
    "vramscope_server_refusals_total": "vLLM preempts, it refuses no request for want of room",
    "sglang:": "no SGLang runs there",
    "lmdeploy:": "no LMDeploy runs there",
    "trtllm_": "no TensorRT-LLM runs there",
}
WITHOUT_LABEL = {  # a word of the query and a label: why its series go without
    ("", "replica"): "each server has one replica, which needs no name",
    ("", "pool"): "each server has one pool, which needs no name",
    ("vramscope_memory_overattributed_bytes", "server"): "nothing is, and the one zero that is drawn is a device's",
}


@pytest.mark.parametrize("everything", [True, False], ids=["All", "all values chosen"])
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_query_finds_data(path: Path, everything: bool, day: HeldDay) -> None:
    """At its own time range each panel has data and each mark a moment, within a second, with the legend's labels."""
    document = load(path)
    view = opened(document, day.prometheus, end=day.end, scrape_seconds=SCRAPE_SECONDS, everything=everything)
    problems = [
        f"{title}: {problem}: {asked}"
        for title, asked, labels, ask in _requests(document, view, day)
        for problem in _problems(asked, labels, ask)
    ]
    assert problems == []


Ask = Callable[[], list[dict[str, Any]]]


def _requests(document: dict[str, Any], view: View, day: HeldDay) -> Iterator[tuple[str, str, set[str], Ask]]:
    """Title, query, labels that are shown and the request, of every panel's queries and every annotation."""
    server = day.prometheus

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


def _problems(query: str, labels: set[str], ask: Ask) -> Iterator[str]:
    reasons = [reason for word, reason in WITHOUT_DATA.items() if word in query]
    fastest = float("inf")
    for _ in range(TRIES):
        begun = time.monotonic()
        found = ask()
        fastest = min(fastest, time.monotonic() - begun)
        if fastest <= AT_MOST_SECONDS:
            break
    if fastest > AT_MOST_SECONDS:
        yield f"took {fastest:.2f} s"
    if not found and not reasons:
        yield "no data"
    if found and reasons:
        yield f"has data, though {'; '.join(reasons)}"
    carried = {label for series in found for label in series["metric"]}
    excused = {label for word, label in WITHOUT_LABEL if word in query}
    if found and (missing := labels - carried - excused):
        yield f"no series has {', '.join(sorted(missing))}"
