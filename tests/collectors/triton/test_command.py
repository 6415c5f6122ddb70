"""Which command lines start a Triton server."""

from collectors.discovery.command import ServerCommand
from collectors.triton.command import read_command


def no_file(name: str) -> bytes:
    raise FileNotFoundError(name)


def test_the_port_is_that_of_its_metrics() -> None:
    """Which may be off."""
    program = "/opt/tritonserver/bin/tritonserver"

    assert read_command([program, "--model-repository=/m", "--http-port", "9000"], no_file) == ServerCommand(
        served_name="triton", port=8002, programs=(program,)
    )
    moved = read_command([program, "--metrics-port=9002", "--metrics-address=127.0.0.1"], no_file)
    assert moved is not None
    assert (moved.host, moved.port) == ("127.0.0.1", 9002)
    off = read_command([program, "--allow-metrics=false"], no_file)
    assert off is not None
    assert (off.has_endpoint, off.port) == (False, None)
    assert read_command(["perf_analyzer"], no_file) is None
    assert read_command([], no_file) is None
