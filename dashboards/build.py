"""Builds the committed Grafana dashboards (``json/``) from the YAML sources beside this file, at development time only.

grafana-dashboard-builder gives the YAML form and its registry of named components. Used bare it writes dashboards of
Grafana 4 (rows, no grid, no schema version), takes every brace for a placeholder and runs Python tags found in its
input; this adapter gives it a safe loader, panels and variables of any type, and an exporter of today's shape.
"""

import argparse
import json
import string
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from grafana_dashboards.components.base import ComponentRegistry
from grafana_dashboards.components.panels import PanelsItemBase
from grafana_dashboards.components.projects import Project
from grafana_dashboards.components.templates import TemplatesItemBase
from grafana_dashboards.exporter import DashboardExporter, ProjectProcessor

HERE = Path(__file__).parent
JSON = HERE / "json"
SCHEMA_VERSION = 39  # Grafana 11.2; older ones load it as it is, newer ones convert it
GRID_COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Literal:
    """Text that is no ``str``, so that the tool's placeholder engine leaves PromQL and legends alone."""

    def __init__(self, text: str) -> None:
        self.text = text


class _Loader(yaml.SafeLoader):
    def text(self, node: yaml.ScalarNode) -> "str | Literal":
        value = str(self.construct_scalar(node))
        return Literal(value) if "{" in value or "}" in value else value


_Loader.add_constructor("tag:yaml.org,2002:str", _Loader.text)


class Panel(PanelsItemBase):  # type: ignore[misc]  # the tool has no types
    """YAML key ``panel``: a panel of any type, as Grafana writes it; ``span`` and ``height`` are in grid cells."""

    def gen_json_from_data(self, data: dict[str, Any], context: object) -> dict[str, Any]:
        return data


class Variable(TemplatesItemBase):  # type: ignore[misc]  # the tool has no types
    """YAML key ``variable``: a template variable of any type, as Grafana writes it."""

    def gen_json_from_data(self, data: dict[str, Any], context: object) -> dict[str, Any]:
        return data


class _Classic(DashboardExporter):  # type: ignore[misc]  # the tool has no types
    """Collects each dashboard as the text of a file in Grafana's classic JSON model."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def process_dashboard(self, project_name: str, dashboard_name: str, dashboard_data: dict[str, Any]) -> None:
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
            "templating": {"list": dashboard_data["templating"]["list"]},
            "panels": list(_lay_out(dashboard_data["rows"])),
        }
        text = json.dumps(document, indent=2, default=lambda literal: literal.text)
        self.files[f"{dashboard_name}.json"] = text + "\n"


def _lay_out(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row panel and the panels of each row, left to right, then on the next line."""
    ids = count(1)
    y = 0
    for row in rows:
        repeat = {"repeat": row["repeat"]} if "repeat" in row else {}
        yield {
            "id": next(ids),
            "type": "row",
            "title": row["title"],
            **repeat,
            "collapsed": False,
            "gridPos": _place(0, y, GRID_COLUMNS, 1),
            "panels": [],
        }
        x, y, line_height = 0, y + 1, 0
        for panel in row["panels"]:
            settings = dict(panel)
            width, height = settings.pop("span"), settings.pop("height")
            if x + width > GRID_COLUMNS:
                x, y, line_height = 0, y + line_height, 0
            targets = [
                {"refId": letter, "datasource": DATASOURCE, **target}
                for letter, target in zip(string.ascii_uppercase, settings.pop("targets"), strict=False)
            ]
            place = {"gridPos": _place(x, y, width, height), "datasource": DATASOURCE}
            yield {"id": next(ids), **settings, **place, "targets": targets}
            x, line_height = x + width, max(line_height, height)
        y += line_height


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def build(sources: Path = HERE) -> dict[str, str]:
    """The text of every dashboard by file name, from all YAML files under a folder."""
    registry = ComponentRegistry()
    for path in sorted(sources.rglob("*.yaml")):
        with path.open(encoding="utf-8") as source:
            for component in yaml.load(source, Loader=_Loader):  # noqa: S506  # a SafeLoader
                registry.add(component)
    exporter = _Classic()
    ProjectProcessor([exporter]).process_projects(registry[Project])
    return exporter.files


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dashboards.build", description="Build dashboards/json.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a committed file differs")
    parser.add_argument("--output", type=Path, default=JSON, help="folder of the JSON files (default: %(default)s)")
    options = parser.parse_args(arguments)
    wanted = build()
    present = {path.name: path.read_text(encoding="utf-8") for path in options.output.glob("*.json")}
    stale = sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))
    if options.check:
        if stale:
            where = ", ".join(str(options.output / name) for name in stale)
            print(f"{where}: not what the sources give; run `make dashboards` and commit the result", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        if name in wanted:
            (options.output / name).write_text(wanted[name], encoding="utf-8")
        else:
            (options.output / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
