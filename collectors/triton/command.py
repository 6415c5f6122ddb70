"""Which command lines start a Triton server, and where its metrics are: ``tritonserver --model-repository=FOLDER``.

Source: triton-inference-server/server ``src/command_line_parser.cc``.
"""

from collections.abc import Sequence

from collectors.discovery.command import ReadCommand, ReadFile, ServerCommand
from collectors.discovery.flags import FlagTable, read_flags

DEFAULT_METRICS_PORT = 8002
_OFF = "it runs with --allow-metrics=false: its metrics are not known"

FLAGS = FlagTable(
    kinds={"metrics-port": "whole", "metrics-address": "text", "http-address": "text", "allow-metrics": "text"}
)


def read_command(argv: Sequence[str], read: ReadFile) -> ServerCommand | None:
    """The server that a command line starts, None when it starts none; ``port`` is that of its metrics."""
    if not argv or argv[0].rpartition("/")[2] != "tritonserver":
        return None
    values = read_flags(argv[1:], FLAGS)
    port, host = (
        values.get("metrics-port", DEFAULT_METRICS_PORT),
        values.get("metrics-address", values.get("http-address")),
    )
    is_off = str(values.get("allow-metrics", "true")).lower() in ("false", "0")
    return ServerCommand(
        served_name="triton",
        host=host if isinstance(host, str) else None,
        port=port if isinstance(port, int) and 0 < port < 65536 and not is_off else None,
        has_endpoint=not is_off,
        programs=(argv[0],),
        notes=(_OFF,) if is_off else (),
    )


COMMAND = ReadCommand(marks=(b"tritonserver",), read=read_command, package="")
