"""Workers of NVIDIA Dynamo: ``python -m dynamo.ENGINE`` runs an engine, whose metrics are on a port of their own.

Which one, a variable says; without it there is none. Source: ai-dynamo/dynamo ``docs/observability/metrics.md``, 1.6.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from collectors.discovery.command import ServerCommand
from collectors.discovery.flags import whole

SYSTEM_PORT = "DYN_SYSTEM_PORT"
_OFF = f"a worker of Dynamo without a metrics port: start it with {SYSTEM_PORT}=8081, or any other port"


def as_worker(command: ServerCommand, variables: Mapping[str, str]) -> ServerCommand:
    """The command of the engine inside, with the port of its worker."""
    port = whole(variables.get(SYSTEM_PORT, ""))
    known = port if port is not None and 0 < port < 65536 else None
    notes = command.notes if known is not None else (*command.notes, _OFF)
    return replace(command, host=None, port=known, has_endpoint=known is not None, tls=False, notes=notes)
