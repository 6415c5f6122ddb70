"""Every query of every dashboard, asked as Grafana would of a real Prometheus that holds a day of a node."""

from pathlib import Path

import pytest

from tests.dashboards.asking import problems
from tests.dashboards.conftest import HeldDay
from tests.dashboards.day import SCRAPE_SECONDS
from tests.dashboards.grafana import opened
from tests.dashboards.model import FILES, load

WITHOUT_DATA = {  # a word of the query: why it finds nothing on that day
    "vramscope_host_memory_": "no GPU of the node shares the host's memory",
    "vramscope_recording_start_timestamp_seconds": "the agent lives and replays nothing",
    "vramscope_device_row_remap_failure": "no row remap fails there",
    "vramscope_server_refusals_total": "vLLM preempts, it refuses no request for want of room",
    "max(vramscope_kv_running_longest_tokens": "vLLM does not tell the length of each request",
    "max by (instance) (vramscope_kv_running_longest_tokens": "likewise",
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
    found = problems(document, view, day.prometheus, without_data=WITHOUT_DATA, without_label=WITHOUT_LABEL)
    assert found == []
