"""Prometheus' own checker, run on files."""

import subprocess
from pathlib import Path

from tests.real import require


def promtool(*arguments: str | Path) -> None:
    """Run it; its complaint is the test's failure."""
    done = subprocess.run([require("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
