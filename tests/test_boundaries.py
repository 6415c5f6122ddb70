"""The shape of the house: who may import whom, and what the pure core may not touch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PURE = {
    "bisect",
    "msgspec",
    "collections",
    "typing",
    "fractions",
    "math",
    "re",
    "itertools",
    "functools",
    "statistics",
    "difflib",
    "fnmatch",
    "enum",
    "pathlib",
}
CHILD = {"pynvml"}


def imports(path: Path) -> Iterator[str]:
    """Every module a file imports, dotted."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module or ""


def calls(path: Path) -> Iterator[str]:
    """Every plain name that a file calls."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", files("agent/memory"), ids=lambda path: path.name)
def test_the_pure_core_imports_only_itself_and_readings(path: Path) -> None:
    """No I/O, no clock, no Prometheus."""
    foreign = {
        name
        for name in imports(path)
        if name.partition(".")[0] not in PURE and not name.startswith("agent.memory") and name != "collectors.readings"
    }

    assert foreign == set()


@pytest.mark.parametrize("path", files("agent/memory"), ids=lambda path: path.name)
def test_the_pure_core_opens_and_prints_nothing(path: Path) -> None:
    """Not by a builtin either."""
    names = {node.id for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Name)}

    assert not names & {"Path", "open", "print", "input", "exec", "eval", "__import__"}


@pytest.mark.parametrize("path", files("collectors"), ids=lambda path: path.name)
def test_collectors_never_import_the_agent(path: Path) -> None:
    """The arrow points one way."""
    assert not {name for name in imports(path) if name.partition(".")[0] == "agent"}


def test_readings_import_nothing_of_ours() -> None:
    """What everybody shares depends on nobody."""
    assert set(imports(ROOT / "collectors" / "readings.py")) <= {"typing", "msgspec"}


def test_the_nvml_child_loads_only_pynvml_beside_the_standard_library() -> None:
    """It stays small: nothing of the agent's dependencies comes along."""
    code = "import sys, collectors.nvml.child; print(' '.join({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-Ic", code], capture_output=True, text=True, check=True)
    installed = set(done.stdout.split()) - set(sys.stdlib_module_names)

    assert {name for name in installed if not name.startswith(("_", "__editable__"))} == {"collectors", *CHILD}


def test_only_the_wiring_constructs_collaborators() -> None:
    """One place knows how sources are made."""
    makers = {"NvmlSource", "Endpoint", "HostProcesses", "HttpServer", "Board", "Fleet", "Poller"}
    users = {str(path.relative_to(ROOT)): sorted(makers & set(calls(path))) for path in files("agent")}

    assert {path: made for path, made in users.items() if made} == {"agent/app.py": sorted(makers)}
