"""What the queries of panels and annotations ask for: series and labels that exist, chosen by job and instance."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from agent.metrics import BY_NAME, CATALOGUE
from tests.dashboards.foreign import ENGINES
from tests.dashboards.model import (
    FILES,
    RECORDED,
    annotations,
    every_expression,
    expressions,
    filled_in,
    known_labels,
    load,
    names,
    panels,
    rest,
    selectors,
    targets,
    unknown,
)
from tests.promtool import promtool

FUNCTIONS = "abs clamp_max clamp_min floor histogram_quantile increase label_replace last_over_time rate time vector"
OPERATORS = "and bool or unless bottomk count group max min quantile sum topk"
WORDS = {*FUNCTIONS.split(), *OPERATORS.split()}
LIMITED = re.compile(r"\b(topk|bottomk|max|min|sum|count|quantile)\b")
FIRST = re.compile(r"([\w:]+_total\{[^}]*\}) > 0 unless \1 offset \$__rate_interval")  # of a series that begins with it
ON_DISK = {"vramscope_build_info"}  # whose last value of a day is asked for


@pytest.fixture(params=FILES, ids=[path.stem for path in FILES])
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


def test_a_dashboard_asks_only_for_series_that_exist() -> None:
    """Each is in the catalogue, is recorded by a rule of ours, or is declared as another's own."""
    assert unknown() == set()


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_a_renamed_metric_is_noticed(metric: Any) -> None:
    """Whichever metric of the catalogue gets another name, a dashboard asks for one that is no longer there."""
    renamed = [
        msgspec.structs.replace(each, name=f"{each.name}_renamed") if each is metric else each for each in CATALOGUE
    ]

    assert unknown(renamed) == {metric.name}


def test_every_metric_is_drawn() -> None:
    """What the agent exports is on a dashboard, or nobody will look at it."""
    drawn = {name for path in FILES for text in expressions(load(path)) for name in names(text)}

    assert set() == BY_NAME.keys() - drawn


def test_every_declared_series_of_an_engine_is_drawn() -> None:
    """The list of others' series holds no leftovers."""
    drawn = {name for path in FILES for text in expressions(load(path)) for name in names(text)}

    assert set() == ENGINES.keys() - drawn


def test_every_series_recorded_for_overviews_is_drawn() -> None:
    """What is recorded by node costs storage, so the fleet's dashboard uses it."""
    drawn = {name for path in FILES for text in expressions(load(path)) for name in names(text)}

    assert {name for name in RECORDED if name.startswith("instance")} <= drawn


def test_queries_choose_by_job_and_instance(document: dict[str, Any]) -> None:
    """Every selector follows these variables: the agent's, or of an engine's own series the engine's; none is bare."""
    for expression in every_expression(document):
        for name, matchers in selectors(expression):
            prefix = "engine_" if name in ENGINES else ""
            assert f'job=~"${prefix}job"' in matchers, (name, expression)
            assert f'instance=~"${prefix}instance"' in matchers, (name, expression)
        assert selectors(expression)
        assert rest(expression) <= WORDS, expression


def test_labels_are_those_of_the_series(document: dict[str, Any]) -> None:
    """A label in a selector is one of its series, one in a legend of some series of its query."""
    known = known_labels()
    asked = [(target["expr"], target.get("legendFormat", "")) for _, target in targets(document)]
    asked += [(one["expr"], f"{one['titleFormat']} {one['textFormat']}") for one in annotations(document)]
    for expression, legend in asked:
        for name, matchers in selectors(expression):
            matched = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", matchers))
            assert matched <= known[name] | {"__name__"}, (name, expression)
        carried = set().union(*(known[name] for name in names(expression)))
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= carried, (legend, expression)


def test_counters_are_seen_as_rates(document: dict[str, Any]) -> None:
    """A counter is only ever the argument of rate or increase, over the interval that fits the scrapes, or is new.

    A table may count over the whole time shown; only what an agent was is remembered for a day.
    """
    for whole in every_expression(document):
        expression = FIRST.sub(" ", whole)
        counters = re.findall(r"\b[\w:]+_(?:total|bucket)\{", expression)
        rates = re.findall(
            r"\b(?:rate\([\w:]+_(?:total|bucket)\{[^}]*\}\[\$__rate_interval\]\)"
            r"|increase\([\w:]+_total\{[^}]*\}\[\$__(?:rate_interval|range)\]\))",
            expression,
        )
        remembered = re.findall(r"last_over_time\((\w+)\{[^}]*\}\[1d\]\)", expression)
        assert len(counters) == len(rates), expression
        assert set(remembered) <= ON_DISK, expression
        assert expression.count("[") == len(rates) + len(remembered), expression


def test_a_count_over_the_whole_time_is_a_figure(document: dict[str, Any]) -> None:
    """What spans the time shown is one number, never a line."""
    for panel in panels(document):
        if any("$__range" in target["expr"] for target in panel["targets"]):
            assert panel["type"] == "table"


def test_the_fleet_never_draws_a_line_for_each_gpu() -> None:
    """Over time only aggregates of what is recorded by node; at one moment only the first few, or what is amiss."""
    for panel in panels(load(next(path for path in FILES if path.stem == "vramscope-fleet"))):
        for target in panel["targets"]:
            expression = target["expr"]
            if panel["type"] == "timeseries":
                assert names(expression) <= set(RECORDED), panel["title"]
                assert re.match(r"(sum|max|min|quantile)\b", expression), panel["title"]
            else:
                few = LIMITED.search(expression) or re.search(r"(>=|==) \d", expression)
                assert few or names(expression) <= set(RECORDED), panel["title"]


def test_queries_are_valid(document: dict[str, Any], tmp_path: Path) -> None:
    """Prometheus parses every query with the variables filled in."""
    rules = [{"record": f"query:{i}", "expr": filled_in(text)} for i, text in enumerate(every_expression(document))]
    rule_file = tmp_path / "queries.yml"
    rule_file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")

    promtool("check", "rules", "--lint=none", rule_file)
