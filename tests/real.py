"""Real programs that some tests run: missing ones are skipped by name, or fail where all of them are demanded."""

import os
import shutil

import pytest


def require(name: str) -> str:
    """The path of a program. Without it the test is skipped; under ``VRAMSCOPE_REQUIRE_REAL=1`` it fails."""
    path = shutil.which(name)
    if path is not None:
        return path
    sentence = f"{name} is not installed"
    if os.environ.get("VRAMSCOPE_REQUIRE_REAL") == "1":
        pytest.fail(sentence)
    pytest.skip(sentence)
