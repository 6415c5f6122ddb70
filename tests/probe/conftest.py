"""Probes in this process beside a stand-in for torch, and programs that run one in other versions of Python."""

import importlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import vramscope_probe

from tests.probe.programs import STAND_IN

Begin = Callable[..., Path]
VERSIONS = ("3.9", "3.10", "3.12", "3.13")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A new stand-in of ``torch.cuda``, imported as the engine would."""
    monkeypatch.syspath_prepend(str(STAND_IN))
    yield importlib.import_module("torch.cuda")
    for name in ("torch", "torch.cuda"):
        sys.modules.pop(name, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the probe writes; it makes it itself."""
    return tmp_path / "probe"


@pytest.fixture
def begin(folder: Path) -> Iterator[Begin]:
    """Begin a probe in this process ten times a second; returns its file's path. It ends with the test."""
    begun = []

    def one(**options: float) -> Path:
        probe = vramscope_probe.Probe(str(folder), **{"interval": 0.1, **options})
        probe.begin()
        begun.append(probe)
        return folder / probe.name

    yield one
    for probe in begun:
        probe.end()


@pytest.fixture(params=["own", *VERSIONS])
def python(request: pytest.FixtureRequest) -> str:
    """Each Python that engines run on and that is installed here, this one always."""
    if request.param == "own":
        return sys.executable
    found = sorted((Path.home() / ".pyenv" / "versions").glob(f"{request.param}.*/bin/python"))
    path = str(found[-1]) if found else shutil.which(f"python{request.param}")
    if path is None or subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"Python {request.param} is not installed")
    return path
