"""A backtest as one document, as text, and as a table for the docs."""

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from agent.backtest.episodes import episodes_of
from agent.backtest.forecasters import FORECASTERS, OURS, looks
from agent.backtest.recordings import Recording
from agent.backtest.score import Score, Share, Tally, add, score
from agent.memory.exhaustion import exhaustion_of

HEADS = (
    "forecaster",
    "recall",
    "rise > 60 s",
    "precision",
    "with near misses",
    "lead, s",
    "rise > 120 s",
    "alarm without event, s/h",
    "alarms/h",
    "flaps",
)


def gain_text(gain: float) -> str:
    """How far a Brier score is from that of always saying how often it comes; lower is better."""
    return f"{abs(gain):.0%} {'below' if gain >= 0 else 'above'}"


class Backtest(Struct, frozen=True, kw_only=True):
    """What forecasters are worth on some recordings; ``forecast`` is this program's, the others are baselines.

    ``problems``: a sentence on each recording of which the end can't be read.
    """

    schema: Literal["vramscope.backtest/1"] = "vramscope.backtest/1"
    recordings: int
    episodes: int
    events: int
    hours: float
    scores: dict[str, Score]
    groups: dict[str, Score] = {}  # of this program's forecast, by the part of a recording's name before ":"
    problems: tuple[str, ...] = ()


def backtest(recordings: Iterable[Recording]) -> Backtest:
    """Let every forecaster see every recording."""
    tallies = {name: Tally() for name in FORECASTERS}
    groups: dict[str, Tally] = {}
    count = episodes = events = 0
    for recording in recordings:
        count += 1
        means = exhaustion_of(recording.facts.engine, recording.facts.kind)
        found = episodes_of(recording.signals, live_gauges=means.live_gauges)
        episodes += len(found)
        events += sum(one.event for one in found)
        for name, make in FORECASTERS.items():
            seen = looks(make(recording.facts), recording.signals)
            for episode in found:
                add(tallies[name], episode, seen)
                if name == OURS:
                    add(groups.setdefault(recording.name.partition(":")[0], Tally()), episode, seen)
    return Backtest(
        recordings=count,
        episodes=episodes,
        events=events,
        hours=tallies[OURS].seconds / 3600,
        scores={name: score(tally) for name, tally in tallies.items()},
        groups={name: score(tally) for name, tally in groups.items()},
    )


def rows(result: Backtest) -> Iterator[tuple[str, ...]]:
    """A row for each forecaster, under ``HEADS``."""
    for name, one in result.scores.items():
        yield (
            name,
            of(one.recall),
            of(one.recall_by_rise["over 60 s"]),
            of(one.precision),
            of(one.precision_near),
            seconds(one.lead_seconds),
            seconds(one.slow_lead_seconds),
            f"{one.false_seconds_per_hour:.0f}",
            f"{one.alarms_per_hour:.2f}",
            str(one.flaps),
        )


def of(one: Share) -> str:
    """A share with its interval."""
    if one.value is None:
        return "-"
    return f"{one.value:.2f} ({one.low:.2f}-{one.high:.2f})"


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
