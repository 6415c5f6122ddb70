"""Which command lines start an Ollama server, and which model its runners hold."""

import pytest

from collectors.discovery.command import ServerCommand
from collectors.ollama.command import model_of, read_command

BLOB = "/root/.ollama/models/blobs/sha256-" + "b" * 64


def no_file(name: str) -> bytes:
    raise FileNotFoundError(2, "No such file or directory", name)


def read(*argv: str) -> ServerCommand:
    command = read_command(argv, no_file)
    assert command is not None
    return command


def test_a_server_and_what_its_environment_sets() -> None:
    """It has no flags."""
    assert read("/usr/local/bin/ollama", "serve") == ServerCommand(
        served_name="ollama", port=11434, programs=("/usr/local/bin/ollama",)
    )
    command = read(
        *("OLLAMA_HOST=0.0.0.0:9999", "OLLAMA_CONTEXT_LENGTH=8192", "OLLAMA_NUM_PARALLEL=4"),
        *("OLLAMA_KV_CACHE_TYPE=q8_0", "ollama", "serve"),
    )
    assert (command.host, command.port) == ("0.0.0.0", 9999)
    assert command.arguments == {"context-length": 8192, "num-parallel": 4, "kv-cache-type": "q8_0"}


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("", None, 11434),
        ("10.0.0.5", "10.0.0.5", 11434),
        (":8080", None, 8080),
        ("http://example.org", "example.org", 80),
        ("https://example.org:444/ollama", "example.org", 444),
        ("[::1]:9000", "::1", 9000),
        ("[::]", "::", 11434),
        ("a:b:c", None, 11434),
        ("host:99999", "host", 11434),
    ],
)
def test_addresses_as_ollama_reads_them(text: str, host: str | None, port: int) -> None:
    """With or without scheme and port; what is no address leaves the default."""
    command = read(f"OLLAMA_HOST={text}", "ollama", "serve")

    assert (command.host, command.port) == (host, port)


@pytest.mark.parametrize(
    "argv", [[], ["ollama"], ["ollama", "run", "llama3"], ["ollama", "runner", "--model", BLOB], ["vi", "serve"]]
)
def test_command_lines_that_start_none(argv: list[str]) -> None:
    """Clients and runners."""
    assert read_command(argv, no_file) is None


@pytest.mark.parametrize(
    ("title", "model"),
    [
        (f"/usr/local/bin/ollama runner --model {BLOB} --ctx-size 8192 --parallel 1 --port 41231", BLOB),
        (f"/usr/lib/ollama/llama-server --port 40001 -m {BLOB} -c 8192", BLOB),
        ("/usr/local/bin/ollama serve", None),
        (f"vi --model {BLOB}", None),
        ("/usr/local/bin/ollama runner --model", None),
        ("", None),
    ],
)
def test_the_model_that_a_process_holds(title: str, model: str | None) -> None:
    """Its runner up to 0.29, a llama.cpp since."""
    assert model_of(title) == model
