"""Builds the committed Grafana dashboards (``json/``) from the YAML sources beside this file, at development time only.

grafana-dashboard-builder gives the YAML form and its registry of named components; ``components`` makes today's panels
of them, ``classic`` today's files.
"""

import argparse
import sys
from pathlib import Path

import yaml
from grafana_dashboards.components.base import ComponentRegistry
from grafana_dashboards.components.projects import Project
from grafana_dashboards.exporter import ProjectProcessor

from dashboards.classic import Classic
from dashboards.components import Loader

HERE = Path(__file__).parent
JSON = HERE / "json"


def build(sources: Path = HERE) -> dict[str, str]:
    """The text of every dashboard by file name, from all YAML files under a folder."""
    registry = ComponentRegistry()
    for path in sorted(sources.rglob("*.yaml")):
        with path.open(encoding="utf-8") as source:
            for component in yaml.load(source, Loader=Loader):  # noqa: S506  # a SafeLoader
                registry.add(component)
    exporter = Classic(registry)
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
