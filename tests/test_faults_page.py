"""The servers' part of the page of faults: it names tests that exist, and leaves out no fault that is tested."""

import ast
import re
from pathlib import Path

from tests.test_server_faults import FAILING, GONE, MILD

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
SERVERS = PAGE.partition("## Servers")[2].partition("\n## ")[0]
ROWS = [line.split("|") for line in SERVERS.splitlines() if line.startswith("| ") and "| test |" not in line]
CITED = {name for row in ROWS for name in re.findall(r"`([^`]+)`", row[-2])}


def defined() -> set[str]:
    """The names of all test functions."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("test_*.py"))
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_cited_test_exists() -> None:
    """A function, or a server that fails in the whole program."""
    assert CITED - defined() - {*FAILING, GONE, *MILD} == set()


def test_every_server_that_fails_is_on_the_page() -> None:
    """With its reason in the same row."""
    assert {*FAILING, GONE, *MILD} <= CITED
    for server, reason in FAILING.items():
        assert any(f"`{server}`" in row[-2] and f"`{reason}`" in row[2] for row in ROWS), server
