"""Compiles the driver-level double; a process finds it through ``LD_LIBRARY_PATH`` at its start."""

import os
import subprocess
from pathlib import Path

from tests.real import require

SOURCE = Path(__file__).with_name("nvml_double.c")
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1")


def build(directory: Path, *variants: str) -> Path:
    """The library in ``directory``. Variants leave symbols out as old drivers do, or print as wrappers may:
    WITHOUT_MEMORY_V2, WITHOUT_GRAPHICS, WITHOUT_MPS, TALKATIVE.
    """
    library = directory / "libnvidia-ml.so.1"
    defines = [f"-D{variant}" for variant in variants]
    subprocess.run([require("gcc"), *FLAGS, *defines, "-o", str(library), str(SOURCE)], check=True)
    return library


def environment(library: Path, state: Path) -> dict[str, str]:
    """The environment of a process that is to see the double as its driver, in that state."""
    return {**os.environ, "LD_LIBRARY_PATH": str(library.parent), "VRAMSCOPE_NVML_STATE": str(state)}
