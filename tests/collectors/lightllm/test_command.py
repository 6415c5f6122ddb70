"""Which command lines start a LightLLM server."""

import pytest

from collectors.discovery.command import ServerCommand
from collectors.lightllm.command import read_command


def no_file(name: str) -> bytes:
    raise FileNotFoundError(name)


@pytest.mark.parametrize(
    "program",
    [
        ("/opt/bin/python3", "-m", "lightllm.server.api_server"),
        ("/opt/bin/python3", "-u", "/src/lightllm/server/api_server.py"),
    ],
)
def test_servers(program: tuple[str, ...]) -> None:
    """By the module and by the script; a server that says no port has 8000."""
    words = ("--model_dir", "/m", "--tp", "8", "--dp=8", "--max_total_token_num", "64000", "--model_name", "qwen")
    formats = ("--data_type", "bf16", "--quant_type", "none")

    found = read_command([*program, *words, *formats], no_file)

    assert found is not None
    assert found == ServerCommand(
        model="/m",
        served_name="qwen",
        port=8000,
        arguments={"tp": 8, "dp": 8, "max-total-token-num": 64000, "data-type": "bfloat16"},
        programs=found.programs,
    )
    assert found.programs[0] == "/opt/bin/python3"


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["python", "-m", "lightllm.server.api_server", "--run_mode", "pd_master", "--port", "1212"],
        ["python", "-m", "lightllm.server.api_server", "--run_mode=config_server"],
        ["/opt/bin/python3", "/opt/bin/gunicorn", "--bind", "0.0.0.0:8000", "lightllm.server.api_http:app"],
        ["lightllm::8000::model_infer:RANK0"],
    ],
)
def test_command_lines_that_start_none(argv: list[str]) -> None:
    """Routers, and the parts of a server."""
    assert read_command(argv, no_file) is None
