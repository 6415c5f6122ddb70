"""Which command lines start an LMDeploy server."""

import pytest

from collectors.discovery.command import ServerCommand
from collectors.lmdeploy.command import read_command


def no_file(name: str) -> bytes:
    raise FileNotFoundError(name)


@pytest.mark.parametrize("program", [("/opt/bin/lmdeploy",), ("python3", "-m", "lmdeploy")])
def test_servers(program: tuple[str, ...]) -> None:
    """By the program and by the module."""
    words = ("serve", "api_server", "/m", "--server-port", "23334", "--tp", "2", "--cache-max-entry-count", "0.5")

    assert read_command([*program, *words, "--model-name", "qwen"], no_file) == ServerCommand(
        model="/m",
        served_name="qwen",
        port=23334,
        arguments={"tp": 2, "cache-max-entry-count": 0.5},
        programs=program[:1],
    )


@pytest.mark.parametrize("argv", [[], ["lmdeploy", "chat", "/m"], ["lmdeploy", "serve", "proxy"]])
def test_command_lines_that_start_none(argv: list[str]) -> None:
    """Other commands of it."""
    assert read_command(argv, no_file) is None
