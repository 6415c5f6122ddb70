"""The real SGLang on CPU in an environment of its own, kernels replaced: ``python -m tests.engines.install_sglang``.

About 2.8 GB. Scheduler, pools and metrics are real; kernels that need a GPU are stand-ins, so what it answers means
nothing.
"""

import shutil
import sys
from pathlib import Path

from tests.engines.environments import Echo, Environment, cache_directory, main, requirements

VERSION = "0.5.23"
TORCH = "torch==2.13.0"

_NOT_ASKED_FOR = ("dill",)  # imported, and only required by a package that is left out
LEFT_OUT = (
    *("torch", "torchaudio", "torchvision", "torchcodec", "torch_memory_saver", "timm", "av", "decord2"),
    *("apache-tvm-ffi", "cuda-python", "flash-attn-4", "flashinfer_python", "humming-kernels", "kernels"),
    *("nvidia-cutlass-dsl", "nvidia-mathdx", "nvshmem4py-cu13", "quack-kernels", "tilelang"),
    *("sgl-deep-ep", "sgl-deep-gemm", "sgl-flash-mla", "sglang-kernel"),
    *("anthropic", "blobfile", "datasets", "deepseek-recipe", "mistral_common", "modelscope", "openai-harmony"),
    *("smg-grpc-servicer", "tml-renderers"),
)


def environment_directory() -> Path:
    return cache_directory() / f"sglang-{VERSION}"


def install(*, echo: Echo = print) -> Path:
    """Make the environment where it is not complete, and return its Python.

    Raises:
        InstallFailed: a step failed; running again goes on from there.
    """
    environment = Environment(environment_directory(), title="SGLang on CPU", version=VERSION, echo=echo)
    parts = _Parts(environment)
    environment.install(
        (
            (f"{TORCH} and uv", lambda: environment.pip("install", TORCH, "uv")),
            (f"sglang {VERSION}", parts.download),
            ("what it requires on a CPU (about 120 packages)", parts.requirements),
            ("sglang itself", lambda: environment.uv("--no-deps", str(parts.wheel))),
            ("stand-ins for kernels", parts.stand_ins),
            ("trial: import", parts.trial),
        )
    )
    return environment.python


class _Parts:
    """The steps of more than one command."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._downloads = environment.directory / "downloads"

    @property
    def wheel(self) -> Path:
        return next(self._downloads.glob(f"sglang-{VERSION}*.whl"))

    def download(self) -> None:
        self._downloads.mkdir(exist_ok=True)
        self._environment.pip("download", "--no-deps", "--dest", str(self._downloads), f"sglang=={VERSION}")

    def requirements(self) -> None:
        wanted = self._downloads / "requirements.txt"
        lines = (*requirements(self.wheel, LEFT_OUT), *_NOT_ASKED_FOR)
        wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._environment.uv("--requirement", str(wanted))

    def stand_ins(self) -> None:
        """A ``.pth`` line has every process of this environment import the finder first."""
        source = Path(__file__).with_name("stand_ins.py")
        shutil.copy(source, self._environment.site_packages / "vramscope_stand_ins.py")
        line = self._environment.site_packages / "vramscope_stand_ins.pth"
        line.write_text("import vramscope_stand_ins\n", encoding="utf-8")

    def trial(self) -> None:
        self._environment.do([str(self._environment.python), "-c", "import sglang.srt.server_args"])
        shutil.rmtree(self._downloads)


if __name__ == "__main__":
    sys.exit(main(f"SGLang {VERSION} on CPU", install))
