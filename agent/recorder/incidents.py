"""What happened between two snapshots: restarts, memory that ran out, preemptions, hardware. Pure."""

from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct

from agent.memory.risk import Risk
from agent.recorder.records import RISK, Reason
from agent.snapshot import Device, Server, Snapshot

Kind = Literal[
    "oom", "host_oom_kill", "died", "restarted", "preempted", "refused", "state", "version", "hardware", "blind", "risk"
]

REASONS: Mapping[Kind, Reason] = {
    "oom": "oom",
    "host_oom_kill": "oom",
    "died": "server_died",
    "restarted": "server_died",
    "risk": RISK,
}
"""The incidents that a recording is kept for."""


OUT_OF_MEMORY = ("cuda_oom", "no_cache_blocks", "capture_failed")


class Incident(Struct, frozen=True, kw_only=True):
    """``at`` is wall clock, ``subject`` a server's name or ``gpu N``, ``text`` what happened, ``count`` how often."""

    at: float
    kind: Kind
    subject: str
    text: str
    count: int = 1


def incidents(before: Snapshot, after: Snapshot) -> Iterator[Incident]:
    """What the later of two snapshots says that the earlier does not, the gravest of a server first."""
    servers = {server.name: server for server in before.servers}
    for server in after.servers:
        last = servers.get(server.name)
        if last is not None:
            yield from _of_server(last, server, after.time)
    devices = {device.uuid: device for device in before.devices}
    for device in after.devices:
        known = devices.get(device.uuid)
        if known is not None:
            yield from _of_device(known, device, after.time)


def _of_server(last: Server, server: Server, at: float) -> Iterator[Incident]:
    def incident(kind: Kind, text: str, count: int = 1) -> Incident:
        return Incident(at=at, kind=kind, subject=server.name, text=text, count=count)

    if last.log is not None and server.log is not None and server.log.failures != last.log.failures:
        for failure, count in server.log.failures.items():
            if (more := count - last.log.failures.get(failure, 0)) > 0:
                yield incident(_kind(failure, server), f"its log says {failure.replace('_', ' ')}", more)
    if (server.host_oom_kills or 0) > (last.host_oom_kills or 0) and last.host_oom_kills is not None:
        text = "the host killed a process of it for want of memory"
        yield incident("host_oom_kill", text, (server.host_oom_kills or 0) - last.host_oom_kills)
    if server.state != last.state:
        died = server.state == "down"
        yield incident("died" if died else "state", f"was {last.state}, now {server.state}")
    if server.restarts > last.restarts:
        yield incident("restarted", "it was started anew", server.restarts - last.restarts)
    if server.version != last.version and server.version is not None and last.version is not None:
        yield incident("version", f"from version {last.version} to {server.version}")
    if server.counters != last.counters and server.restarts == last.restarts:
        for name, said in (("preemptions", "preempted"), ("refusals", "refused")):
            was, now = getattr(last.counters, name), getattr(server.counters, name)
            if was is not None and now is not None and now > was:
                yield incident("preempted" if name == "preemptions" else "refused", f"{said} for want of KV", now - was)
    if _turned_critical(last.risk, server.risk):
        yield incident("risk", _critical(server.risk))


def _kind(failure: str, server: Server) -> Kind:
    """A full pool refuses requests, or where the engine counts preemptions, it preempts them: SGLang logs that too."""
    if failure in OUT_OF_MEMORY:
        return "oom"
    counts = server.counters.preemptions is not None
    return "preempted" if failure == "kv_pool_full" and counts else "refused"


def _of_device(last: Device, device: Device, at: float) -> Iterator[Incident]:
    subject = f"gpu {device.gpu}"
    if last.components and not device.components:
        yield Incident(at=at, kind="blind", subject=subject, text="its memory is not read any more")
    if _turned_critical(last.risk, device.risk):
        yield Incident(at=at, kind="risk", subject=subject, text=_critical(device.risk))
    if last.health == device.health or last.health is None or device.health is None:
        return
    if device.health.lost and not last.health.lost:
        yield Incident(at=at, kind="hardware", subject=subject, text="the GPU is lost")
    for xid, count in device.health.xids.items():
        if count > last.health.xids.get(xid, 0):
            more = count - last.health.xids.get(xid, 0)
            yield Incident(at=at, kind="hardware", subject=subject, text=f"the driver reported Xid {xid}", count=more)


def _turned_critical(last: Risk | None, risk: Risk | None) -> bool:
    """Whether a level of risk is critical that was not."""
    return risk is not None and risk.level == "critical" and (last is None or last.level != "critical")


def _critical(risk: Risk | None) -> str:
    reason = risk.reason if risk is not None else None
    return f"its risk turned critical: {(reason or 'not known').replace('_', ' ')}"
