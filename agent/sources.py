"""What a component of the snapshot is from, in words: which file, field, log line or endpoint, and how old.

A component's own ``source`` names the kind; where that is stands in the records of its server.
"""

from collections.abc import Iterator

from agent.snapshot import Component, Device, Server, Snapshot
from collectors.registry import ENGINES

_LOGGED = {"kv_used": "kv_pool", "kv_cached": "kv_pool", "kv_free": "kv_pool", "kv_available": "kv_pool"}


def explained(snapshot: Snapshot, device: Device) -> Iterator[str]:
    """A line for each component of a device: bytes, evidence, age, source."""
    servers = {server.name: server for server in snapshot.servers}
    for part in device.components:
        who = f"{part.component} {part.server}".strip()
        source = _source(part, servers.get(part.server), device)
        yield f"{who}: {part.bytes:,} B {part.evidence}, {part.age_seconds:.1f} s ago; {source}"


def _source(part: Component, server: Server | None, device: Device) -> str:
    kind, colon, rest = part.source.partition(":")
    first, comma, how = part.source.partition(", ")
    if server is None:
        return part.source
    if first == "log":
        return f"log line {_line(part.component, server)}{comma}{how}"
    if kind == "endpoint":
        return f"endpoint {server.url}{colon}{rest}"
    if kind == "checkpoint" and server.model_path:
        return f"checkpoint {server.model_path}{colon}{rest}"
    if kind == "probe":
        files = [
            file
            for rank in server.ranks
            if rank.uuid == device.uuid and rank.allocator
            for file in rank.allocator.files
        ]
        return f"probe {' '.join(files)}{colon}{rest}"
    return part.source


def _line(component: str, server: Server) -> str:
    """The words by which the engine's log is searched for this size; they differ by version."""
    engine = ENGINES.get(server.engine or "")
    field = _LOGGED.get(component, component)
    marks = [
        shape.mark.decode()
        for shape in (engine.log.shapes if engine and engine.log else ())
        if any(group.rpartition("_")[0] == field for group in shape.pattern.groupindex)
    ]
    return " or ".join(f"{mark.strip()!r}" for mark in dict.fromkeys(marks)) or "of its start"
