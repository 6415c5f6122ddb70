"""Programs that have a probe in them: what they print, how they end."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
STAND_IN = Path(__file__).parent / "standin"
PREAMBLE = """
import os, signal, sys, time
import vramscope_probe

def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.02)

def own():
    namespace = os.stat("/proc/self/ns/pid").st_ino
    return os.path.join(os.environ["VRAMSCOPE_PROBE_DIRECTORY"], "%d-%d" % (namespace, os.getpid()))

def has_file():
    return os.path.exists(own())

def state():
    if not has_file():
        return None
    with open(own(), "rb") as file:
        return file.read()[12]
"""


def popen(python: str, text: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """A program beside the stand-in for torch, its probe writing ten times a second; warnings are errors."""
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'probe'}:{STAND_IN}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "VRAMSCOPE_PROBE_DIRECTORY": str(folder),
        "VRAMSCOPE_PROBE_INTERVAL": "0.1",
        **variables,
    }
    program = folder.parent / "program.py"
    program.write_text(PREAMBLE + text, encoding="utf-8")
    return subprocess.Popen(
        [python, "-W", "error", str(program)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(python: str, text: str, folder: Path, **variables: str) -> str:
    """What it printed; fails if it ended otherwise than with 0 and nothing on stderr."""
    with popen(python, text, folder, **variables) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, ""), err
    return out
