"""Which command lines start an SGLang server, and what they say."""

import pytest

from collectors.discovery.command import ServerCommand
from collectors.sglang.command import read_command


def no_file(name: str) -> bytes:
    raise FileNotFoundError(2, "No such file or directory", name)


def read(*argv: str) -> ServerCommand:
    command = read_command(argv, no_file)
    assert command is not None
    return command


@pytest.mark.parametrize(
    ("argv", "programs"),
    [
        (["python", "-m", "sglang.launch_server", "--model-path", "m"], ("python",)),
        (["/venv/bin/python3.11", "-um", "sglang.launch_server", "--model=m"], ("/venv/bin/python3.11",)),
        (
            ["python3", "/src/python/sglang/launch_server.py", "--model", "m"],
            ("python3", "/src/python/sglang/launch_server.py"),
        ),
        (["/venv/bin/sglang", "serve", "--model-path", "m"], ("/venv/bin/sglang",)),
        (
            ["/venv/bin/python", "/venv/bin/sglang", "serve", "--model-path", "m"],
            ("/venv/bin/python", "/venv/bin/sglang"),
        ),
    ],
)
def test_command_lines_that_start_a_server(argv: list[str], programs: tuple[str, ...]) -> None:
    """By module, script or console script; the port is SGLang's own where none is given."""
    assert read(*argv) == ServerCommand(model="m", served_name="m", port=30000, programs=programs)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["sglang"],
        ["sglang", "generate", "--model-path", "m"],
        ["sglang::scheduler_TP0"],
        ["python", "-m", "sglang.bench_serving", "--model", "m"],
        ["python", "-m", "sglang_router.launch_server", "--model-path", "m"],
        ["grep", "sglang.launch_server"],
        ["python", "-c", "import sglang.launch_server"],
    ],
)
def test_command_lines_that_start_none(argv: list[str]) -> None:
    """Benchmarks, routers, workers and whatever only names the module."""
    assert read_command(argv, no_file) is None


def test_flags_become_arguments() -> None:
    """Every name of a flag counts as one; what says where it answers is no argument."""
    command = read(
        *("sglang", "serve", "--model-path", "/m", "--tp", "4", "--pp-size=2", "--data-parallel-size", "2"),
        *("--enable-dp-attention", "--mem-fraction-static", "0.8", "--context-length", "4096", "--page-size", "64"),
        *("--kv-cache-dtype", "fp8_e4m3", "--disable-radix-cache", "--host", "0.0.0.0", "--port", "31000"),
        *("--served-model-name", "chat", "--api-key", "sk-secret-of-somebody"),
    )

    assert command.arguments == {
        "tp-size": 4,
        "pp-size": 2,
        "dp-size": 2,
        "enable-dp-attention": True,
        "mem-fraction-static": 0.8,
        "context-length": 4096,
        "page-size": 64,
        "kv-cache-dtype": "fp8_e4m3",
        "prefix-caching": False,
    }
    assert (command.host, command.port, command.served_name) == ("0.0.0.0", 31000, "chat")


def test_absurd_values_are_left_out() -> None:
    """What is no number, no port or nothing at all is not known."""
    command = read("sglang", "serve", "--model-path", "m", "--tp", "many", "--port", "99999", "--mem-fraction-static")

    assert command.arguments == {}
    assert command.port is None
