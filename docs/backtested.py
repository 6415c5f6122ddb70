"""Tables of docs/forecast.md, from the result that ``make backtest`` leaves in docs/backtest.json."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from agent.backtest.forecasters import OURS
from agent.backtest.report import HEADS, Backtest, of, rows, seconds
from agent.backtest.score import Score

RESULT = Path(__file__).parent / "backtest.json"


def result() -> Backtest:
    return msgspec.json.decode(RESULT.read_bytes(), type=Backtest)


def scores() -> Iterator[str]:
    """A row for each forecaster."""
    found = result()
    yield f"{found.recordings} recordings, {found.hours:.0f} h, {found.events} events; in brackets 95 % intervals."
    yield ""
    yield from table(HEADS, rows(found))


def told() -> Iterator[str]:
    """How good it is, in a few words for whoever is woken by it."""
    found = result()
    ours = found.scores[OURS]
    recall, precision, near = (100 * (one.value or 0.0) for one in (ours.recall, ours.precision, ours.precision_near))
    lead, slow = seconds(ours.lead_seconds), seconds(ours.slow_lead_seconds)
    pools = f"{found.hours:.0f} h of simulated pools with {found.events} shortages"
    yield f"**How good it is**, on {pools} ([backtest](#backtest)):"
    yield ""
    yield f"* {recall:.0f} of 100 shortages had an alarm ten seconds before or earlier; half of these alarms were"
    yield f"  {lead} s before or earlier, {slow} s where use rose for over two minutes."
    yield f"* Of 100 alarms {precision:.0f} came before a shortage, {near - precision:.0f} more before a pool at 95 %."


def bounds() -> Iterator[str]:
    """What was to be reached, and what was."""
    ours = result().scores[OURS]
    yield from table(("bound", "reached", ""), (_bound(*one, ours) for one in BOUNDS))


def families() -> Iterator[str]:
    """A row for each family of episodes."""
    heads = ("family", "events", "recall", "alarms", "precision", "with near misses", "alarm without event, s/h")
    yield from table(heads, (_family(name, one) for name, one in result().groups.items()))


def reliability() -> Iterator[str]:
    """What was said, and how often it came true."""
    heads = ("within", "said", "came true", "looks")
    found = result().scores[OURS].calibration
    lines = (
        (f"{one.horizon_seconds} s", f"{a:.3f}", f"{b:.3f}", str(n)) for one in found for a, b, n in one.reliability
    )
    yield from table(heads, lines)


Get = Callable[[Score], float | None]

BOUNDS: tuple[tuple[str, Get, float, bool], ...] = (
    ("recall, rise from 60 % over 60 s", lambda one: one.recall_by_rise["over 60 s"].value, 0.99, True),
    ("recall, all events", lambda one: one.recall.value, 0.92, True),
    ("precision with near misses", lambda one: one.precision_near.value, 0.85, True),
    ("precision", lambda one: one.precision.value, 0.70, True),
    ("median lead, rise over 120 s", lambda one: one.slow_lead_seconds, 120.0, True),
    ("alarm without event, s/h", lambda one: one.false_seconds_per_hour, 200.0, False),
    ("Brier score below climatology, 120 s", lambda one: one.calibration[0].gain, 0.15, True),
    ("Brier score below climatology, 300 s", lambda one: one.calibration[1].gain, 0.15, True),
    ("alarms that come back within a minute", lambda one: float(one.flaps), 0.0, False),
)


def _bound(what: str, get: Get, bound: float, at_least: bool, ours: Score) -> tuple[str, ...]:
    value = get(ours)
    kept = value is not None and (value >= bound if at_least else value <= bound)
    shown = "-" if value is None else f"{value:.2f}" if bound < 10 else seconds(value)
    return f"{what} {'>=' if at_least else '<='} {bound:g}", shown, "yes" if kept else "**no**"


def _family(name: str, one: Score) -> tuple[str, ...]:
    def plain(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    return (
        name,
        str(one.recall.of),
        plain(one.recall.value),
        str(one.precision.of + one.open_alarms),
        plain(one.precision.value),
        plain(one.precision_near.value),
        f"{one.false_seconds_per_hour:.0f}",
    )


def table(heads: tuple[str, ...], lines: Iterator[tuple[str, ...]]) -> Iterator[str]:
    """A table of Markdown, line by line."""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for line in lines:
        yield f"| {' | '.join(line)} |"


def kinds() -> Iterator[str]:
    """Recall by what could be known of an event."""
    ours = result().scores[OURS]
    lines = ((kind, str(one.of), of(one)) for kind, one in ours.recall_by_kind.items())
    yield from table(("kind of event", "events", "recall"), lines)


TABLES = {
    "told": told,
    "bounds": bounds,
    "scores": scores,
    "kinds": kinds,
    "families": families,
    "reliability": reliability,
}
