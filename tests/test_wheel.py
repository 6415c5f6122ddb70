"""The built wheel in a clean venv, away from the tree: it installs, serves a scrape, and carries its data."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import finished, running

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a venv in which only the wheel and its dependencies are."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=120)
    wheel = next(folder.glob("vramscope-*.whl"))
    python = folder / "venv" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run(install, check=True, timeout=300)
    return python.parent


def test_the_wheel_serves_a_scrape(installed: Path, tmp_path: Path) -> None:
    """Outside the tree, with nothing of ours on the path."""
    environment = {"PATH": os.environ["PATH"]}
    command = (str(installed / "vramscope"),)
    with running(
        "run", "--listen", "127.0.0.1:0", environment=environment, command=command, folder=tmp_path
    ) as program:
        metrics = program.get("/metrics")
        page = program.get("/")

    assert metrics.status_code == page.status_code == 200
    assert "vramscope_build_info" in metrics.text
    assert "static/app.js" in page.text


def test_the_wheel_runs_the_demo(installed: Path, tmp_path: Path) -> None:
    """Scenarios come along."""
    command = (str(installed / "vramscope"),)
    arguments = ("demo", "--speed", "100", "--duration", "20", "--listen", "127.0.0.1:0")
    done = finished(*arguments, command=command, folder=tmp_path)

    assert (done.returncode, done.stdout.startswith("listening on ")) == (0, True)


def test_the_wheel_carries_dashboards_and_alerts(installed: Path) -> None:
    """As package data, readable."""
    code = (
        "import json, importlib.resources as r; d = r.files('agent') / 'data'; "
        "names = sorted(p.name for f in ('dashboards', 'alerts') for p in (d / f).iterdir()); "
        "[json.loads(p.read_text()) for p in (d / 'dashboards').iterdir()]; print(json.dumps(names))"
    )
    done = subprocess.run([installed / "python", "-Ic", code], capture_output=True, text=True, check=True)
    names = json.loads(done.stdout)

    assert {path.name for path in (ROOT / "dashboards" / "json").glob("*.json")} <= set(names)
    assert {"kv_pool.yml", "device_memory.yml"} <= set(names)
    written = subprocess.run([installed / "vramscope", "rules"], capture_output=True, text=True, check=True)
    assert "alert: VramscopeHeadroomLow" in written.stdout
    listed = subprocess.run(
        [installed / "vramscope", "dashboards", "--list"], capture_output=True, text=True, check=True
    )
    assert "vramscope-node" in listed.stdout


def test_what_an_extra_is_needed_for_says_so(installed: Path) -> None:
    """One sentence, with the command that installs it."""
    done = subprocess.run([installed / "vramscope", "top"], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr == (
        "vramscope: `vramscope top` draws with textual, which is not installed: "
        f"{installed / 'python'} -m pip install 'vramscope[top]'\n"
    )


def test_the_wheel_is_typed_and_brings_no_strangers(installed: Path) -> None:
    """py.typed is there; nvidia-ml-py is, the shim called pynvml is not."""
    listed = subprocess.run(
        [installed / "python", "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True
    )
    names = {row["name"].lower() for row in json.loads(listed.stdout)}

    assert "nvidia-ml-py" in names
    assert not names & {"pynvml", "numpy", "torch", "pytest", "grafana-dashboard-builder"}
    site = next((installed.parent / "lib").glob("python*/site-packages"))
    assert (site / "agent" / "py.typed").exists()
