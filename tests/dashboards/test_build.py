"""The generator: the committed files are what it gives, text with braces survives it, and its input is only data."""

import importlib
import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.dashboards.model import FILES, JSON

Json = dict[str, Any]


def _panel(title: str, span: int) -> Json:
    return {"panel": {"type": "stat", "title": title, "span": span, "height": 5, "targets": [{"expr": title}]}}


def _sources(folder: Path, rows: list[Json]) -> Path:
    """A folder with the source of one dashboard; JSON is YAML too."""
    facts = {"title": "D", "uid": "d", "tags": ["t"], "time": {"from": "now-1h", "to": "now"}, "refresh": "10s"}
    dashboard = {"name": "d", "dashboard": {**facts, "templates": [], "rows": rows}}
    project = {"name": "p", "project": {"dashboards": ["d"]}}
    (folder / "d.yaml").write_text(json.dumps([project, dashboard]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def build() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # on Python 3.11 the tool imports `imp`
        return importlib.import_module("dashboards.build")


def _check(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dashboards.build", "--check", "--output", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=JSON.parents[1])


def test_committed_files_are_what_the_sources_give() -> None:
    """Nobody edited a generated file, or a source without generating."""
    done = _check(JSON)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_check_names_the_file_that_differs_and_the_remedy(tmp_path: Path) -> None:
    """A changed, a missing and a left-over file are told in one sentence, exit code 1, and nothing is written."""
    for path in FILES[1:]:
        shutil.copy(path, tmp_path)
    changed, missing = tmp_path / FILES[1].name, tmp_path / FILES[0].name
    changed.write_text("{}", encoding="utf-8")
    (tmp_path / "left-over.json").write_text("{}", encoding="utf-8")

    done = _check(tmp_path)

    remedy = "not what the sources give; run `make dashboards` and commit the result"
    expected = f"{tmp_path}/left-over.json, {missing}, {changed}: {remedy}\n"
    assert (1, "", expected) == (done.returncode, done.stdout, done.stderr)
    assert changed.read_text(encoding="utf-8") == "{}"
    assert not missing.exists()


def test_writes_what_changed_and_removes_what_has_no_source(build: ModuleType, tmp_path: Path) -> None:
    """Afterwards the folder holds the generated files and no other."""
    (tmp_path / "left-over.json").write_text("{}", encoding="utf-8")

    assert build.main(["--output", str(tmp_path)]) == 0

    assert {path.name: path.read_text(encoding="utf-8") for path in FILES} == {
        path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()
    }


@pytest.mark.parametrize(
    "text", ['rate(x{le="+Inf",code!~"5..",m=~"a:b"}[5m]) / y{}', "{{gpu}} {{server}}", "{d}", "${datasource}"]
)
def test_text_with_braces_comes_out_as_it_went_in(build: ModuleType, tmp_path: Path, text: str) -> None:
    """PromQL, legends and Grafana's variables are no placeholders of the tool, wherever they stand."""
    sources = _sources(tmp_path, [{"row": {"title": text, "panels": [_panel(text, 6)]}}])

    heading, drawn = json.loads(build.build(sources)["d.json"])["panels"]

    assert [heading["title"], drawn["title"], drawn["targets"][0]["expr"]] == [text] * 3


def test_panels_fill_a_line_and_go_on_below_its_highest(build: ModuleType, tmp_path: Path) -> None:
    """Rows become row panels; what does not fit into 24 columns starts the next line."""
    one = {"title": "One", "panels": [_panel("A", 8), _panel("B", 16), _panel("C", 8)]}
    two = {"title": "Two", "repeat": "gpu", "panels": []}

    panels = json.loads(build.build(_sources(tmp_path, [{"row": one}, {"row": two}]))["d.json"])["panels"]

    assert [(panel["title"], *(panel["gridPos"][side] for side in "xywh")) for panel in panels] == [
        ("One", 0, 0, 24, 1),
        ("A", 0, 1, 8, 5),
        ("B", 8, 1, 16, 5),
        ("C", 0, 6, 8, 5),
        ("Two", 0, 11, 24, 1),
    ]
    assert panels[-1]["repeat"] == "gpu"


def test_tags_that_run_code_are_refused(build: ModuleType, tmp_path: Path) -> None:
    """A source is data: the tool's own loader would call what such a tag names."""
    (tmp_path / "d.yaml").write_text("- name: !!python/object/apply:os.getcwd []", encoding="utf-8")

    with pytest.raises(yaml.constructor.ConstructorError):
        build.build(tmp_path)
