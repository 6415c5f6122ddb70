"""The fleet's dashboard and the recording rules over many nodes in a real Prometheus, and how many series a GPU has."""

import time
from collections.abc import Iterator, Mapping, Sequence

import pytest
from msgspec import Struct

from tests.dashboards.asking import AT_MOST_SECONDS, fastest, problems
from tests.dashboards.fleet import GPUS, HOUR, KINDS, SCRAPE_SECONDS, Story, a_fleet, kind_of
from tests.dashboards.grafana import opened
from tests.dashboards.model import JSON, RULES, load
from tests.prometheus import Prometheus
from tests.real import require

SERIES_OF_A_GPU = 150
WITHOUT_DATA = {"instance:vramscope_device_exhaustion_seconds:min": "a creep is foreseen from after two hours"}
Pages = Mapping[str, Sequence[str]]


class HeldFleet(Struct, frozen=True, kw_only=True):
    """A Prometheus that holds so many nodes, and when their last scrape was, in seconds since the epoch."""

    prometheus: Prometheus
    nodes: int
    end: int


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """The pages of a node of each kind, made once."""
    folder = tmp_path_factory.mktemp("stories")
    return {kind: Story(folder / kind, kind).scrapes() for kind in KINDS}


@pytest.fixture(scope="module", params=[25, pytest.param(125, marks=pytest.mark.soak)], ids=["200 GPUs", "1000 GPUs"])
def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, pages: Pages
) -> Iterator[HeldFleet]:
    """So many nodes, and one more that is down."""
    require("prometheus")
    require("promtool")
    end = int(time.time()) // SCRAPE_SECONDS * SCRAPE_SECONDS
    with a_fleet(tmp_path_factory.mktemp("fleet"), pages, nodes=request.param, end=end) as server:
        yield HeldFleet(prometheus=server, nodes=request.param, end=end)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_has_few_series(kind: str, pages: Pages) -> None:
    """A node of eight GPUs and eight servers has at most 150 series for each GPU, its servers' and agent's included."""
    most = max(sum(not line.startswith("#") for line in page.splitlines()) for page in pages[kind])
    print(f"{kind}: {most / GPUS:.1f} series for each GPU")
    assert most / GPUS <= SERIES_OF_A_GPU


def test_every_query_of_the_fleet_is_quick(fleet: HeldFleet) -> None:
    """With every variable at "All" each panel, mark and variable of the fleet's dashboard answers within a second."""
    document = load(JSON / "vramscope-fleet.json")
    begun = time.monotonic()
    view = opened(document, fleet.prometheus, end=fleet.end, scrape_seconds=SCRAPE_SECONDS, everything=True)
    assert time.monotonic() - begun <= AT_MOST_SECONDS
    assert problems(document, view, fleet.prometheus, without_data=WITHOUT_DATA, without_label={}) == []


@pytest.mark.parametrize("rule", RULES, ids=[rule.get("record", rule.get("alert")) for rule in RULES])
def test_every_rule_is_quick(rule: Mapping[str, str], fleet: HeldFleet) -> None:
    """A rule is evaluated over all nodes within a second."""
    taken, _ = fastest(lambda: fleet.prometheus.at(rule["expr"], fleet.end))
    assert taken <= AT_MOST_SECONDS


def test_every_gpu_and_node_is_counted(fleet: HeldFleet) -> None:
    """Each GPU of the nodes that answer is there, one line a node, the risky, the blind and the one that is down."""
    kinds = [kind_of(node) for node in range(fleet.nodes)]
    asked = {
        "count(vramscope_memory_free_ratio)": fleet.nodes * GPUS,
        "count(count by (uuid) (vramscope_device_info))": fleet.nodes * GPUS,
        "count(instance:vramscope_headroom_ratio:min)": fleet.nodes,
        "count(instance:vramscope_risk_level:max)": fleet.nodes,
        'sum(instance_level:vramscope_risk_level:count{level="3"})': 2 * kinds.count("at_risk"),
        "count(instance:vramscope_collector_success:min == 0)": kinds.count("blind"),
        "count(up == 0)": 1,
        f"count(vramscope_memory_free_ratio offset {HOUR}s)": (fleet.nodes + 1) * GPUS,
    }
    counted = {query: fleet.prometheus.at(query, fleet.end)[0]["value"][1] for query in asked}
    assert counted == {query: str(count) for query, count in asked.items()}
