"""The rules: valid and behaving for promtool, formed alike, documented, and asking for metrics that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.metrics import BY_NAME
from agent.rules import RUNBOOKS, THEMES, page_of
from tests.promtool import promtool

ROOT = Path(__file__).parents[2]
RULE_FILES = [ROOT / "alerts" / f"{theme}.yml" for theme in THEMES]
RULE_TESTS = sorted(Path(__file__).parent.glob("*.yml"))
PAGES = ROOT / "docs" / "runbooks"
ARE_NO_ALERT = {"README.md", "kv-ladder.md"}
METRIC = re.compile(r"\bvramscope_\w+")


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


RULES: list[dict[str, Any]] = [
    rule for path in RULE_FILES for group in _load(path)["groups"] for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDS = [rule for rule in RULES if "record" in rule]
each_alert = pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])
each_record = pytest.mark.parametrize("rule", RECORDS, ids=[rule["record"] for rule in RECORDS])
each_page = pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)


def _unquoted(expression: str) -> str:
    """An expression without what stands in quotes."""
    return re.sub(r'"[^"]*"', '""', expression)


def test_the_files_are_those_of_the_themes() -> None:
    """No file lies beside them that nobody makes, and each theme has its tests."""
    assert sorted(RULE_FILES) == sorted((ROOT / "alerts").glob("*.yml"))
    assert {path.name for path in RULE_FILES} == {path.name for path in RULE_TESTS}


def test_rules_are_valid() -> None:
    """Every rule file is accepted, and lint finds nothing to say."""
    promtool("check", "rules", "--lint=all", "--lint-fatal", *RULE_FILES)


@pytest.mark.parametrize("path", RULE_TESTS, ids=[path.stem for path in RULE_TESTS])
def test_rules_behave(path: Path) -> None:
    """Each alert fires, stays silent and clears as its cases say."""
    promtool("test", "rules", path)


@each_alert
def test_has_a_case_that_fires_and_one_that_stays_silent(alert: dict[str, Any]) -> None:
    """An alert has a promtool test in which it never fires, and another in which it does."""
    fires = [
        any(check["exp_alerts"] for check in case["alert_rule_test"] if check["alertname"] == alert["alert"])
        for path in RULE_TESTS
        for case in _load(path)["tests"]
        if any(check["alertname"] == alert["alert"] for check in case.get("alert_rule_test", ()))
    ]

    assert {True, False} == set(fires)


@each_alert
def test_is_formed_like_the_others(alert: dict[str, Any]) -> None:
    """One name prefix, a known severity, a static summary that ends in a full stop, a description that says where.

    It has a number, unless the alert is about a yes or no, and a likely cause.
    """
    annotations = alert["annotations"]

    assert re.fullmatch(r"Vramscope([A-Z][a-z0-9]+)+", alert["alert"])
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert alert["for"]
    assert re.fullmatch(r"[^{}]+[^{}.]\.", annotations["summary"])
    assert "{{ $labels.instance }}" in annotations["description"]
    assert "{{ $value" in annotations["description"] or re.search(r"== [01]", alert["expr"])
    assert "Likely cause: " in annotations["description"]
    assert "`vramscope snapshot" in annotations["description"]


def test_few_alerts_call_a_person() -> None:
    """Critical is what loses requests or a node now, and nothing else."""
    critical = {
        alert["alert"].removeprefix("Vramscope") for alert in ALERTS if alert["labels"]["severity"] == "critical"
    }

    assert critical == {"DeviceExhausting", "DeviceLost", "OutOfMemory", "UnifiedMemoryPressure"}


@pytest.mark.parametrize("rule", RULES, ids=[rule.get("alert") or rule["record"] for rule in RULES])
def test_keeps_the_labels_of_the_target(rule: dict[str, Any]) -> None:
    """Aggregation and matching name what they leave out, never what they keep: instance, cluster and others survive."""
    assert not re.search(r"\b(by|on)\b", _unquoted(rule["expr"]))


@pytest.mark.parametrize("rule", RULES, ids=[rule.get("alert") or rule["record"] for rule in RULES])
def test_asks_for_metrics_that_exist(rule: dict[str, Any]) -> None:
    """Every metric of an expression is one that the agent exports, or a recorded one."""
    text = _unquoted(rule["expr"])
    recorded = {record["record"] for record in RECORDS}
    with_colons = set(re.findall(r"\b\w+:\w+:\w+", text))
    names = set(METRIC.findall(re.sub(r"\b\w+:\w+:\w+", "", text)))

    assert names or with_colons
    assert with_colons <= recorded
    assert names <= BY_NAME.keys()


@each_record
def test_a_recorded_series_is_called_level_metric_operation(rule: dict[str, Any]) -> None:
    """Of a metric of ours; a counter without its ``_total``, as only its rate is recorded."""
    level, metric, operation = rule["record"].split(":")

    assert set(level.split("_")) <= {"instance", "level", "component", "gpu", "server", "kind"}
    assert metric in BY_NAME or f"{metric}_total" in BY_NAME
    assert re.fullmatch(r"(max_)?deviation|max|min|sum|count|ratio_rate10m|increase5m", operation)


@each_alert
def test_points_to_its_page(alert: dict[str, Any]) -> None:
    """The address is the base and the page's name, and the page is there under the alert's name."""
    page = PAGES / page_of(alert["alert"].removeprefix("Vramscope"))

    assert alert["annotations"]["runbook_url"] == f"{RUNBOOKS}/{page.name}"
    assert page.read_text(encoding="utf-8").startswith(f"# {alert['alert']}\n")


@each_page
def test_a_page_is_complete_and_of_an_alert(page: Path) -> None:
    """Meaning, impact, check, act, silence, in this order; metrics and alerts that it names exist."""
    text = page.read_text(encoding="utf-8")
    known = BY_NAME.keys() | {record["record"].split(":")[1] for record in RECORDS}

    assert set(METRIC.findall(text)) <= known
    if page.name not in ARE_NO_ALERT:
        assert text.splitlines()[0].removeprefix("# ") in {alert["alert"] for alert in ALERTS}
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Meaning", "Impact", "Check", "Act", "Silence"]
        assert "`vramscope " in text.partition("## Check")[2].partition("## Act")[0]


@pytest.mark.parametrize("name", ["KvPoolExhausting", "KvPoolFilling", "PreemptionStorm", "KvPoolBelowMaxModelLen"])
def test_a_full_pool_leads_to_the_ladder(name: str) -> None:
    """What helps a pool that is too small stands once, and every page about one leads there."""
    ladder = (PAGES / "kv-ladder.md").read_text(encoding="utf-8")
    rungs = re.findall(r"^\| (\d)\. ([^|]+) \|", ladder, re.MULTILINE)

    assert "(kv-ladder.md)" in (PAGES / page_of(name)).read_text(encoding="utf-8")
    assert [number for number, _ in rungs] == ["1", "2", "3", "4", "5", "6"]


def test_links_between_pages_lead_somewhere() -> None:
    """No broken relative link."""
    for page in PAGES.glob("*.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_no_two_alerts_share_a_name() -> None:
    """A name is used once over all files."""
    names = [alert["alert"] for alert in ALERTS]

    assert sorted(set(names)) == sorted(names)
