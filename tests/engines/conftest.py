"""Engines and models for the tests beside a real server; an engine is installed the first time it is needed."""

import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines import install_llama_cpp, install_sglang, install_vllm
from tests.engines.environments import Echo, InstallFailed


@pytest.fixture(scope="session")
def vllm_command(pytestconfig: pytest.Config) -> Path:
    """The real ``vllm``. Without it tests are skipped, or fail under ``VRAMSCOPE_REQUIRE_REAL=1``."""
    directory = install_vllm.environment_directory()
    return _installed(pytestconfig, lambda echo: install_vllm.install(directory, echo=echo))


@pytest.fixture(scope="session")
def llama_cpp_pythons(pytestconfig: pytest.Config) -> dict[str, Path]:
    """The Python that has the real llama.cpp, by build."""
    return {build: _installed(pytestconfig, functools.partial(_llama_cpp, build)) for build in install_llama_cpp.BUILDS}


@pytest.fixture(scope="session")
def sglang_python(pytestconfig: pytest.Config) -> Path:
    """The Python that has the real SGLang."""
    return _installed(pytestconfig, lambda echo: install_sglang.install(echo=echo))


def _llama_cpp(build: str, echo: Echo) -> Path:
    return install_llama_cpp.install(build, echo=echo)


def _installed(pytestconfig: pytest.Config, install: Callable[[Echo], Path]) -> Path:
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        try:
            return install(lambda line: print(f"\n{line}", end="", flush=True))
        except InstallFailed as exc:
            sentence = str(exc)
    if os.environ.get("VRAMSCOPE_REQUIRE_REAL") == "1":
        pytest.fail(sentence)
    pytest.skip(sentence)
