"""A postmortem as one HTML file that needs nothing else: no script, no font, no request to anywhere."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from agent.postmortem.charts import areas, curves, lines_legend, memory_legend
from agent.postmortem.report import DeviceFinding, Postmortem, ServerFinding
from agent.postmortem.text import alarm_text, clock, event_text, facts, moment, pool_text, ratio, signed, size

STYLE = Path(__file__).with_name("style.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def as_html(report: Postmortem) -> str:
    """The whole document. All that comes from the recording is text in it, never markup."""
    title = f"Postmortem of {report.file}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{escape(title)}</title><style>{STYLE.read_text(encoding='utf-8')}</style></head>\n<body>\n"
        + "\n".join(_body(report, title))
        + f"\n<p class='muted'>vramscope {escape(report.version)}; times are UTC</p>\n</body></html>\n"
    )


def _body(report: Postmortem, title: str) -> Iterator[str]:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(said)}</dd>" for name, said in facts(report))
    yield f"<h1>{escape(title)}</h1>"
    yield f'<section><p class="summary">{escape(report.summary)}</p><dl>{rows}</dl></section>'
    for device in report.devices:
        yield _device(report, device)
    for server in report.servers:
        yield _server(report, server)
    alarms = [(f"{one.rule} ({one.subject})", alarm_text(one), str(one.spells)) for one in report.alarms]
    heads = {name: name for name in ("alarm", "on", "times")}
    told = _table(heads, alarms, "words") if alarms else "<p>None was on at any time.</p>"
    yield _section("Alarms", told)
    events = [((moment(one.at), event_text(one)), one is report.incident) for one in report.events]
    listed = "".join(_row(cells, kind="incident" if marked else "") for cells, marked in events)
    words = f'<table class="words">{listed}</table>' if events else "<p>None.</p>"
    left_out = f"<p>And {report.events_left_out} more.</p>" if report.events_left_out else ""
    yield _section("Events", words + left_out)


def _device(report: Postmortem, device: DeviceFinding) -> str:
    lines = report.charts.memory.get(device.gpu)
    mark = report.incident.at if report.incident else None
    chart = areas(lines, total_bytes=device.total_bytes, mark=mark) + memory_legend(lines) if lines else ""
    rows = [
        (
            f"{one.server} {one.component}".strip(),
            size(one.start_bytes),
            size(one.before_bytes),
            size(one.after_bytes),
            signed(one.rise_bytes),
            signed(one.change_bytes),
        )
        for one in device.components
    ]
    heads = {
        "component": "component",
        "start": f"start {clock(report.start)}",
        "before": f"before {clock(report.before)}",
        "after": f"after {clock(report.after)}",
        "rise": "rise until then",
        "change": "change in it",
    }
    name = f"gpu {escape(device.gpu)} <small>{escape(device.name or '')} {escape(device.uuid)}</small>"
    return _section(name, chart + _table(heads, rows))


def _server(report: Postmortem, server: ServerFinding) -> str:
    mark = report.incident.at if report.incident else None
    parts = []
    if (pools := report.charts.pools.get(server.name)) is not None:
        parts.append("<p>Share of the KV pool in use</p>")
        parts.append(curves(pools, highest=1.0, label="100 %", mark=mark))
        parts.append(lines_legend(pools) if len(pools.values) > 1 else "")
    if (requests := report.charts.requests.get(server.name)) is not None:
        highest = max((value or 0.0 for values in requests.values.values() for value in values), default=0.0)
        parts.append("<p>Requests</p>")
        parts.append(curves(requests, highest=max(1.0, highest), label=f"{highest:.0f}", mark=mark))
        parts.append(lines_legend(requests))
    rows = [
        (
            pool_text(pool),
            ratio(pool.start_ratio),
            ratio(pool.before_ratio),
            ratio(pool.after_ratio),
            ratio(pool.highest_ratio),
        )
        for pool in server.pools
    ]
    heads = {name: name for name in ("in use", "start", "before", "after")} | {"at most": "at most until then"}
    parts.append(_table(heads, rows) if rows else "")
    what = f"{server.engine or ''} {server.version or ''}, {server.state} at the end"
    return _section(f"{escape(server.name)} <small>{escape(what)}</small>", "".join(parts))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>"


def _table(heads: Mapping[str, str], rows: Iterable[Sequence[str]], kind: str = "figures") -> str:
    """Headings by short name, which stands beside each figure where there is no room for columns."""
    head = "".join(f"<th>{escape(one)}</th>" for one in heads.values())
    listed = "".join(_row(row, tuple(heads)) for row in rows)
    return f'<table class="{kind}"><tr>{head}</tr>{listed}</table>'


def _row(cells: Sequence[str], heads: Sequence[str] = (), *, kind: str = "") -> str:
    names = [f' data-name="{escape(name)}"' for name in heads] or [""] * len(cells)
    listed = "".join(f"<td{name}>{escape(cell)}</td>" for name, cell in zip(names, cells, strict=True))
    of_kind = f' class="{kind}"' if kind else ""
    return f"<tr{of_kind}>{listed}</tr>"
