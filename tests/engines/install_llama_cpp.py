"""Real llama.cpp servers, each build in an environment of its own: ``python -m tests.engines.install_llama_cpp``.

The package xllamacpp has llama.cpp's server built for any x86-64 CPU, at a build number; about 100 MB each.
"""

import sys
from pathlib import Path

from tests.engines.environments import Echo, Environment, cache_directory, main

BUILDS = {"b11549": "2026.10.11549", "b7710": "0.2.9"}  # the package's version of each build; the newest first


def environment_directory(build: str) -> Path:
    return cache_directory() / f"llama_cpp-{build}"


def install(build: str, *, echo: Echo = print) -> Path:
    """Make the environment where it is not complete, and return its Python.

    Raises:
        InstallFailed: a step failed; running again goes on from there.
    """
    package = f"xllamacpp=={BUILDS[build]}"
    environment = Environment(
        environment_directory(build), title=f"llama.cpp {build}", version=BUILDS[build], echo=echo
    )
    environment.install(
        (
            (package, lambda: environment.pip("install", "--no-deps", package)),
            ("trial: import", lambda: environment.do([str(environment.python), "-c", "import xllamacpp"])),
        )
    )
    return environment.python


def _install_all() -> Path:
    pythons = [install(build) for build in BUILDS]
    return pythons[0]


if __name__ == "__main__":
    sys.exit(main("llama.cpp", _install_all))
