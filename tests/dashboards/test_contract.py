"""The contract of every committed dashboard, whatever generated it: what Grafana's own linter asks for, and more."""

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.metrics import BY_NAME
from tests.dashboards.model import FILES, expressions, filled_in, load, panels, targets
from tests.promtool import promtool

PANEL_TYPES = {"bargauge", "row", "stat", "state-timeline", "table", "timeseries"}
UNITS = {"bytes", "cps", "dateTimeFromNow", "percentunit", "s", "short"}
SELECTOR = re.compile(r"\b(vramscope_\w+)(\{[^}]*\})?")


@pytest.fixture(params=FILES, ids=[path.stem for path in FILES])
def path(request: pytest.FixtureRequest) -> Path:
    file: Path = request.param
    return file


@pytest.fixture
def document(path: Path) -> dict[str, Any]:
    return load(path)


def test_has_the_classic_shape_with_a_stable_identity(path: Path, document: dict[str, Any]) -> None:
    """Each import gets the same address, runs no migration of old formats, and can't be edited by accident."""
    assert (document["id"], document["uid"]) == (None, path.stem)
    assert document["schemaVersion"] >= 39
    assert document["editable"] is False
    assert document["title"]
    assert document["tags"]
    assert not {"rows", "nav", "__inputs"} & document.keys()


def test_has_one_data_source_variable_that_everything_uses(document: dict[str, Any]) -> None:
    """No data source of somebody's own Grafana is written down: it works by provisioning as by import."""
    variables = document["templating"]["list"]
    reference = {"type": "prometheus", "uid": "${datasource}"}

    assert [each["name"] for each in variables if each["type"] == "datasource"] == ["datasource"]
    assert all(each["datasource"] == reference for each in variables if each["type"] == "query")
    assert all(panel["datasource"] == reference for panel in panels(document))
    assert all(target["datasource"] == reference for _, target in targets(document))
    assert all(target["refId"] for _, target in targets(document))


def test_variables_choose_many_and_match_any_value(document: dict[str, Any]) -> None:
    """Job, instance, GPU and server are there; "All" is one short expression, and values follow the time range."""
    queries = [each for each in document["templating"]["list"] if each["type"] == "query"]

    assert [each["name"] for each in queries] == ["job", "instance", "gpu", "server"]
    for each in queries:
        assert (each["multi"], each["includeAll"], each["allValue"], each["refresh"]) == (True, True, ".+", 2)
        assert each["label"]


def test_panels_are_of_types_that_grafana_still_draws(document: dict[str, Any]) -> None:
    """No Angular panel and nothing that must be converted."""
    assert {panel["type"] for panel in document["panels"]} <= PANEL_TYPES


def test_panels_say_what_they_show(document: dict[str, Any]) -> None:
    """Each has a title, a description that is a sentence, and a unit that Grafana knows."""
    for panel in panels(document):
        assert panel["title"]
        assert re.fullmatch(r"[A-Z].*\.", panel["description"]), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]


def test_panels_have_their_own_place_and_number(document: dict[str, Any]) -> None:
    """Ids are unique, everything is inside the grid of 24 columns, and no panel covers another."""
    ids = [panel["id"] for panel in document["panels"]]
    places = [panel["gridPos"] for panel in document["panels"]]

    assert len(set(ids)) == len(ids)
    assert all(place["x"] >= 0 and place["w"] > 0 and place["x"] + place["w"] <= 24 and place["h"] for place in places)
    for a, b in combinations(places, 2):
        apart_x = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert apart_x or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], (a, b)


def test_side_by_side_panels_repeat_downwards(document: dict[str, Any]) -> None:
    """A panel repeated to the right takes the whole width, so only one alone on its line may."""
    for panel in panels(document):
        if panel.get("repeat") and panel["gridPos"]["w"] < 24:
            assert panel["repeatDirection"] == "v"


def test_queries_choose_by_job_and_instance(document: dict[str, Any]) -> None:
    """Every selector of every query follows the job and instance variables."""
    for expression in expressions(document):
        for name, labels in SELECTOR.findall(expression):
            assert 'job=~"$job"' in labels, (name, expression)
            assert 'instance=~"$instance"' in labels, (name, expression)


def test_queries_ask_for_metrics_and_labels_that_exist(document: dict[str, Any]) -> None:
    """Metrics are in the catalogue; labels in selectors and legends are those of the metric, or a scrape's."""
    for title, target in targets(document):
        carried = {"job", "instance"}
        for name, labels in SELECTOR.findall(target["expr"]):
            assert name in BY_NAME, title
            carried |= set(BY_NAME[name].labels)
            assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)", labels)) <= carried, title
        assert set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) <= carried, title


def test_every_metric_is_drawn() -> None:
    """What the agent exports is on a dashboard, or nobody will look at it."""
    drawn = {name for path in FILES for text in expressions(load(path)) for name, _ in SELECTOR.findall(text)}

    assert set() == BY_NAME.keys() - drawn


def test_counters_are_seen_as_rates(document: dict[str, Any]) -> None:
    """A counter is only ever the argument of rate or increase, over the interval that fits the scrapes."""
    for expression in expressions(document):
        counters = re.findall(r"\w+_total\b", expression)
        rates = re.findall(r"\b(?:rate|increase)\(\w+_total\{[^}]*\}\[\$__rate_interval\]\)", expression)
        assert len(counters) == len(rates), expression
        assert expression.count("[") == len(rates), expression


def test_figures_show_now_or_nothing(document: dict[str, Any]) -> None:
    """A panel without a time axis asks for this moment: the last value of a dead server would look alive."""
    for panel in panels(document):
        if panel["type"] in {"bargauge", "stat", "table"}:
            assert all(target["instant"] is True for target in panel["targets"]), panel["title"]


def test_legends_keep_their_braces(document: dict[str, Any]) -> None:
    """A label in a legend stands in double braces: the generator did not take it for a placeholder of its own."""
    for title, target in targets(document):
        if target.get("format") == "table":
            continue
        rest = re.sub(r"\{\{\w+\}\}", "", target["legendFormat"])
        assert target["legendFormat"], title
        assert not set("{}") & set(rest), title


def test_queries_are_valid(document: dict[str, Any], tmp_path: Path) -> None:
    """Prometheus parses every query with the variables filled in."""
    rules = [{"record": f"query:{i}", "expr": filled_in(text)} for i, text in enumerate(expressions(document))]
    rule_file = tmp_path / "queries.yml"
    rule_file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")

    promtool("check", "rules", "--lint=none", rule_file)


def test_alert_and_panel_ask_the_same_question() -> None:
    """The panel that explains VramscopeKvPoolFilling draws the very sum that the alert compares."""
    groups = yaml.safe_load((FILES[0].parents[2] / "alerts" / "kv_pool.yml").read_text(encoding="utf-8"))["groups"]
    rule = next(rule for group in groups for rule in group["rules"] if rule.get("alert") == "VramscopeKvPoolFilling")
    asked = (
        rule["expr"]
        .split("and\n")[1]
        .split(">=")[0]
        .replace("(vramscope_kv_capacity_tokens > 0)", "vramscope_kv_capacity_tokens")
    )
    drawn = [re.sub(r"\{[^}]*\}", "", text) for path in FILES for text in expressions(load(path))]

    assert asked.split() in [text.split() for text in drawn]
