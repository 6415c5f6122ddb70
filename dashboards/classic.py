"""A dashboard in Grafana's classic JSON model, from what grafana-dashboard-builder made of the sources.

The tool's own output is of Grafana 4: rows with spans, no grid, no ids, no schema version.
"""

import json
import string
from collections.abc import Iterator
from itertools import count
from typing import Any

from grafana_dashboards.components.base import ComponentRegistry
from grafana_dashboards.components.links import Links
from grafana_dashboards.exporter import DashboardExporter

from agent.rules import RUNBOOKS, page_of
from dashboards.components import selectors

SCHEMA_VERSION = 39  # Grafana 11.2; older ones load it as it is, newer ones convert it
GRID_COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]


class Classic(DashboardExporter):  # type: ignore[misc]  # the tool has no types
    """Collects each dashboard as the text of a file."""

    def __init__(self, registry: ComponentRegistry) -> None:
        self.files: dict[str, str] = {}
        self._selectors = selectors(registry)
        self._links = [link for component in registry[Links] for link in component.gen_json()]

    def process_dashboard(self, project_name: str, dashboard_name: str, dashboard_data: Json) -> None:
        document = {
            "id": None,
            "uid": dashboard_data["uid"],
            "title": dashboard_data["title"],
            "tags": dashboard_data["tags"],
            "schemaVersion": SCHEMA_VERSION,
            "editable": False,
            "graphTooltip": 1,
            "time": dashboard_data["time"],
            "refresh": dashboard_data["refresh"],
            "links": self._links,
            "annotations": dashboard_data.get("annotations", {"list": []}),
            "templating": {"list": dashboard_data["templating"]["list"]},
            "panels": list(_laid_out(dashboard_data["rows"])),
        }
        text = json.dumps(document, indent=2, default=lambda literal: literal.filled(self._selectors))
        self.files[f"{dashboard_name}.json"] = text + "\n"


def _laid_out(rows: list[Json]) -> Iterator[Json]:
    """A row panel and the panels of each row, left to right, then on the next line."""
    ids = count(1)
    y = 0
    for row in rows:
        yield {"id": next(ids), **_heading(row, y)}
        x, y, line_height = 0, y + 1, 0
        for panel in row["panels"]:
            settings = dict(panel)
            width, height = settings.pop("span"), settings.pop("height")
            if x + width > GRID_COLUMNS:
                x, y, line_height = 0, y + line_height, 0
            yield {"id": next(ids), **_panel(settings), "gridPos": _place(x, y, width, height)}
            x, line_height = x + width, max(line_height, height)
        y += line_height


def _heading(row: Json, y: int) -> Json:
    repeat = {"repeat": row["repeat"]} if "repeat" in row else {}
    place = _place(0, y, GRID_COLUMNS, 1)
    return {"type": "row", "title": row["title"], **repeat, "collapsed": False, "gridPos": place, "panels": []}


def _panel(settings: Json) -> Json:
    shared = settings.pop("target", {})
    targets = [
        {"refId": letter, "datasource": DATASOURCE, **shared, **target}
        for letter, target in zip(string.ascii_uppercase, settings.pop("targets"), strict=False)
    ]
    links = [_runbook(alert) for alert in settings.pop("runbooks", ())]
    return {**settings, "datasource": DATASOURCE, **({"links": links} if links else {}), "targets": targets}


def _runbook(alert: str) -> Json:
    return {"title": f"Runbook: {alert}", "url": f"{RUNBOOKS}/{page_of(alert)}", "targetBlank": True}


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}
