"""The alert rules: valid and behaving for promtool, formed alike, documented, and asking for metrics that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.metrics import BY_NAME
from tests.promtool import promtool

ROOT = Path(__file__).parents[2]
RULE_FILES = sorted((ROOT / "alerts").glob("*.yml"))
RULE_TESTS = sorted(Path(__file__).parent.glob("*.yml"))
RUNBOOK = ROOT / "docs" / "runbook.md"
RUNBOOK_URL = "https://github.com/vramscope/vramscope/blob/main/docs/runbook.md"


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


ALERTS: list[dict[str, Any]] = [
    rule for path in RULE_FILES for group in _load(path)["groups"] for rule in group["rules"] if "alert" in rule
]
each_alert = pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])


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
        if any(check["alertname"] == alert["alert"] for check in case["alert_rule_test"])
    ]

    assert {True, False} == set(fires)


@each_alert
def test_is_formed_like_the_others(alert: dict[str, Any]) -> None:
    """One name prefix, a known severity, a static summary that ends in a full stop, a description that says where."""
    annotations = alert["annotations"]

    assert re.fullmatch(r"Vramscope([A-Z][a-z0-9]+)+", alert["alert"])
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert alert["for"]
    assert re.fullmatch(r"[^{}]+[^{}.]\.", annotations["summary"])
    assert "{{ $labels.instance }}" in annotations["description"]
    assert "{{ $value" in annotations["description"]
    assert "`vramscope snapshot`" in annotations["description"]


@each_alert
def test_points_to_its_section_of_the_runbook(alert: dict[str, Any]) -> None:
    """The runbook's address ends in the lower-cased name, and that section is there and complete."""
    sections = re.split(r"^## ", RUNBOOK.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    section = next((text for text in sections if text.splitlines()[0] == alert["alert"]), "")

    assert f"{RUNBOOK_URL}#{alert['alert'].lower()}" == alert["annotations"]["runbook_url"]
    for part in ("What it means", "How to confirm", "What to do now", "What to do later", "When it is a false alarm"):
        assert f"**{part}.**" in section
    assert "vramscope snapshot" in section


@each_alert
def test_asks_for_metrics_that_exist(alert: dict[str, Any]) -> None:
    """Every metric of an expression is one that the agent exports."""
    names = set(re.findall(r"\b[a-z]+_[a-z_]+\b", re.sub(r"\{[^}]*\}", "", alert["expr"])))

    assert names
    assert names <= BY_NAME.keys()


def test_runbook_names_metrics_that_exist_and_no_other_alert() -> None:
    """The runbook neither asks for a metric that nobody exports nor describes an alert that is gone."""
    text = RUNBOOK.read_text(encoding="utf-8")

    assert set(re.findall(r"\bvramscope_\w+", text)) <= BY_NAME.keys()
    assert {alert["alert"] for alert in ALERTS} == set(re.findall(r"^## (\w+)$", text, flags=re.MULTILINE))


def test_no_two_alerts_share_a_name() -> None:
    """A name is used once over all files."""
    names = [alert["alert"] for alert in ALERTS]

    assert sorted(set(names)) == sorted(names)
