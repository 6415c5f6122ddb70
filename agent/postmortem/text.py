"""A postmortem as plain text, 100 columns at most where names are short; times are UTC."""

from collections.abc import Iterator
from datetime import UTC, datetime

from agent.memory.units import size_text
from agent.postmortem.report import AlarmFinding, DeviceFinding, Moved, PoolFinding, Postmortem, ServerFinding
from agent.printable import printable
from agent.recorder.incidents import Incident

SHOWN_EVENTS = 60


def as_text(report: Postmortem) -> str:
    """All of it but the charts."""
    return "\n".join(_lines(report)) + "\n"


def moment(at: float) -> str:
    """Date and time, to the second."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "at no time"


def clock(at: float) -> str:
    """The time of day, to the second."""
    return moment(at).rpartition(" ")[2]


def signed(count: int) -> str:
    """A difference in bytes."""
    return f"{'+' if count > 0 else ''}{size_text(count)}" if count else "0"


def size(count: int | None) -> str:
    return "-" if count is None else size_text(count)


def ratio(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def facts(report: Postmortem) -> Iterator[tuple[str, str]]:
    """What the report is of."""
    yield "recording", report.file + (" (a simulated node)" if report.simulated else "")
    yield "from", f"{moment(report.since)} to {moment(report.until)} UTC, {report.ticks} ticks"
    if report.kept_for is not None:
        yield "kept for", report.kept_for
    if report.incident is not None:
        yield "incident", f"{moment(report.incident.at)} UTC"
    yield "compared", f"{clock(report.start)}, {clock(report.before)} before and {clock(report.after)} after"
    for gap in report.gaps:
        yield "no readings", f"{clock(gap.since)} to {clock(gap.until)}"
    if report.problem is not None:
        yield "damaged", report.problem


def event_text(event: Incident) -> str:
    return f"{event.subject}: {event.text}" + (f" ({event.count} times)" if event.count > 1 else "")


def pool_text(pool: PoolFinding) -> str:
    return f"KV pool of replica {pool.replica} ({pool.kind})"


def alarm_text(alarm: AlarmFinding) -> str:
    """When it came, beside the incident."""
    if alarm.lead_seconds is not None and alarm.from_start:
        return f"already when the recording begins, {alarm.lead_seconds:.0f} s before"
    if alarm.lead_seconds is not None:
        return f"{alarm.lead_seconds:.0f} s before"
    return f"at {clock(alarm.since)}, not before the incident"


def _lines(report: Postmortem) -> Iterator[str]:
    yield printable(report.summary)
    yield ""
    for name, said in facts(report):
        yield f"{name + ':':<13}{printable(said)}"
    for device in report.devices:
        yield from _device(device)
    for server in report.servers:
        yield from _server(server)
    yield ""
    yield "Alarms"
    for alarm in report.alarms:
        times = f", {alarm.spells} times in all" if alarm.spells > 1 else ""
        yield printable(f"  {alarm.rule} ({alarm.subject}): {alarm_text(alarm)}{times}")
    if not report.alarms:
        yield "  none was on at any time"
    yield ""
    yield "Events"
    for event in report.events[-SHOWN_EVENTS:]:
        mark = ">" if event is report.incident else " "
        yield printable(f"{mark} {clock(event.at)}  {event_text(event)}")
    if not report.events:
        yield "  none"
    left_out = report.events_left_out + max(0, len(report.events) - SHOWN_EVENTS)
    if left_out:
        yield f"  and {left_out} more; --json has them"


def _device(device: DeviceFinding) -> Iterator[str]:
    yield ""
    yield printable(f"gpu {device.gpu}  {device.name or ''}  {size(device.total_bytes)}")
    yield f"  {'component':<34}{'start':>11}{'before':>11}{'after':>11}{'rise':>12}{'change':>12}"
    for one in device.components:
        yield _row(one)


def _row(one: Moved) -> str:
    name = printable(f"{one.server} {one.component}".strip())
    sizes = f"{size(one.start_bytes):>11}{size(one.before_bytes):>11}{size(one.after_bytes):>11}"
    return f"  {name:<34}{sizes}{signed(one.rise_bytes):>12}{signed(one.change_bytes):>12}"


def _server(server: ServerFinding) -> Iterator[str]:
    yield ""
    what = f"{server.engine or ''} {server.version or ''}".strip()
    yield printable(f"{server.name}  {what}  {server.model or ''}  {server.state} at the end")
    if server.load.running is not None or server.load.waiting is not None:
        running, waiting = ("-" if n is None else n for n in (server.load.running, server.load.waiting))
        yield f"  before: {running} running, {waiting} waiting"
    for pool in server.pools:
        shares = f"{ratio(pool.start_ratio)} first, {ratio(pool.before_ratio)} before, {ratio(pool.after_ratio)} after"
        yield printable(f"  {pool_text(pool)} in use: {shares}; at most {ratio(pool.highest_ratio)} until then")
