"""Both tables in so many lines: where not all rows fit each has some, and the last line says what is left out."""

from collections.abc import Iterator, Mapping

from msgspec import Struct
from rich.text import Text

from agent.top import words
from agent.top.columns import shortened
from agent.top.rows import RISKY, STANDINGS, Standing, Table

Tables = tuple[Table, Table]  # of the GPUs, of the servers


class _Part(Struct, frozen=True, kw_only=True):
    """Rows of a table from ``start`` on, with the heading where there is room for it."""

    table: Table
    start: int = 0
    count: int = 0
    headed: bool = True

    @property
    def lines(self) -> tuple[tuple[str, Text], ...]:
        return self.table.lines[self.start : self.start + self.count]

    def left_out(self) -> Iterator[tuple[str, bool]]:
        """The key of each row that is not in it, and whether that is the first row of what it is of."""
        firsts = {key: place for place, (key, _) in reversed([*enumerate(self.table.lines)])}
        for place, (key, _) in enumerate(self.table.lines):
            if not self.start <= place < self.start + self.count:
                yield key, firsts[key] == place


def fitted(tables: Tables, legend: list[Text], *, selected: str | None, room: int) -> list[Text] | None:
    """All rows, the selection marked, the legend between them where there is room; None where rows do not fit."""
    whole = [[_beside(table.heading), *(_marked(line, selected) for line in table.lines)] for table in tables]
    for between in ([*map(_beside, legend), Text()], [Text()], []):
        if sum(map(len, whole)) + len(between) <= room:
            return [*whole[0], *between, *whole[1]]
    return None


def cut(
    tables: Tables,
    standings: Mapping[str, Standing],
    *,
    selected: str | None,
    width: int,
    room: int,
    colours: bool,
) -> list[Text]:
    """Some rows of both tables, the selection among them, and in the last line what is left out."""
    parts = _parts(tables, selected, room)
    lines = []
    for part in parts:
        lines += [_beside(part.table.heading)] if part.headed else []
        lines += [_marked(line, selected) for line in part.lines]
    text, worst = _left_out(parts, standings)
    return [*lines, _beside(Text(shortened(text, width), RISKY.get(worst, "") if colours else ""))]


def _parts(tables: Tables, selected: str | None, room: int) -> list[_Part]:
    """Of both tables where each gets a row then; else of the one with the selection alone."""
    first, second = (len(table.lines) for table in tables)
    rows = room - 3  # two headings, and what is left out
    if rows >= (first > 0) + (second > 0):
        lower = min(second, rows - min(first, rows // 2))
        counts = (min(first, rows - lower), lower)
        return [_part(table, selected, count, headed=True) for table, count in zip(tables, counts, strict=True)]
    of_servers = any(key == selected for key, _ in tables[1].lines)
    counts = (0, max(1, room - 2)) if of_servers else (max(1, room - 2), 0)
    return [
        _part(table, selected, count, headed=count > 0 and room > 2)
        for table, count in zip(tables, counts, strict=True)
    ]


def _part(table: Table, selected: str | None, count: int, *, headed: bool) -> _Part:
    """With the first row of the selection in it, and as many of its others as there is room for."""
    places = [place for place, (key, _) in enumerate(table.lines) if key == selected]
    start = min(places[0], max(0, places[-1] - count + 1)) if places and count else 0
    return _Part(table=table, start=start, count=count, headed=headed)


def _left_out(parts: list[_Part], standings: Mapping[str, Standing]) -> tuple[str, Standing]:
    """As in ``... 2 GPUs, 5 servers more: 1 critical``, and how grave it is about the gravest of them."""
    counts = {"GPU": 0, "server": 0, "pool": 0}
    found: list[Standing] = []
    for part, noun in zip(parts, ("GPU", "server"), strict=True):
        left_out = [*part.left_out()]
        gone = {key for key, is_first in left_out if is_first}
        counts[noun] = len(gone)
        counts["pool"] += sum(key not in gone for key, _ in left_out)
        found += [standings[key] for key in gone]
    grave = [(one, found.count(one)) for one in reversed(STANDINGS) if one not in ("ok", None) and one in found]
    what = ", ".join(f"{number} {noun}{'' if number == 1 else 's'}" for noun, number in counts.items() if number)
    levels = ", ".join(f"{number} {words.standing(one)}" for one, number in grave)
    worst: Standing = max(found, key=STANDINGS.index, default="ok")
    return f"... {what} more" + (f": {levels}" if levels else ""), worst


def _marked(line: tuple[str, Text], selected: str | None) -> Text:
    key, text = line
    if key != selected:
        return _beside(text)
    marked = Text.assemble((">", "bold"), " ", text)
    marked.stylize("bold")
    return marked


def _beside(text: Text) -> Text:
    """Clear of the mark of a selection."""
    return Text.assemble("  ", text)
