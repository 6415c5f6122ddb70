"""The contract of every committed dashboard, whatever generated it: its shape, variables, panels and links."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from agent.memory.risk import REASONS
from agent.rules import RUNBOOKS
from tests.dashboards.model import (
    ALERTS,
    FILES,
    ROOT,
    WITHOUT_TIME_AXIS,
    annotations,
    expressions,
    load,
    names,
    panels,
    targets,
)

PANEL_TYPES = {"bargauge", "gauge", "heatmap", "row", "stat", "state-timeline", "table", "text", "timeseries"}
UNITS = {"bytes", "cps", "dateTimeFromNow", "percentunit", "s", "short", "si:tok/s", "string"}
SCOPE = ["datasource", "job", "instance"]
CHOICES = ["gpu", "model", "server", "engine_job", "engine_instance"]
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
UIDS = {path.stem for path in FILES}
BUILT_IN = {"__data", "__rate_interval", "__range", "__range_s", "__url_time_range", "__value", "__all"}


@pytest.fixture(params=FILES, ids=[path.stem for path in FILES])
def path(request: pytest.FixtureRequest) -> Path:
    file: Path = request.param
    return file


@pytest.fixture
def document(path: Path) -> dict[str, Any]:
    return load(path)


def _variables(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in document["templating"]["list"]}


def test_there_is_one_dashboard_for_each_question() -> None:
    """Six, each with its own name and title; docs/dashboards.md has a section for every one."""
    titles = [load(path)["title"] for path in FILES]
    page = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")

    assert len(set(titles)) == len(FILES) == 6
    assert re.findall(r"^## (vramscope / .+)$", page, re.MULTILINE) == sorted(titles, key=page.index)


def test_has_the_classic_shape_with_a_stable_identity(path: Path, document: dict[str, Any]) -> None:
    """Each import gets the same address, runs no migration of old formats, and can't be edited by accident."""
    assert (document["id"], document["uid"]) == (None, path.stem)
    assert 39 <= document["schemaVersion"] <= 41
    assert document["editable"] is False
    assert document["title"]
    assert document["tags"]
    assert not {"rows", "nav", "__inputs", "__requires"} & document.keys()


def test_has_one_data_source_variable_that_everything_uses(document: dict[str, Any]) -> None:
    """No data source of somebody's own Grafana is written down: it works by provisioning as by import."""
    variables = document["templating"]["list"]

    assert [each["name"] for each in variables if each["type"] == "datasource"] == ["datasource"]
    assert all(each["datasource"] == DATASOURCE for each in variables if each["type"] == "query")
    assert all(panel["datasource"] == DATASOURCE for panel in panels(document))
    assert all(target["datasource"] == DATASOURCE for _, target in targets(document))
    assert all(each["datasource"] == DATASOURCE for each in annotations(document))
    assert set(re.findall(r'"uid": "([^"]*)"', json.dumps(document))) == {"${datasource}", document["uid"]}


def test_queries_of_a_panel_have_their_own_letters(document: dict[str, Any]) -> None:
    """Each panel asks for something; refIds are there and unique within it."""
    for panel in panels(document):
        letters = [target["refId"] for target in panel["targets"]]
        assert letters
        assert letters == list("ABCDEFGH"[: len(letters)]), panel["title"]


def test_variables_choose_many_and_match_any_value(document: dict[str, Any]) -> None:
    """Data source, job and instance come first; "All" is one short expression, and values follow the time range.

    Only where servers are narrowed by model, all of them are written out: those of the chosen models.
    """
    variables = _variables(document)
    own = list(variables)[len(SCOPE) :]

    assert list(variables)[: len(SCOPE)] == SCOPE
    assert [variables[name]["label"] for name in SCOPE] == ["Data source", "Job", "Instance"]
    assert own == [name for name in CHOICES if name in own]
    for name in list(variables)[1:]:
        each = variables[name]
        all_values = None if name == "server" and "model" in variables else ".+"
        assert (each["multi"], each["includeAll"], each["allValue"], each["refresh"]) == (True, True, all_values, 2)
        assert each["label"]


def test_variables_are_defined_and_used(document: dict[str, Any]) -> None:
    """Nothing is asked that no variable answers, and none is offered that changes nothing."""
    defined = _variables(document)
    asked = json.dumps({key: value for key, value in document.items() if key != "links"})
    used = set(re.findall(r"\$\{?([a-z_]\w*)", asked)) | set(re.findall(r'"repeat": "(\w+)"', asked))

    assert used - BUILT_IN == defined.keys()


