"""The committed dashboards against Grafana's published schema: the compiler of its types reads them."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.model import FILES, ROOT, load, panels
from tests.real import missing, require

SCHEMA = Path(__file__).parent / "schema"
INSTALLED = ROOT / ".cache" / "grafana-schema"
INSTALL_SECONDS = 300


@pytest.fixture(scope="session")
def packages() -> Path:
    """Where the schema and the compiler are installed, at the versions that the lock file pins; once for a checkout."""
    require("node")
    npm = require("npm")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    lock = (SCHEMA / "package-lock.json").read_bytes()
    done = INSTALLED / "installed.json"
    if not done.exists() or done.read_bytes() != lock:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SCHEMA / name, INSTALLED / name)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        ended = subprocess.run(
            command, cwd=INSTALLED, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
        if ended.returncode:
            missing(f"@grafana/schema can't be installed: {ended.stderr.strip()[-300:]}")
        done.write_bytes(lock)
    return INSTALLED / "node_modules"


def checked(folder: Path, packages: Path, documents: Mapping[str, dict[str, Any]]) -> list[str]:
    """What the compiler says against these dashboards."""
    for name in ("shapes.ts", "tsconfig.json"):
        shutil.copy(SCHEMA / name, folder / name)
    (folder / "node_modules").symlink_to(packages)
    lines = ["import type { Custom, CustomProperty, Dashboard, Panel, Property, Row } from './shapes';"]
    places = [""]
    for name, document in documents.items():
        for place, declared, value in _values(document):
            lines.append(f"export const v{len(lines)}: {declared} = {json.dumps(value)};")
            places.append(f"{name}, {place}")
    (folder / "check.ts").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [require("node"), str(packages / "typescript" / "bin" / "tsc"), "--project", "tsconfig.json"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    said = ended.stdout.splitlines()
    assert ended.returncode == 0 or said, ended.stderr
    return [_with_place(line, places) for line in said]


def _with_place(line: str, places: list[str]) -> str:
    file, _, rest = line.partition("(")
    number = rest.partition(",")[0]
    return f"{places[int(number) - 1]}: {line}" if file == "check.ts" and number.isdigit() else line


def _values(document: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Each part of a dashboard that has a type of its own: where it is, the type, and its value."""
    yield "itself", "Dashboard", {name: value for name, value in document.items() if name != "panels"}
    for panel in document["panels"]:
        kind, place = panel["type"], panel["title"]
        if kind == "row":
            yield place, "Row", panel
            continue
        yield place, f"Panel<{json.dumps(kind)}>", panel
        for override in panel["fieldConfig"]["overrides"]:
            for change in override["properties"]:
                yield place, _property(kind, change["id"]), change["value"]


def _property(kind: str, name: str) -> str:
    custom = name.removeprefix("custom.")
    if custom == name:
        return f"Property<{json.dumps(name)}>"
    return f"CustomProperty<{json.dumps(kind)}, {json.dumps(custom)}>"


def test_the_dashboards_are_of_the_published_types(packages: Path, tmp_path: Path) -> None:
    """Every option of every panel, field, override, variable and annotation is one that Grafana knows."""
    assert checked(tmp_path, packages, {path.stem: load(path) for path in FILES}) == []


def test_what_is_misspelt_or_of_another_type_is_found(packages: Path, tmp_path: Path) -> None:
    """Each of these alone is told, with the panel it stands in; without them the check would prove nothing."""
    documents = [load(path) for path in FILES]
    firsts = {panel["type"]: (document, panel) for document in documents for panel in panels(document)}
    wrong = {
        f"{kind} {name}": {**document, "panels": [spoilt]}
        for kind, (document, panel) in firsts.items()
        for name, spoilt in _spoilt(panel)
    }
    said = checked(tmp_path, packages, wrong)
    assert [name for name in wrong if not any(line.startswith(f"{name}, ") for line in said)] == []
    assert len(firsts) == len({line.split()[0] for line in said}) > 3


def _spoilt(panel: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The panel with one mistake, and what that is."""
    for name in ("option", "value", "field", "override", "part"):
        spoilt = deepcopy(panel)
        defaults, overrides = spoilt["fieldConfig"]["defaults"], spoilt["fieldConfig"]["overrides"]
        match name:
            case "option":
                spoilt["options"]["toolTip"] = {}
            case "value":
                some = next(key for key, value in panel["options"].items() if isinstance(value, bool | str | dict))
                spoilt["options"][some] = 7
            case "field":
                defaults.setdefault("custom", {})["lineWidht"] = 1
            case "override":
                properties = [{"id": "custom.fillOpacty", "value": 0}]
                overrides.append({"matcher": {"id": "byName", "options": "x"}, "properties": properties})
            case "part":
                spoilt["desciption"] = "of the panel"
        yield name, spoilt
