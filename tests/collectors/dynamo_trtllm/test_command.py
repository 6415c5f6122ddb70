"""Which command lines start a worker of Dynamo, around each engine."""

import pytest

from collectors.registry import ENGINES


def no_file(name: str) -> bytes:
    raise FileNotFoundError(name)


@pytest.mark.parametrize(
    ("engine", "module", "flag"),
    [
        ("vllm", "dynamo.vllm", "--model"),
        ("sglang", "dynamo.sglang", "--model-path"),
        ("dynamo_trtllm", "dynamo.trtllm", "--model-path"),
    ],
)
def test_a_worker_is_read_by_its_system_port(engine: str, module: str, flag: str) -> None:
    """Which a variable names; without it, what to do is said. No other engine takes it for its own."""
    words = ("python3", "-m", module, flag, "/m")

    on = ENGINES[engine].command.read(["DYN_SYSTEM_PORT=8081", *words], no_file)
    off = ENGINES[engine].command.read(words, no_file)

    assert on is not None
    assert off is not None
    assert (on.model, on.port, on.has_endpoint, on.notes) == ("/m", 8081, True, ())
    assert (off.model, off.port, off.has_endpoint) == ("/m", None, False)
    assert "DYN_SYSTEM_PORT" in off.notes[0]
    assert [name for name, one in ENGINES.items() if one.command.read(words, no_file)] == [engine]
