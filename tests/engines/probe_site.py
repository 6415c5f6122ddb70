"""The probe and a stand-in for CUDA's statistics, found by an engine through ``PYTHONPATH``: its environment stays."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.engines import cuda_stand_in
from tests.probe.programs import ROOT

_ENTRY_POINTS = """[vllm.general_plugins]
a_stand_in = cuda_stand_in:apply
[sglang.srt.plugins]
a_stand_in = cuda_stand_in:apply
"""


def install(site: Path) -> Path:
    """The probe's wheel and the stand-in in a folder; returns it."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command = [*pip, "--no-build-isolation", "--target", str(site), str(ROOT / "probe")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    shutil.copy(str(cuda_stand_in.__file__), site / "cuda_stand_in.py")
    about = site / "cuda_stand_in-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: cuda-stand-in\nVersion: 1\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(_ENTRY_POINTS, encoding="utf-8")
    return site
