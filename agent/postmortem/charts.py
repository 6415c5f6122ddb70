"""Charts as SVG: plain shapes with classes and no script, so that they stand in any file."""

from collections.abc import Mapping, Sequence
from html import escape

from agent.postmortem.report import Lines
from agent.postmortem.text import clock

WIDTH, HEIGHT = 720, 160
MARGIN = 0.3  # of the width, at both ends, where the times of both ends stand on a phone
GIB = 2**30

_ORDER = (
    *("reserved", "weights", "kv_used", "kv_cached", "kv_free", "kv_available", "state", "cuda_graphs", "activations"),
    *("allocator_slack", "context", "runtime", "other_processes", "hidden", "host", "free"),
)


def areas(lines: Lines, *, total_bytes: int | None, mark: float | None) -> str:
    """Components of a device on top of each other; ``mark`` is the time of the incident."""
    names = sorted(lines.values, key=_place)
    columns = zip(*lines.values.values(), strict=True)
    highest = total_bytes or max((sum(value or 0 for value in column) for column in columns), default=1)
    floor = [0.0] * len(lines.times)
    shapes = []
    for name in names:
        roof = [low + (value or 0.0) for low, value in zip(floor, lines.values[name], strict=True)]
        upper = _points(lines.times, roof, highest)
        lower = _points(lines.times, floor, highest)[::-1]
        component = name.rpartition(" ")[2]
        shapes.append(
            f'<polygon data-component="{escape(component)}" points="{" ".join(upper + lower)}">'
            f"<title>{escape(name)}</title></polygon>"
        )
        floor = roof
    return _frame(lines.times, shapes, f"{highest / GIB:.0f} GiB", mark)


def curves(lines: Lines, *, highest: float, label: str, mark: float | None) -> str:
    """Lines over time; where a value is absent, a line is broken."""
    shapes = []
    for number, (name, values) in enumerate(lines.values.items()):
        for run in _runs(lines.times, values):
            points = " ".join(_points([at for at, _ in run], [v for _, v in run], highest, span=lines.times))
            title = f"<title>{escape(name)}</title>"
            shapes.append(f'<polyline class="line" data-line="{number % 6}" points="{points}">{title}</polyline>')
    return _frame(lines.times, shapes, label, mark)


def legend(names: Mapping[str, str]) -> str:
    """What the colours are: text by the attribute that gives the colour."""
    items = (f"<li><i {attribute}></i>{escape(text)}</li>" for attribute, text in names.items())
    return f'<ul class="legend">{"".join(items)}</ul>'


def memory_legend(lines: Lines) -> str:
    """The components of a device, from the bottom up."""
    names = sorted(lines.values, key=_place)
    components = dict.fromkeys(name.rpartition(" ")[2] for name in names)
    return legend({f'data-component="{escape(one)}"': one for one in components})


def lines_legend(lines: Lines) -> str:
    return legend({f'data-line="{number % 6}"': name for number, name in enumerate(lines.values)})


def _place(name: str) -> tuple[int, str, int]:
    server, _, component = name.rpartition(" ")
    place = _ORDER.index(component) if component in _ORDER else len(_ORDER)
    return (0 if component == "reserved" else 1 if server else 2, server, place)


def _x(at: float, times: Sequence[float]) -> float:
    span = times[-1] - times[0]
    return WIDTH * ((at - times[0]) / span if span > 0 else 1.0)


def _points(
    times: Sequence[float], values: Sequence[float], highest: float, *, span: Sequence[float] | None = None
) -> list[str]:
    return [
        f"{_x(at, span or times):.1f},{HEIGHT * (1 - min(1.0, max(0.0, value / (highest or 1)))):.1f}"
        for at, value in zip(times, values, strict=True)
    ]


def _runs(times: Sequence[float], values: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in zip(times, values, strict=True):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def _frame(times: Sequence[float], shapes: Sequence[str], top: str, mark: float | None) -> str:
    """The shapes, stretched to the room there is, with a line at the incident; what is written stands around them."""
    drawn, when = list(shapes), ""
    if mark is not None and times[0] <= mark <= times[-1]:
        x = _x(mark, times)
        drawn.append(f'<path class="mark" d="M{x:.1f} 0V{HEIGHT}"/>')
        if MARGIN < x / WIDTH < 1 - MARGIN:
            when = f'<b style="left:{100 * x / WIDTH:.1f}%">{clock(mark)}</b>'
    return (
        f'<div class="chart"><span>{escape(top)}</span><span>0</span>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img">{"".join(drawn)}</svg>'
        f"<p><span>{clock(times[0])}</span>{when}<span>{clock(times[-1])}</span></p></div>"
    )
