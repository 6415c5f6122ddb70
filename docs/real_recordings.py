"""Tables of recorded real servers in docs/forecast.md: what each forecaster said before their pools ran out."""

import functools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from agent.app import replayed_board
from agent.backtest.bundles import read_bundle
from agent.backtest.episodes import Episode, episodes_of
from agent.backtest.forecasters import FORECASTERS, OURS, Look, looks
from agent.backtest.recordings import Recording
from agent.backtest.report import backtest, gain_text, of
from agent.backtest.score import LEAST_LEAD, alarms_of
from agent.memory.exhaustion import exhaustion_of
from agent.recorder.player import Player

logging.getLogger("vramscope").addHandler(logging.NullHandler())  # what an agent would log again when it is replayed
FOLDER = Path(__file__).parents[1] / "tests" / "fixtures" / "recordings"
SHOWN = ("forecast", "use >= 90 %", "predict_linear 5 min")


@functools.cache
def recordings() -> tuple[Recording, ...]:
    """Those of real servers, each with one pool, by engine and story."""
    paths = sorted(FOLDER.glob("*/*.vramscope"))
    return tuple(replace(read(path), name=f"{path.parent.name}: {path.stem}") for path in paths)


def read(path: Path) -> Recording:
    """The one pool of a recording with one server, as the backtest reads it."""
    (pool,) = read_bundle(Player(path, replayed_board))
    return pool


def table() -> Iterator[str]:
    """A row for each episode: when its event came, and how long before it each forecaster's alarm."""
    heads = ("engine", "story", "watched, s", "event after, s", "rise from 60 %, s", *SHOWN)
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for one in recordings():
        live = exhaustion_of(one.facts.engine, one.facts.kind).live_gauges
        seen = {name: looks(FORECASTERS[name](one.facts), one.signals) for name in SHOWN}
        for episode in episodes_of(one.signals, live_gauges=live):
            yield f"| {' | '.join(_row(one, episode, seen))} |"


def _row(one: Recording, episode: Episode, seen: dict[str, list[Look]]) -> Iterator[str]:
    engine, _, story = one.name.partition(": ")
    begin = one.signals[0].at
    yield from (engine, story, f"{episode.begin - begin:.0f}-{episode.end - begin:.0f}")
    yield from (f"{episode.end - begin:.0f}", f"{episode.rise_seconds:.0f}") if episode.event else ("-", "-")
    yield from (_said(episode, seen[name]) for name in SHOWN)


def _said(episode: Episode, seen: Sequence[Look]) -> str:
    alarms = alarms_of(seen, episode.begin, episode.end)
    if not episode.event:
        return "quiet" if not alarms else f"alarm for {sum(off - on for on, off in alarms):.0f} s"
    on = [on for on, off in alarms if off >= episode.end - LEAST_LEAD and on <= episode.end - LEAST_LEAD]
    return f"{episode.end - on[-1]:.0f} s before" if on else "none in time"


def scores() -> Iterator[str]:
    """All of them scored in one run."""
    found = backtest(recordings())
    yield f"{found.recordings} recordings, {found.events} events."
    yield ""
    yield "| forecaster | recall | precision with near misses | alarm without event, s |"
    yield "|---|---|---|---|"
    for name, one in found.scores.items():
        wrong = one.false_seconds_per_hour * found.hours
        yield f"| {name} | {of(one.recall)} | {of(one.precision_near)} | {wrong:.0f} |"
    brier = (f"{gain_text(one.gain)} climatology for {one.horizon_seconds} s" for one in found.scores[OURS].calibration)
    yield ""
    yield f"Brier score of the forecast: {', '.join(brier)}."


TABLES = {"stories": table, "scores": scores}
