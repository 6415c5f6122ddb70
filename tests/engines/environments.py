"""Environments of real engines: each its own, made once, kept in a cache and never part of this project's.

Nothing of an engine is imported here: tests start its commands.
"""

import fcntl
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Collection, Sequence
from email.parser import BytesParser
from pathlib import Path

CACHE_VARIABLE = "VRAMSCOPE_ENGINES_CACHE"

_STAMP = "vramscope-installed"

Echo = Callable[[str], None]
Steps = Sequence[tuple[str, Callable[[], object]]]


class InstallFailed(Exception):
    """A step did not succeed; the message names it, the reason and the log."""


def cache_directory() -> Path:
    """Where engines are kept: ``VRAMSCOPE_ENGINES_CACHE``, else a folder in the user's cache."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "vramscope-engines"


def is_installed(directory: Path, version: str) -> bool:
    """Whether an earlier installation of this version ran to its end."""
    stamp = directory / _STAMP
    return stamp.exists() and stamp.read_text(encoding="utf-8").strip() == version


class Environment:
    """A virtual environment in the making; every command's output goes to one log beside it."""

    def __init__(self, directory: Path, *, title: str, version: str, echo: Echo) -> None:
        self.directory = directory
        self.python = directory / "bin" / "python"
        self._title = title
        self._version = version
        self._echo = echo
        self._log = directory.parent / f"{directory.name}.log"

    def install(self, steps: Steps) -> None:
        """Run all steps where no earlier run completed; one process at a time. Steps already done are quick.

        Raises:
            InstallFailed: a step failed; running again goes on from there.
        """
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with (self.directory.parent / f"{self.directory.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_installed(self.directory, self._version):
                self._run([("environment", self._create), *steps])

    def pip(self, *arguments: str) -> None:
        self.do([str(self.python), "-m", "pip", "--disable-pip-version-check", *arguments])

    def uv(self, *arguments: str) -> None:
        """``uv pip install``; uv itself has to be there."""
        command = str(self.directory / "bin" / "uv")
        self.do([command, "pip", "install", "--python", str(self.python), *arguments])

    def do(self, command: Sequence[str]) -> None:
        """Run a command to its end.

        Raises:
            InstallFailed: it ended with another code than 0.
        """
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
        if code:
            last = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1]
            shown = " ".join(command[:5])
            raise InstallFailed(
                f"{self._title} could not be installed: `{shown} ...` ended with {code}, saying {last!r};"
                f" everything it said is in {self._log}"
            )

    @property
    def site_packages(self) -> Path:
        (found,) = (self.directory / "lib").glob("python3.*/site-packages")
        return found

    def _create(self) -> None:
        if not self.python.exists():
            self.do([sys.executable, "-m", "venv", str(self.directory)])

    def _run(self, steps: Steps) -> None:
        self._log.write_text("", encoding="utf-8")
        for number, (title, step) in enumerate(steps, start=1):
            began = time.monotonic()
            self._echo(f"{self._title} [{number}/{len(steps)}] {title} ...")
            step()
            self._echo(f"{self._title} [{number}/{len(steps)}] done in {time.monotonic() - began:.0f} s")
        (self.directory / _STAMP).write_text(f"{self._version}\n", encoding="utf-8")


def requirements(wheel: Path, left_out: Collection[str]) -> list[str]:
    """What a wheel requires without extras, less the projects that are left out."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = BytesParser().parsebytes(archive.read(name))
    lines = [str(line) for line in metadata.get_all("Requires-Dist", [])]
    return [line for line in lines if "extra ==" not in line and _project(line) not in left_out]


def main(title: str, install: Callable[[], Path]) -> int:
    """Install from a command line: 0 and what to start, or 1 and one sentence."""
    try:
        command = install()
    except InstallFailed as exc:
        print(exc, file=sys.stderr)
        return 1
    print(f"{title}: {command}")
    return 0


def _project(requirement: str) -> str:
    """The name at the start of a requirement line."""
    for position, letter in enumerate(requirement):
        if not (letter.isalnum() or letter in "-_."):
            return requirement[:position].lower()
    return requirement.lower()
