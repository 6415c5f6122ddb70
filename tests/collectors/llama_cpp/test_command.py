"""Which command lines start a llama.cpp server, and what they say."""

import pytest

from collectors.discovery.command import ServerCommand
from collectors.llama_cpp.command import read_command


def no_file(name: str) -> bytes:
    raise FileNotFoundError(2, "No such file or directory", name)


def read(*argv: str) -> ServerCommand:
    command = read_command(argv, no_file)
    assert command is not None
    return command


@pytest.mark.parametrize("program", ["llama-server", "/app/llama-server", "/opt/bin/llama-server-vulkan"])
def test_command_lines_that_start_a_server(program: str) -> None:
    """Under whatever name the package gives the program."""
    assert read(program, "-m", "/m/tiny.gguf") == ServerCommand(
        model="/m/tiny.gguf", served_name="/m/tiny.gguf", port=8080, programs=(program,)
    )


@pytest.mark.parametrize(
    "argv",
    [
        [],
        [""],
        ["llama-cli", "-m", "m.gguf"],
        ["tail", "-f", "llama-server.log"],
        ["python", "llama-server"],
        ["LLAMA_ARG_MODEL=m.gguf"],
    ],
)
def test_command_lines_that_start_none(argv: list[str]) -> None:
    """Other programs, and what only names it."""
    assert read_command(argv, no_file) is None


def test_flags_in_all_their_forms() -> None:
    """Short and long; what says where it answers is no argument; of several the last counts."""
    command = read(
        *("llama-server", "--model", "m.gguf", "-c", "8192", "-np", "1", "--parallel", "4", "-kvu", "-ctk", "q8_0"),
        *("--cache-type-v", "q8_0", "-ub", "256", "-ngl", "99", "--host", "0.0.0.0", "--port", "8201", "-a", "chat"),
        *("--sleep-idle-seconds", "300", "--api-key", "sk-secret-of-somebody"),
    )

    assert command.arguments == {
        "ctx-size": 8192,
        "parallel": 4,
        "kv-unified": True,
        "cache-type-k": "q8_0",
        "cache-type-v": "q8_0",
        "ubatch-size": 256,
        "gpu-layers": "99",
        "sleep-idle-seconds": 300,
    }
    assert (command.host, command.port, command.served_name) == ("0.0.0.0", 8201, "chat")
    assert read("llama-server", "-no-kvu").arguments == {"kv-unified": False}


def test_variables_stand_for_flags_that_are_not_given() -> None:
    """As containers set them; the command line wins."""
    command = read(
        *("LLAMA_ARG_MODEL=/m/a.gguf", "LLAMA_ARG_CTX_SIZE=16384", "LLAMA_ARG_N_PARALLEL=2", "LLAMA_ARG_KV_UNIFIED=0"),
        *("LLAMA_ARG_PORT=9000", "/app/llama-server", "-c", "4096"),
    )

    assert (command.model, command.port) == ("/m/a.gguf", 9000)
    assert command.arguments == {"ctx-size": 4096, "parallel": 2, "kv-unified": False}


def test_a_socket_of_the_file_system_is_not_read() -> None:
    """Said, not taken for a port."""
    command = read("llama-server", "-m", "m.gguf", "--host", "/run/llama.sock")

    assert (command.port, command.has_endpoint) == (None, False)
    assert "Unix socket" in command.notes[0]
