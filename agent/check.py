"""``vramscope check``: what the agent can see on this host, what it can't, and what to do about it."""

from pathlib import Path

from msgspec import Struct

from agent.errors import InputError
from agent.settings import Settings
from agent.snapshot import Snapshot
from agent.web.web_config import load_web_config


class Line(Struct, frozen=True, kw_only=True):
    """One thing looked at."""

    what: str
    ok: bool
    finding: str


class Report(Struct, frozen=True, kw_only=True):
    """``ok``: nothing failed."""

    schema: str = "vramscope.check/1"
    ok: bool
    lines: tuple[Line, ...]


def check_report(snapshot: Snapshot, settings: Settings) -> Report:
    """Turn one collection into findings: every source, every device, and for every server what is still unknown.

    It reads the web config and the files that it names, as ``vramscope run`` does.
    """
    lines = [] if settings.web_config_file is None else [_web_config(Path(settings.web_config_file))]
    lines += [
        Line(
            what=f"{collector.name} {collector.target}".strip(),
            ok=collector.success,
            finding=collector.error or "works",
        )
        for collector in snapshot.collectors
    ]
    for device in snapshot.devices:
        parts = {part.component for part in device.components}
        shown = "processes are visible" if "other_processes" in parts else "processes are not visible"
        reserved = "v2 memory" if "reserved" in parts else "v1 memory only: reserved is inside hidden"
        if device.memory_kind == "unified":
            reserved = "the host's memory"
        facts = "; ".join((f"{device.name}: {reserved}, {shown}", *device.notes))
        lines.append(Line(what=f"gpu {device.gpu}", ok=bool(parts), finding=facts))
    for server in snapshot.servers:
        missing = list(server.notes)
        if server.model_path is None:
            missing.append("its model is not known: set model: in the settings; weights and KV stay inside runtime")
        finding = "; ".join(missing) or f"{server.engine or ''} {server.version or ''} {server.state}".replace(
            "  ", " "
        )
        lines.append(Line(what=f"server {server.name}", ok=server.state != "down", finding=finding))
    if not snapshot.servers:
        where = "and none was found among the processes" if settings.discovery else "and discovery is off"
        lines.append(Line(what="servers", ok=True, finding=f"none configured {where}"))
    return Report(ok=all(line.ok for line in lines), lines=tuple(lines))


def _web_config(path: Path) -> Line:
    try:
        config = load_web_config(path)
    except InputError as error:
        return Line(what="web config", ok=False, finding=error.message)
    tls = "plain HTTP" if config.tls is None else "TLS"
    users = f"basic auth ({len(config.users)} known by name)" if config.users else "no basic auth"
    return Line(what="web config", ok=True, finding=f"{path}: {tls}, {users}")
