"""The committed dashboards as these tests look at them: panels, and queries with Grafana's variables filled in."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

JSON = Path(__file__).parents[2] / "dashboards" / "json"
FILES = sorted(JSON.glob("*.json"))
ALL_VALUES = ".+"


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


def expressions(document: dict[str, Any]) -> list[str]:
    return [target["expr"] for _, target in targets(document)]


def filled_in(expression: str) -> str:
    """The expression as Grafana sends it when every variable is at "All"."""
    return re.sub(r"\$(job|instance|gpu|server)\b", ALL_VALUES, expression.replace("$__rate_interval", "1m"))
