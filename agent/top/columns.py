"""A table that fits a width: columns that matter less go first, one takes what is left, no figure is ever cut."""

from collections.abc import Callable

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.text import Text

GAP = 2


class Column(Struct, frozen=True, kw_only=True):
    """One column. Of those with a ``priority`` the highest is left out first; ``least``: what it is never below.

    ``elastic``: it takes the room that is left, by ``drawn`` where its cells are drawn for a width.
    """

    title: str
    cells: tuple[Text, ...]
    left: bool = False
    priority: int = 0
    least: int = 0
    elastic: bool = False
    drawn: Callable[[int, int], Text] | None = None  # row, width

    @property
    def width(self) -> int:
        """What its cells need; of an elastic one what it is content with."""
        if self.elastic:
            return self.least
        return max([self.least, cell_len(self.title), *(cell.cell_len for cell in self.cells)])


def table(columns: list[Column], width: int) -> tuple[Text, list[Text]]:
    """The heading and a line for each row, none wider than ``width``."""
    kept = _kept(columns, width)
    widths = _widths(kept, width)
    rows = len(columns[0].cells)
    heading = _line([_fitted(Text(one.title), size, one) for one, size in zip(kept, widths, strict=True)])
    lines = [_line([_cell(one, row, size) for one, size in zip(kept, widths, strict=True)]) for row in range(rows)]
    return _cut(heading, width), [_cut(line, width) for line in lines]


def _widths(kept: list[Column], width: int) -> list[int]:
    """What is left goes to elastic columns: to text as far as it needs it, then to what is drawn, else to text."""
    widths = [column.width for column in kept]
    left = max(0, width - sum(widths) - GAP * (len(kept) - 1))
    elastic = [place for place, column in enumerate(kept) if column.elastic]
    for place in elastic:
        needed = max((cell.cell_len for cell in kept[place].cells), default=0) - widths[place]
        more = max(0, min(left, needed))
        widths[place] += more
        left -= more
    if elastic:
        widths[next((place for place in elastic if kept[place].drawn), elastic[0])] += left
    return widths


def _kept(columns: list[Column], width: int) -> list[Column]:
    kept = list(columns)
    while sum(column.width for column in kept) + GAP * (len(kept) - 1) > width:
        least = max(kept, key=lambda column: column.priority)
        if not least.priority:
            break
        kept.remove(least)
    return kept


def _cell(column: Column, row: int, width: int) -> Text:
    return column.drawn(row, width) if column.drawn else _fitted(column.cells[row].copy(), width, column)


def _fitted(text: Text, width: int, column: Column) -> Text:
    if text.cell_len > width:
        text.plain = shortened_within(text.plain, width)
    missing = width - text.cell_len
    if column.left or column.elastic:
        text.pad_right(missing)
    else:
        text.pad_left(missing)
    return text


def shortened(text: str, width: int) -> str:
    """The text in so many cells at most; ``~`` ends one that is cut."""
    return text if cell_len(text) <= width else (set_cell_size(text, width - 1) + "~" if width > 1 else "~"[:width])


def shortened_within(text: str, width: int) -> str:
    """The same, with the end of it kept: names of one kind differ there."""
    if cell_len(text) <= width or width < 8:
        return shortened(text, width)
    tail = text[-(width // 2) :]
    while cell_len(tail) > width // 2:
        tail = tail[1:]
    return set_cell_size(text, width - 1 - cell_len(tail)) + "~" + tail


def _line(cells: list[Text]) -> Text:
    return Text(" " * GAP).join(cells)


def _cut(line: Text, width: int) -> Text:
    line.truncate(max(0, width), overflow="crop")
    line.no_wrap = True
    return line
