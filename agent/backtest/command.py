"""``vramscope backtest DIR``: how good forecast and alarms are on recordings."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from agent.app import replayed_board
from agent.backtest.bundles import read_bundle
from agent.backtest.forecasters import OURS
from agent.backtest.recordings import SUFFIX as SIGNALS
from agent.backtest.recordings import Recording, read_recording
from agent.backtest.report import HEADS, Backtest, backtest, gain_text, of, rows
from agent.errors import InputError
from agent.printable import printable
from agent.recorder.player import Player
from agent.recorder.ring import SUFFIX as BUNDLE

EXPECTED = f"*{BUNDLE} or *{SIGNALS}"


@click.command("backtest")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else.")
def backtest_command(folder: Path, as_json: bool) -> None:
    """Score the forecast of KV pools on the recordings in DIR, beside a fixed threshold and a straight line.

    Recordings are those that `vramscope record` keeps. An event is the first preemption, retraction, refusal, queueing
    or lack of memory of an episode; it counts as seen by an alarm 10 to 300 s before. docs/forecast.md has all
    definitions.

    Example: vramscope backtest recordings/
    """
    problems: list[str] = []
    result = backtest(_recordings(folder, problems))
    if not result.recordings:
        raise InputError(f"{folder}: no KV pool was read in any recording in it")
    result = replace(result, problems=tuple(problems))
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        _print(result)


def _recordings(folder: Path, problems: list[str]) -> Iterator[Recording]:
    """All pools of all recordings in a folder, by name; ``problems`` gets a sentence on each that is damaged.

    Raises:
        InputError: no folder, no recording in it, or one that can't be read.
    """
    try:
        if not folder.is_dir():
            raise InputError(f"{folder}: expected a folder with recordings ({EXPECTED})")
        paths = sorted(path for path in folder.rglob("*") if path.name.endswith((SIGNALS, BUNDLE)))
    except OSError as error:
        raise InputError(f"{folder}: can't be read: {error.strerror}; run it as a user who may") from error
    if not paths:
        raise InputError(f"{folder}: no recording in it; expected files named {EXPECTED}")
    for path in paths:
        if path.name.endswith(SIGNALS):
            yield read_recording(path)
            continue
        player = Player(path, replayed_board)
        yield from read_bundle(player)
        if player.file.problem is not None:
            problems.append(player.file.problem)


def _print(result: Backtest) -> None:
    console = Console(highlight=False, width=None if Console().is_terminal else 160)
    console.print(
        f"{result.recordings} recordings, {result.hours:.1f} h: "
        f"{result.episodes} episodes, {result.events} with an event"
    )
    table = Table(box=None, pad_edge=False)
    for number, head in enumerate(HEADS):
        table.add_column(head, justify="left" if number == 0 else "right", overflow="fold")
    for row in rows(result):
        table.add_row(*row)
    console.print(table)
    for problem in result.problems:
        console.print(printable(problem))
    ours = result.scores[OURS]
    for kind, recall in ours.recall_by_kind.items():
        console.print(f"recall of {kind} events: {of(recall)}, {recall.of} of them")
    for one in ours.calibration:
        console.print(
            f"probability for {one.horizon_seconds} s: Brier score {one.brier:.4f}, climatology {one.climatology:.4f}, "
            f"{gain_text(one.gain)}, {one.looks} looks"
        )
