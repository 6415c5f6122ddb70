"""The generator: the committed files are what it gives, text with braces survives it, and its input is only data."""

import importlib
import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests.dashboards.model import FILES, JSON

DASHBOARD = """
- {name: p, project: {dashboards: [d]}}
- name: d
  dashboard:
    {title: D, uid: d, tags: [t], time: {from: now-1h, to: now}, refresh: 10s, templates: [], rows: [r]}
- name: r
  rows:
"""
PANEL = "- panel: {{type: timeseries, title: {title}, span: {span}, height: 5, targets: [{{expr: up}}]}}"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # on Python 3.11 the tool imports `imp`
        return importlib.import_module("dashboards.build")


def _sources(folder: Path, *rows: str) -> Path:
    (folder / "d.yaml").write_text(DASHBOARD + "".join(rows), encoding="utf-8")
    return folder


def _check(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dashboards.build", "--check", "--output", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=JSON.parents[1])


def test_committed_files_are_what_the_sources_give() -> None:
    """Nobody edited a generated file, or a source without generating."""
    done = _check(JSON)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_check_names_the_file_that_differs_and_the_remedy(tmp_path: Path) -> None:
    """A changed, a missing and a left-over file are told in one sentence, exit code 1, and nothing is written."""
    changed = shutil.copy(FILES[0], tmp_path)
    Path(changed).write_text("{}", encoding="utf-8")
    (tmp_path / "left-over.json").write_text("{}", encoding="utf-8")

    done = _check(tmp_path)

    expected = f"{tmp_path}/left-over.json, {changed}: not what the sources give; run `make dashboards` and commit the result\n"
    assert (1, "", expected) == (done.returncode, done.stdout, done.stderr)
    assert Path(changed).read_text(encoding="utf-8") == "{}"


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
    panel = {"type": "stat", "title": text, "span": 6, "height": 4, "targets": [{"expr": text, "legendFormat": text}]}
    row = yaml.safe_dump([{"row": {"title": text, "panels": [{"panel": panel}]}}])
    inline = DASHBOARD[: DASHBOARD.index("- name: r")].replace("rows: [r]", "rows: " + json.dumps(yaml.safe_load(row)))
    (tmp_path / "d.yaml").write_text(inline, encoding="utf-8")

    heading, drawn = json.loads(build.build(tmp_path)["d.json"])["panels"]

    assert (text, text) == (heading["title"], drawn["title"])
    assert (text, text) == (drawn["targets"][0]["expr"], drawn["targets"][0]["legendFormat"])


def test_panels_fill_a_line_and_go_on_below_its_highest(build: ModuleType, tmp_path: Path) -> None:
    """Rows become row panels; what does not fit into 24 columns starts the next line."""
    narrow, wide = PANEL.format(title="A", span=8), PANEL.format(title="B", span=16)
    sources = _sources(
        tmp_path,
        f"  - row: {{title: One, panels: [{narrow[2:]}, {wide[2:]}, {narrow[2:]}]}}\n".replace("panel: ", "panel: "),
        "  - row: {title: Two, repeat: gpu, panels: []}\n",
    )

    panels = json.loads(build.build(sources)["d.json"])["panels"]

    assert [(panel["title"], *(panel["gridPos"][side] for side in "xywh")) for panel in panels] == [
        ("One", 0, 0, 24, 1),
        ("A", 0, 1, 8, 5),
        ("B", 8, 1, 16, 5),
        ("A", 0, 6, 8, 5),
        ("Two", 0, 11, 24, 1),
    ]
    assert panels[-1]["repeat"] == "gpu"


def test_tags_that_run_code_are_refused(build: ModuleType, tmp_path: Path) -> None:
    """A source is data: the tool's own loader would call what such a tag names."""
    sources = _sources(tmp_path, "  - row: {title: !!python/object/apply:os.getcwd [], panels: []}\n")

    with pytest.raises(yaml.constructor.ConstructorError):
        build.build(sources)
