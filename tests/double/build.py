"""Compiles the driver-level double; a process finds it through ``LD_LIBRARY_PATH`` at its start."""

import os
import subprocess
from pathlib import Path

from tests.real import require

SOURCE = Path(__file__).with_name("nvml_double.c")
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1")


def build(directory: Path, *variants: str) -> Path:
    """The library in ``directory``, replaced in one step as by an upgrade.

    Variants leave symbols out as old drivers do, print as wrappers may, or are of another version: WITHOUT_MEMORY_V2,
    WITHOUT_GRAPHICS, WITHOUT_MPS, WITHOUT_NUMA, TALKATIVE, LIBRARY_VERSION=N.
    """
    library = directory / "libnvidia-ml.so.1"
    new = directory / "libnvidia-ml.so.new"
    defines = [f"-D{variant}" for variant in variants]
    subprocess.run([require("gcc"), *FLAGS, *defines, "-o", str(new), str(SOURCE)], check=True)
    return new.replace(library)


def environment(library: Path, state: Path) -> dict[str, str]:
    """The environment of a process that is to see the double as its driver, in that state."""
    return {**os.environ, "LD_LIBRARY_PATH": str(library.parent), "VRAMSCOPE_NVML_STATE": str(state)}
