"""Which command lines start a NIM, and what is found of one."""

from pathlib import Path

import pytest

from collectors.discovery.command import ServerCommand
from collectors.nim.command import read_command
from tests.collectors.discovery.table_of import ProcFolder
from tests.collectors.discovery.test_engines import LOOPBACK, discovery, words


def no_file(name: str) -> bytes:
    raise FileNotFoundError(name)


def test_flags_and_the_variables_of_its_container() -> None:
    """A flag wins."""
    variables = ("NIM_SERVER_PORT=9000", "NIM_TENSOR_PARALLEL_SIZE=4", "NIM_SERVED_MODEL_NAME=llama")
    argv = ["python3", "-m", "nim_llm_sdk.entrypoints.launch", "--port", "9001"]

    assert read_command([*variables, *argv], no_file) == ServerCommand(
        served_name="llama", port=9001, arguments={"tensor-parallel-size": 4}, programs=("python3",)
    )
    old = read_command(
        ["python3", "-m", "vllm_nvext.entrypoints.openai.api_server", "--max-model-len", "16000"], no_file
    )
    assert old is not None
    assert (old.port, old.arguments) == (8000, {"max-model-len": 16000})


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["/bin/bash", "/opt/nim/start_server.sh"],
        ["python3", "-m", "nim_llm_sdk.logging.pack_all_logs_into_json"],
    ],
)
def test_command_lines_that_start_none(argv: list[str]) -> None:
    """Its script, which other NIMs have too, and what packs its log."""
    assert read_command(argv, no_file) is None


@pytest.mark.parametrize(
    "inner",
    [
        ("python3", "-m", "nim_llm_sdk.entrypoints.openai.api_server", "--port", "8000"),
        ("python3", "-m", "sglang.launch_server", "--model-path", "/opt/nim/workspace", "--port", "8001"),
        ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "/opt/nim/workspace", "--port", "8001"),
        ("trtllm-serve", "/opt/nim/workspace", "--port", "8001"),
    ],
)
def test_what_it_starts_is_no_second_server(tmp_path: Path, inner: tuple[str, ...]) -> None:
    """Script, launcher and the server inside are one, at the launcher's port."""
    proc = ProcFolder(tmp_path / "proc")
    proc.add(100, words("/bin/bash", "/opt/nim/start_server.sh"))
    proc.add(101, words("python3", "-m", "nim_llm_sdk.entrypoints.launch"), parent=100, started=2000)
    proc.add(102, words(*inner), parent=101, started=3000)
    proc.add(103, words("python3", "-c", "worker"), parent=102, started=4000)
    for pid, port in ((101, 8000), (102, 8001)):
        proc.listening(pid, (LOOPBACK, 8000, 70), (LOOPBACK, 8001, 71))
        proc.holds(pid, 70 + port - 8000)

    (found,) = discovery(proc).scan()

    assert (found.engine, found.url) == ("nim", "http://127.0.0.1:8000")
    assert [process.pid for process in found.tree.processes] == [101, 102, 103]


def test_from_2_on_its_engine_is_the_server(tmp_path: Path) -> None:
    """Beside it there is only a proxy, which is none."""
    proc = ProcFolder(tmp_path / "proc")
    proc.add(100, words("/bin/bash", "/opt/nim/start_server.sh"))
    proc.add(101, words("nginx: master process nginx"), parent=100, started=2000)
    proc.add(102, words("python3", "/opt/bin/vllm", "serve", "/m", "--port", 8001), parent=100, started=2000)
    for pid, inode in ((101, 70), (102, 71)):
        proc.listening(pid, (LOOPBACK, 8000, 70), (LOOPBACK, 8001, 71))
        proc.holds(pid, inode)

    (found,) = discovery(proc).scan()

    assert (found.engine, found.url) == ("vllm", "http://127.0.0.1:8001")