def test_panels_are_of_types_that_grafana_still_draws(document: dict[str, Any]) -> None:
    """No Angular panel, no plugin, and nothing that must be converted."""
    assert {panel["type"] for panel in document["panels"]} <= PANEL_TYPES


def test_panels_say_what_they_show(document: dict[str, Any]) -> None:
    """Each has a title, a description of at least two sentences (what it says, what then), and units Grafana knows."""
    for panel in panels(document):
        units = {panel["fieldConfig"]["defaults"]["unit"]} | {
            one["value"]
            for override in panel["fieldConfig"]["overrides"]
            for one in override["properties"]
            if one["id"] == "unit"
        }
        assert panel["title"]
        assert re.fullmatch(r"[A-Z].*[a-z0-9)]\..*\.|[A-Z].*[;:].*\.", panel["description"]), panel["title"]
        assert units <= UNITS, panel["title"]


def test_titles_are_not_used_twice(document: dict[str, Any]) -> None:
    """A panel is found by its title within its dashboard."""
    titles = [panel["title"] for panel in panels(document)]

    assert len(set(titles)) == len(titles)


def test_panels_have_their_own_place_and_number(document: dict[str, Any]) -> None:
    """Ids are unique, everything is inside the grid of 24 columns, and no panel covers another."""
    ids = [panel["id"] for panel in document["panels"]]
    places = [panel["gridPos"] for panel in document["panels"]]

    assert len(set(ids)) == len(ids)
    assert all(place["x"] >= 0 and place["w"] > 0 and place["x"] + place["w"] <= 24 and place["h"] for place in places)
    for a, b in combinations(places, 2):
        apart_x = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert apart_x or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], (a, b)


def test_the_lines_of_the_grid_are_full(document: dict[str, Any]) -> None:
    """Side by side panels are as high as each other and fill the width, so that no hole makes one look missing."""
    for y in {panel["gridPos"]["y"] for panel in document["panels"]}:
        places = [panel["gridPos"] for panel in document["panels"] if panel["gridPos"]["y"] == y]
        assert sum(place["w"] for place in places) == 24, places
        assert len({place["h"] for place in places}) == 1, places


def test_side_by_side_panels_repeat_downwards(document: dict[str, Any]) -> None:
    """A panel repeated to the right takes the whole width, so only one alone on its line may."""
    for panel in panels(document):
        if panel.get("repeat") and panel["gridPos"]["w"] < 24:
            assert panel["repeatDirection"] == "v"


def test_figures_show_now_or_nothing(document: dict[str, Any]) -> None:
    """A panel without a time axis asks for this moment: the last value of a dead server would look alive."""
    for panel in panels(document):
        now = panel["type"] in WITHOUT_TIME_AXIS
        assert all(target.get("instant", False) is now for target in panel["targets"]), panel["title"]


def test_rows_of_a_table_meet(document: dict[str, Any]) -> None:
    """Several queries make one row where their labels agree, so the names of their series are taken out before."""
    for panel in panels(document):
        if panel["type"] == "table" and len(panel["targets"]) > 1:
            first, second = panel["transformations"][:2]
            assert first == {"id": "filterFieldsByName", "options": {"exclude": {"names": ["Time", "__name__"]}}}
            assert second["id"] == "merge", panel["title"]


def test_numbers_that_are_names_have_no_unit(document: dict[str, Any]) -> None:
    """GPU 0 is no 0 B: Grafana gives the unit of a table to every text that reads as a number, but where it is told."""
    for panel in panels(document):
        if panel["type"] == "table":
            unit = panel["fieldConfig"]["defaults"]["unit"]
            told = {
                override["matcher"]["options"]
                for override in panel["fieldConfig"]["overrides"]
                if {"id": "unit", "value": "string"} in override["properties"]
            }
            assert unit == "string" or {"gpu", "replica"} <= told, panel["title"]


def test_legends_keep_their_braces(document: dict[str, Any]) -> None:
    """A label in a legend stands in double braces: the generator did not take it for a placeholder of its own."""
    for title, target in targets(document):
        if target.get("format") == "table":
            continue
        beside = re.sub(r"\{\{\w+\}\}", "", target["legendFormat"])
        assert target["legendFormat"], title
        assert not set("{}") & set(beside), title


