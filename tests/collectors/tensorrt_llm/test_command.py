"""Which command lines start a trtllm-serve."""

import pytest

from collectors.discovery.command import ServerCommand
from collectors.tensorrt_llm.command import read_command


def no_file(name: str) -> bytes:
    raise FileNotFoundError(name)


@pytest.mark.parametrize(
    ("argv", "programs"),
    [
        (("/opt/bin/trtllm-serve", "/m"), ("/opt/bin/trtllm-serve",)),
        (("/usr/bin/python3", "/opt/bin/trtllm-serve", "serve", "/m"), ("/usr/bin/python3", "/opt/bin/trtllm-serve")),
        (("python3", "-m", "tensorrt_llm.commands.serve", "/m"), ("python3",)),
    ],
)
def test_servers(argv: tuple[str, ...], programs: tuple[str, ...]) -> None:
    """With and without an interpreter and the word serve; flags are spelt with underscores."""
    words = ("--tp_size", "2", "--kv_cache_free_gpu_memory_fraction", "0.8", "--host=0.0.0.0", "--port", "8001")

    assert read_command([*argv, *words], no_file) == ServerCommand(
        model="/m",
        served_name="/m",
        host="0.0.0.0",
        port=8001,
        arguments={"tp-size": 2, "kv-cache-free-gpu-memory-fraction": 0.8},
        programs=programs,
    )


@pytest.mark.parametrize("argv", [[], ["trtllm-serve"], ["trtllm-serve", "disaggregated"], ["trtllm-bench", "/m"]])
def test_command_lines_that_start_none(argv: list[str]) -> None:
    """Nothing to serve, a router, another tool."""
    assert read_command(argv, no_file) is None
