"""Engines and models for the tests beside a real server; an engine is installed the first time it is needed."""

import os
from pathlib import Path

import pytest

from tests.engines.install_vllm import InstallFailed, environment_directory, install


@pytest.fixture(scope="session")
def vllm_command(pytestconfig: pytest.Config) -> Path:
    """The real ``vllm``. Without it tests are skipped, or fail under ``VRAMSCOPE_REQUIRE_REAL=1``."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        try:
            return install(environment_directory(), echo=lambda line: print(f"\n{line}", end="", flush=True))
        except InstallFailed as exc:
            sentence = str(exc)
    if os.environ.get("VRAMSCOPE_REQUIRE_REAL") == "1":
        pytest.fail(sentence)
    pytest.skip(sentence)
