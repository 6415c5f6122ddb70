"""One screen as lines of text: what a person has chosen, over the newest snapshot, in so many columns and rows."""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text

from agent.snapshot import Snapshot
from agent.terminal import detail
from agent.top import rows, words
from agent.top.columns import shortened
from agent.top.fitting import Tables, cut, fitted
from agent.top.parts import LOOKS, legend
from agent.top.rows import Drawn, Sort, Table
from agent.top.seen import Shown

HELP = (
    "up down j k              select; scroll a detail or this help",
    "pgup pgdn home end g G   further",
    "enter right              detail: each figure and how it is known",
    "esc left                 back",
    "r t u n                  order by risk, left, used, name",
    "s                        the next of these orders",
    "f                        what can't be read, and why",
    "h ?                      this help; once more: back",
    "q                        end",
    "",
    "HEADROOM  what of a GPU is there for temporaries and fragmentation",
    "POOL      what requests hold of a pool, beside what is free; USED the same",
    "GROWTH    tokens by which it grows in a second, over up to 3 minutes",
    "          ~ over the last seconds alone: the agent knows no more yet",
    "TOK/S     tokens that are generated in a second, over the last seconds",
    "LEFT      until a pool or a GPU is full, as is likely",
    "          ran out: full within the last 2 minutes, and has room again",
    "EARLY     the same at the soonest",
    "RUN       requests that run; WAIT those that wait for room",
    "PRE       preemptions: requests that lost their room, since the engine's",
    "          start",
    "CHAINS    tokens of a running request, and how few hold how much",
    "RISK      the level and what is behind it; more of it in the detail",
    "          held: it was so lately, and the level falls some minutes later",
    "          down: it does not answer; loading, sleeping: it does not serve",
    "          no room: for the largest temporaries",
    "          creeps: memory outside the KV pools grows and grows",
    "          off budget: it does not hold, or will not, what was predicted",
    "          other process: of no server; hidden memory: of none in sight",
    "          fragments: much of what an allocator holds is not in use",
    "          residue: a server that sleeps holds much",
    "-         not known",
    "",
    "Of a detail:",
    "known by  measured: by driver or allocator; reported: by the engine;",
    "          computed: from such figures and the layout of the model",
    "then      what a full pool does: preempt, retract (requests that run are",
    "          computed again), pause (them), queue (new ones wait), refuse",
    "          (requests fail), truncate (they lose their beginning)",
)
Page = Literal["tables", "detail", "failures", "help"]
LEAST_BELOW = 8
_WARNING = Style(color="red", bold=True)


class Choice(Struct, frozen=True, kw_only=True):
    """What a person has chosen; while none is ``selected`` it is the gravest.

    ``scroll`` is of the pages beside the tables, ``back`` that from which help or failures were opened.
    """

    sort: Sort = "risk"
    selected: str | None = None
    page: Page = "tables"
    back: Page = "tables"
    scroll: int = 0


class Screen(Struct, frozen=True, kw_only=True):
    """Lines of one screen, the keys of all rows in their order, and how far it can be scrolled."""

    lines: tuple[Text, ...]
    keys: tuple[str, ...]
    selected: str | None
    last_scroll: int = 0


def screen(shown: Shown, choice: Choice, *, width: int, height: int, colours: bool) -> Screen:
    """The lines of a screen of this size; they are as many as it has rows."""
    head = [_title(shown, width), *_warnings(shown, width, colours=colours)]
    room = max(1, height - len(head) - 1)
    drawn = Drawn(width=max(1, width - 2), colours=colours, current=shown.problem is None, changes=shown.changes)
    tables = None if shown.snapshot is None else _tables(shown.snapshot, choice.sort, drawn)
    keys = tuple(dict.fromkeys(key for table in tables or () for key, _ in table.lines))
    selected = choice.selected if choice.selected in keys else rows.gravest(shown.snapshot)
    last = 0
    if choice.page == "help":
        body, last = _window(_help(width, colours=colours), choice.scroll, room)
    elif shown.snapshot is None or tables is None:
        body = [Text("waiting for the first figures ..." if shown.problem is None else "nothing to show yet")]
    elif choice.page == "failures":
        body, last = _window(_failures(shown.snapshot, width), choice.scroll, room)
    elif choice.page == "detail" and selected is not None:
        body, last = _window(_detail(shown.snapshot, selected, drawn), choice.scroll, room)
    else:
        body = _on_tables(shown.snapshot, tables, selected, drawn, room)
    foot = _foot(shown, choice, width, below=max(0, last - choice.scroll))
    lines = [*head, *body[:room], *(Text() for _ in range(room - len(body))), foot][:height]
    for line in lines:
        line.truncate(width, overflow="crop")
    return Screen(lines=tuple(lines), keys=keys, selected=selected, last_scroll=last)


def _title(shown: Shown, width: int) -> Text:
    snapshot = shown.snapshot
    parts = ["vramscope"]
    if snapshot is not None:
        parts.append(words.moment(snapshot.time, "%H:%M:%S UTC"))
        if snapshot.simulated:
            parts.append("simulated node")
        if snapshot.recording is not None:
            parts.append(words.moment(snapshot.time, "recording of %Y-%m-%d"))
        counts = ((len(snapshot.devices), "GPU"), (len(snapshot.servers), "server"))
        parts.append(", ".join(f"{number} {what}{'' if number == 1 else 's'}" for number, what in counts))
    parts.append(words.name(shown.source))
    return Text(shortened("  ".join(parts), width), Style(bold=True))


