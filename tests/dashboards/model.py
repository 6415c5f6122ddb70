"""The committed dashboards as these tests look at them: panels, queries, and what stands in a query."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from agent.metrics import CATALOGUE
from tests.dashboards.foreign import ENGINES, PROMETHEUS

ROOT = Path(__file__).parents[2]
JSON = ROOT / "dashboards" / "json"
FILES = sorted(JSON.glob("*.json"))
ALL_VALUES = ".+"
WITHOUT_TIME_AXIS = {"bargauge", "gauge", "stat", "table"}
SELECTOR = re.compile(r"(?<![\w:])([a-zA-Z_][\w:]*)\{([^}]*)\}")
RULES: list[dict[str, Any]] = [
    rule
    for path in sorted((ROOT / "alerts").glob("*.yml"))
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDED = [rule["record"] for rule in RULES if "record" in rule]


def load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def panels(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels that draw something."""
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def targets(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in panels(document):
        for target in panel["targets"]:
            yield panel["title"], target


def annotations(document: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document["annotations"]["list"]
    return found


def expressions(document: dict[str, Any]) -> list[str]:
    """The queries of all panels."""
    return [target["expr"] for _, target in targets(document)]


def every_expression(document: dict[str, Any]) -> list[str]:
    """Those, and the queries of annotations."""
    return [*expressions(document), *(one["expr"] for one in annotations(document))]


def selectors(expression: str) -> list[tuple[str, str]]:
    """The name and the matchers of each series that is asked for."""
    return SELECTOR.findall(expression)


def names(expression: str) -> set[str]:
    return {name for name, _ in selectors(expression)}


def rest(expression: str) -> set[str]:
    """The words beside selectors, texts, lists of labels and durations: functions, operators, and bare names if any."""
    text = SELECTOR.sub(" ", re.sub(r'"[^"{}]*"', lambda text: text[0].replace("(", "").replace(")", ""), expression))
    text = re.sub(r'"[^"]*"', " ", text)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    text = re.sub(r"\[[^\]]*\]|\boffset \$?\w+|\$__range_s\b|\b[\d.]+\b", " ", text)
    return set(re.findall(r"[a-zA-Z_:$][\w:]*", text))


def known_labels(catalogue: Iterable[Any] = CATALOGUE) -> Mapping[str, set[str]]:
    """Every series that may be drawn, with its labels: ours, what our rules record (by its level), and the declared."""
    ours = {metric.name: {"job", "instance", *metric.labels} for metric in catalogue}
    recorded = {name: {"job", "instance", *name.split(":")[0].split("_")} for name in RECORDED}
    return {**ours, **recorded, **PROMETHEUS, **ENGINES}


def unknown(catalogue: Iterable[Any] = CATALOGUE) -> set[str]:
    """Series that a dashboard asks for, though no catalogue, rule or declaration has them."""
    known = known_labels(catalogue)
    asked = {name for path in FILES for text in every_expression(load(path)) for name in names(text)}
    return asked - known.keys()


def filled_in(expression: str) -> str:
    """The expression as Grafana sends it when every variable is at "All"."""
    text = expression.replace("$__rate_interval", "1m").replace("$__range_s", "3600").replace("$__range", "1h")
    return re.sub(r"\$[a-z_]\w*", ALL_VALUES, text)