def test_what_is_at_risk_stands_at_the_top() -> None:
    """Fleet and node begin with node, GPU, server, reason, component and time left; each reason is told in words."""
    for name in ("vramscope-fleet", "vramscope-node"):
        table = next(panel for panel in panels(load(ROOT / f"dashboards/json/{name}.json")) if panel["type"] == "table")
        shown = {
            override["matcher"]["options"]: {one["id"]: one["value"] for one in override["properties"]}
            for override in table["fieldConfig"]["overrides"]
        }
        assert table["gridPos"]["y"] <= 5
        assert {"instance", "gpu", "server", "rank_on", "reason", "component", "^Value( #A)?$"} <= shown.keys()
        assert set(shown["reason"]["mappings"][0]["options"]) == {*REASONS, "down"}
        assert table["options"]["sortBy"][0] == {"displayName": shown["^Value( #A)?$"]["displayName"], "desc": True}
        assert (shown["Value #B"]["displayName"], shown["Value #B"]["unit"]) == ("Time left", "s")
        assert shown["Value #B"]["mappings"][0]["options"]["result"]["text"] == "-"  # of what has no forecast


def test_dashboards_lead_to_each_other(document: dict[str, Any]) -> None:
    """All carry one tag, and a link to what has it keeps variables and time."""
    link = next(each for each in document["links"] if each["type"] == "dashboards")

    assert set(link["tags"]) <= set(document["tags"])
    assert (link["includeVars"], link["keepTime"]) == (True, True)


def test_links_lead_somewhere(document: dict[str, Any]) -> None:
    """A link to a dashboard knows it and its variables; one to a runbook knows its page."""
    for url in re.findall(r'"url": "([^"]+)"', json.dumps(document)):
        page, _, query = url.partition("?")
        if page.startswith("/d/"):
            assert page.removeprefix("/d/") in UIDS, url
            there = _variables(load(ROOT / f"dashboards/json/{page.removeprefix('/d/')}.json"))
            assert set(re.findall(r"var-(\w+)=|\$\{(\w+):queryparam\}", query)) <= {
                pair for name in there for pair in ((name, ""), ("", name))
            }, url
            assert "${__url_time_range}" in query, url
        else:
            assert page.startswith(RUNBOOKS), url
            assert (ROOT / "docs" / "runbooks" / page.rsplit("/", 1)[1]).exists(), url


COMMON = {  # series that an alert asks for beside what it is about
    "vramscope_budget_bytes",
    "vramscope_build_info",
    "vramscope_kv_capacity_tokens",
    "vramscope_memory_total_bytes",
    "vramscope_server_info",
    "vramscope_server_prefix_query_tokens_total",
    "vramscope_server_requests",
    "vramscope_server_start_time_seconds",
    "vramscope_server_state",
}
SERIES = re.compile(r"(?<![\w:])(?:\w+:)?vramscope_\w+(?::\w+)?")


def _alerts_about() -> dict[str, set[str]]:
    """The pages of the alerts that ask for a series, by series."""
    about: dict[str, set[str]] = {}
    for alert in ALERTS:
        for name in set(SERIES.findall(alert["expr"])) - COMMON:
            about.setdefault(name, set()).add(alert["annotations"]["runbook_url"])
    return about


def test_a_panel_of_what_an_alert_watches_links_its_runbook(document: dict[str, Any]) -> None:
    """From each panel that shows what can fire, one click leads to what to do then."""
    about = _alerts_about()
    for panel in panels(document):
        pages = set().union(*(about.get(name, set()) for one in panel["targets"] for name in names(one["expr"])))
        linked = {link["url"] for link in panel.get("links", ())}
        assert not pages or pages & linked, f"{panel['title']}: one of {sorted(pages)}"


def test_every_panel_leads_to_a_runbook(document: dict[str, Any]) -> None:
    """Also one that no alert watches: it helps to act on one."""
    without = [panel["title"] for panel in panels(document) if not panel.get("links")]
    assert without == []


def test_every_alert_has_a_panel_that_leads_to_its_runbook() -> None:
    """What can fire can be looked at."""
    linked = {link["url"] for path in FILES for panel in panels(load(path)) for link in panel.get("links", ())}

    assert {alert["annotations"]["runbook_url"] for alert in ALERTS} <= linked


def test_alert_and_panel_ask_the_same_question() -> None:
    """The panel that explains VramscopeKvPoolFilling draws the very sum that the alert compares."""
    rule = next(rule for rule in ALERTS if rule["alert"] == "VramscopeKvPoolFilling")
    asked = rule["expr"].split("and\n")[1].rsplit(">=")[0]
    drawn = [re.sub(r"\{[^}]*\}", "", text) for path in FILES for text in expressions(load(path))]

    assert asked.split() in [text.split() for text in drawn]
