"""Prometheus' own checker, run on files."""

import subprocess
from pathlib import Path

from tests.real import require


def promtool(*arguments: str | Path, text: str | None = None) -> None:
    """Run it, with ``text`` on its standard input; its complaint is the test's failure."""
    command = [require("promtool"), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
