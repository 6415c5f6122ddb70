"""Which command lines start a TGI server."""

from collectors.discovery.command import ServerCommand
from collectors.tgi.command import read_command


def no_file(name: str) -> bytes:
    raise FileNotFoundError(name)


def test_flags_and_the_variables_that_stand_for_them() -> None:
    """As its image is set up; the command line wins."""
    variables = ("MODEL_ID=/other", "PORT=80", "NUM_SHARD=2")

    assert read_command([*variables, "text-generation-launcher", "--model-id", "/m"], no_file) == ServerCommand(
        model="/m", served_name="/m", port=80, arguments={"num-shard": 2}, programs=("text-generation-launcher",)
    )
    plain = read_command(["/usr/bin/text-generation-launcher"], no_file)
    assert plain is not None
    assert (plain.port, plain.model) == (3000, None)
    assert read_command(["text-generation-router"], no_file) is None
    assert read_command([], no_file) is None