def _warnings(shown: Shown, width: int, *, colours: bool) -> list[Text]:
    """Why what is shown is not current, in as many lines as it takes; else what can't be read."""
    if shown.problem is not None:
        style = _WARNING if colours else Style(bold=True, reverse=True)
        return [Text(line.plain, style) for line in _wrapped(words.name(shown.problem), width)]
    failing = _failing(shown.snapshot) if shown.snapshot else []
    if not failing:
        return []
    more = f" (f: {len(failing) - 1} more)" if len(failing) > 1 else ""
    return [Text(shortened(f"failed{more}: {failing[0]}", width), Style(color="yellow") if colours else Style())]


def _failing(snapshot: Snapshot) -> list[str]:
    """What can't be read, and why."""
    failing = (one for one in snapshot.collectors if not one.success)
    return [words.name(f"{f'{one.name} {one.target}'.strip()}: {one.error or 'no reading yet'}") for one in failing]


def _failures(snapshot: Snapshot, width: int) -> list[Text]:
    sentences = _failing(snapshot) or ["all sources are read"]
    return [line for sentence in sentences for line in _wrapped(sentence, width)]


def _tables(snapshot: Snapshot, sort: Sort, drawn: Drawn) -> Tables:
    """That of the GPUs and that of the servers; a sentence in place of the heading of one that has no rows."""
    gpus = rows.devices(snapshot.devices, snapshot.servers, sort=sort, drawn=drawn)
    pools = rows.servers(snapshot.servers, sort=sort, drawn=drawn)
    return (
        _headed(gpus, "no GPU: nothing is known about GPU memory"),
        _headed(pools, "no server is configured, and none was found"),
    )


def _headed(table: Table, without: str) -> Table:
    heading = table.heading if table.lines else Text(without)
    if table.lines:
        heading.stylize("bold")
    return replace(table, heading=heading)


def _on_tables(snapshot: Snapshot, tables: Tables, selected: str | None, drawn: Drawn, room: int) -> list[Text]:
    """All rows and what there is room for beside them, or those that fit."""
    there = {part.component for device in snapshot.devices for part in device.components if part.bytes}
    colours = drawn.colours and drawn.current
    letters = _flowing(legend(there, colours=colours), drawn.width)
    whole = fitted(tables, letters, selected=selected, room=room)
    if whole is not None:
        return whole + _below(snapshot, selected, drawn, room - len(whole))
    standings = rows.standings(snapshot)
    return cut(tables, standings, selected=selected, width=drawn.width, room=room, colours=colours)


def _below(snapshot: Snapshot, selected: str | None, drawn: Drawn, room: int) -> list[Text]:
    """The detail of the selection, as far as there is room for it under the tables."""
    if selected is None or room < LEAST_BELOW:
        return []
    lines = _detail(snapshot, selected, drawn)
    room -= 2  # a gap, and what says where the rest is
    more = [Text("  ... enter: all of it")] if len(lines) > room else []
    return [Text(), *(Text.assemble("  ", line) for line in lines[:room]), *more]


def _detail(snapshot: Snapshot, key: str, drawn: Drawn) -> list[Text]:
    kind, _, of = key.partition(" ")
    text = detail(
        snapshot,
        device=next((one for one in snapshot.devices if kind == "gpu" and one.uuid == of), None),
        server=next((one for one in snapshot.servers if kind == "server" and one.name == of), None),
        width=drawn.width,
    )
    grey = rows.GREY if drawn.colours and not drawn.current else Style()
    return [Text(line.plain, grey) for whole in text.splitlines() for line in _wrapped(words.name(whole), drawn.width)]


def _window(lines: list[Text], scroll: int, room: int) -> tuple[list[Text], int]:
    last = max(0, len(lines) - room)
    start = min(scroll, last)
    return lines[start : start + room], last


def _help(width: int, *, colours: bool) -> list[Text]:
    """Keys, columns, and the letters of the bars."""
    letters = _flowing(legend(LOOKS, colours=colours), width)
    return [*(Text(line) for line in HELP), Text(), Text("Of the bars:"), *letters]


def _foot(shown: Shown, choice: Choice, width: int, *, below: int) -> Text:
    """What keys do; beside the tables also how many lines are further down."""
    if choice.page != "tables":
        text = f"esc back  up/down scroll{f' ({below} more)' if below else ''}  q end"
    else:
        failed = "f failed  " if shown.snapshot and _failing(shown.snapshot) else ""
        text = f"by {choice.sort}  s order  enter detail  {failed}h help  q end"
    return Text(shortened(text, width).ljust(width), Style(reverse=True))


def _flowing(entries: list[Text], width: int) -> list[Text]:
    """Entries one after the other, in as many lines as they take."""
    lines: list[Text] = []
    for entry in entries:
        if lines and lines[-1].cell_len + 2 + entry.cell_len <= width:
            lines[-1] = Text("  ").join([lines[-1], entry])
        else:
            lines.append(entry)
    return lines


def _wrapped(text: str, width: int) -> list[Text]:
    """In lines of that width; what goes on stands two cells further in than where it began."""
    if cell_len(text) <= width:
        return [Text(text)]
    begins = text[: len(text) - len(text.lstrip())]
    hanging = "  " if begins and cell_len(begins) + 10 < width else ""
    inside = max(1, width - cell_len(begins + hanging))
    first, *rest = Text(text.lstrip()).wrap(Console(width=width, color_system=None), inside)
    return [Text(begins + first.plain), *(Text(begins + hanging + line.plain) for line in rest)]
