"""Lines of the report: absolute figures, ratios beside them, and whether a bound was kept."""

import statistics
from collections.abc import Sequence
from pathlib import Path


def section(title: str) -> None:
    print(f"\n{title}  [{conditions()}]", flush=True)


def conditions() -> str:
    """How busy the machine was: figures of a busy one are upper bounds."""
    load = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
    try:
        pressure = Path("/proc/pressure/cpu").read_text(encoding="ascii")
    except OSError:
        return f"load {load}"
    return f"load {load}; somebody waited for a CPU in {pressure.split('avg10=')[1].split()[0]} % of the last 10 s"


def p50(seconds: Sequence[float]) -> float:
    return statistics.median(seconds)


def p99(seconds: Sequence[float]) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


def spread(what: str, seconds: Sequence[float], *, p99_limit_ms: float | None = None, remark: str = "") -> None:
    """Median and 99th percentile in milliseconds, the latter held against its bound."""
    bound = "" if p99_limit_ms is None else f" (<= {p99_limit_ms:g}: {_kept(1000 * p99(seconds) <= p99_limit_ms)})"
    _line(what, f"p50 {_ms(p50(seconds))}   p99 {_ms(p99(seconds))}{bound}", remark)


def figure(
    what: str, value: float, unit: str, *, at_most: float | None = None, at_least: float | None = None, remark: str = ""
) -> None:
    """One number, held against its bound."""
    bound = ""
    if at_most is not None:
        bound = f" (<= {at_most:g}: {_kept(value <= at_most)})"
    if at_least is not None:
        bound = f" (>= {at_least:g}: {_kept(value >= at_least)})"
    _line(what, f"{value:8.2f} {unit}{bound}", remark)


def _kept(kept: bool) -> str:
    return "ok" if kept else "MISSED"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:7.2f} ms"


def _line(what: str, figures: str, remark: str) -> None:
    print(f"  {what:<52} {figures}   {remark}".rstrip(), flush=True)
