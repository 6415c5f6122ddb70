"""The driver-level double, built once, and nodes behind it or behind the simulated driver."""

from pathlib import Path

import pytest

from tests.collectors.nvml.node import Node
from tests.double.build import build


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("double"))


@pytest.fixture
def double(library: Path, tmp_path: Path) -> Node:
    """A node whose driver is the double, through the real pynvml."""
    return Node(tmp_path / "node.state", library)


@pytest.fixture(params=["double", "simulated"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    """Both doors in turn: what holds for one must hold for the other."""
    library = request.getfixturevalue("library") if request.param == "double" else None
    return Node(tmp_path / "node.state", library)
