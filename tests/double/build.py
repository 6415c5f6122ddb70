"""Compiles the driver-level double; a process finds it through ``LD_LIBRARY_PATH`` at its start."""

import os
import subprocess
from pathlib import Path

from tests.real import require

SOURCE = Path(__file__).with_name("nvml_double.c")
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1")


def build(directory: Path, *without: str) -> Path:
    """The library in ``directory``; ``without`` leaves symbols out, as old drivers do: MEMORY_V2, GRAPHICS, MPS."""
    library = directory / "libnvidia-ml.so.1"
    defines = [f"-DWITHOUT_{symbol}" for symbol in without]
    subprocess.run([require("gcc"), *FLAGS, *defines, "-o", str(library), str(SOURCE)], check=True)
    return library


def environment(library: Path, state: Path) -> dict[str, str]:
    """The environment of a process that is to see the double as its driver, in that state."""
    return {**os.environ, "LD_LIBRARY_PATH": str(library.parent), "VRAMSCOPE_NVML_STATE": str(state)}
