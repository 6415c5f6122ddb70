"""``vramscope backtest DIR``: how good forecast and alarms are on recordings."""

from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from agent.backtest.forecasters import OURS
from agent.backtest.recordings import read_recordings
from agent.backtest.report import HEADS, Backtest, backtest, of, rows


@click.command("backtest")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else.")
def backtest_command(folder: Path, as_json: bool) -> None:
    """Score the forecast of KV pools on the recordings in DIR, beside a fixed threshold and a straight line.

    An event is the first preemption, retraction, refusal or queueing of an episode; it counts as seen by an alarm 10
    to 300 s before. docs/forecast.md has all definitions.

    Example: vramscope backtest recordings/
    """
    result = backtest(read_recordings(folder))
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        _print(result)


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
    ours = result.scores[OURS]
    for kind, recall in ours.recall_by_kind.items():
        console.print(f"recall of {kind} events: {of(recall)}, {recall.of} of them")
    for one in ours.calibration:
        console.print(
            f"probability for {one.horizon_seconds} s: Brier score {one.brier:.4f}, climatology {one.climatology:.4f}, "
            f"{one.gain:.0%} below, {one.looks} looks"
        )
