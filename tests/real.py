"""Real programs that some tests run: missing ones are skipped by name, or fail where all of them are demanded."""

import os
import shutil
from typing import NoReturn

import pytest


def require(name: str) -> str:
    """The path of a program. Without it the test is skipped; under ``VRAMSCOPE_REQUIRE_REAL=1`` it fails."""
    path = shutil.which(name)
    return path if path is not None else missing(f"{name} is not installed")


def missing(sentence: str) -> NoReturn:
    """End a test that needs what is not there."""
    if os.environ.get("VRAMSCOPE_REQUIRE_REAL") == "1":
        pytest.fail(sentence)
    pytest.skip(sentence)
