"""The built wheel in a clean environment, away from the tree; and what the module may import."""

import ast
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import vramscope_probe

from tests.probe.programs import ROOT
from tests.probe.said import files

GROUPS = ("vllm.general_plugins", "sglang.srt.plugins")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probe-wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT / "probe")]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_one_module_and_its_licence(wheel: Path) -> None:
    """For every Python 3 from 3.9 on, and nothing that it requires."""
    assert wheel.name == "vramscope_probe-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = "vramscope_probe-0.1.0.dist-info"
        metadata = archive.read(f"{about}/METADATA").decode()

    assert names == {
        "vramscope_probe.py",
        *(f"{about}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")),
    }
    assert "Requires-Python: >=3.9" in metadata
    assert "Requires-Dist" not in metadata


def test_the_engines_find_and_start_it(wheel: Path, tmp_path: Path) -> None:
    """As they do: by their entry points, in an environment that has the wheel alone."""
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", str(wheel)]
    subprocess.run(install, check=True, timeout=120)
    code = f"""
import importlib.metadata, json, os, sys, time
points = [point for group in {GROUPS!r} for point in importlib.metadata.entry_points(group=group)]
[point.load()() for point in points]
deadline = time.monotonic() + 20
while not os.path.isdir({str(tmp_path / "probe")!r}) or not os.listdir({str(tmp_path / "probe")!r}):
    assert time.monotonic() < deadline
    time.sleep(0.02)
print(json.dumps([[point.group, point.name] for point in points]))
"""
    done = subprocess.run(
        [str(python), "-I", "-c", code],
        env={"VRAMSCOPE_PROBE_DIRECTORY": str(tmp_path / "probe")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert (json.loads(done.stdout), done.stderr) == ([[group, "vramscope_probe"] for group in GROUPS], "")
    assert files(tmp_path / "probe") == []


def test_the_module_imports_the_standard_library_alone() -> None:
    """No torch above all: the engine decides when that is imported."""
    tree = ast.parse((ROOT / "probe" / "vramscope_probe.py").read_text(encoding="utf-8"))
    imports = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imports |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert {name.partition(".")[0] for name in imports} <= sys.stdlib_module_names


def test_the_version_is_one() -> None:
    """In the module, in the project's table and in its changelog."""
    project = tomllib.loads((ROOT / "probe" / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert vramscope_probe.__version__ == project["version"]
    assert f"## [{project['version']}]" in (ROOT / "probe" / "CHANGELOG.md").read_text(encoding="utf-8")
