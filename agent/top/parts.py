"""The memory of a device as one bar: the order, colours and letters of its parts.

Colours are the page's (Okabe and Ito's palette). Letters stand in for them on terminals that have none, and begin each
part where there are colours, for eyes that do not tell them apart.
"""

from collections.abc import Container, Iterable, Iterator
from itertools import groupby

from msgspec import Struct
from rich.style import Style
from rich.text import Text

from agent.snapshot import Component, Device


class Look(Struct, frozen=True, kw_only=True):
    """How a component is drawn."""

    letter: str
    name: str
    background: str
    letters: str = "#1b2026"


LOOKS = {
    "reserved": Look(letter="R", name="reserved", background="#6b727c", letters="#ffffff"),
    "weights": Look(letter="W", name="weights", background="#0072b2", letters="#ffffff"),
    "kv_used": Look(letter="K", name="KV used", background="#e69f00"),
    "kv_reserved": Look(letter="k", name="KV set aside", background="#e69f00"),
    "kv_cached": Look(letter="c", name="KV cached", background="#f0c566"),
    "kv_free": Look(letter="-", name="KV free", background="#f8e4b8"),
    "kv_available": Look(letter="-", name="KV available", background="#f8e4b8"),
    "kv_pool": Look(letter="P", name="KV pool", background="#e69f00"),
    "state": Look(letter="S", name="state", background="#f0e442"),
    "cuda_graphs": Look(letter="G", name="graphs", background="#56c2a0"),
    "activations": Look(letter="A", name="activations", background="#8ed6bf"),
    "allocator_slack": Look(letter="L", name="slack", background="#c4eadd"),
    "context": Look(letter="X", name="context", background="#00664b", letters="#ffffff"),
    "runtime": Look(letter="T", name="runtime", background="#009e73"),
    "other_processes": Look(letter="O", name="other", background="#8d1af9", letters="#ffffff"),
    "hidden": Look(letter="H", name="hidden", background="#d55e00"),
    "host": Look(letter="M", name="host", background="#56b4e9"),
    "free": Look(letter=".", name="free", background="#4a525c", letters="#ffffff"),
}
_OTHERWISE = Look(letter="?", name="", background="#b3a2c7")
_ORDER = {name: place for place, name in enumerate(LOOKS)}


def ordered(device: Device) -> list[Component]:
    """Its components as they stand in the bar: driver, server by server, the rest, free."""

    def place(part: Component) -> tuple[int, str, int]:
        rank = _ORDER.get(part.component, _ORDER["free"] - 1)
        own = 0 if part.component == "reserved" else 2
        return (1, part.server, rank) if part.server else (own, "", rank)

    return sorted(device.components, key=place)


def bar(device: Device, width: int, *, colours: bool) -> Text:
    """The bar in so many cells; an empty one where there is no reading."""
    return _drawn(_cells(device, width), width, colours=colours)


def pool_bar(used_ratio: float | None, width: int, *, colours: bool) -> Text:
    """How much of a KV pool is in use, in so many cells; blanks where that is not known."""
    used = 0 if used_ratio is None else round(width * min(1.0, max(0.0, used_ratio)))
    free = 0 if used_ratio is None else width - used
    return _drawn([LOOKS["kv_used"]] * used + [LOOKS["kv_available"]] * free, width, colours=colours)


def legend(components: Container[str], *, colours: bool) -> list[Text]:
    """Letter and name of each of these components, in the order of the bars."""
    return [_entry(LOOKS[name], colours=colours) for name in LOOKS if name in components]


def _drawn(cells: Iterable[Look], width: int, *, colours: bool) -> Text:
    line = Text(no_wrap=True)
    for look, same in groupby(cells):
        count = len(list(same))
        if colours:
            line.append(look.letter.ljust(count), Style(color=look.letters, bgcolor=look.background))
        else:
            line.append(look.letter * count)
    line.pad_right(width - line.cell_len)
    return line


def _entry(look: Look, *, colours: bool) -> Text:
    style = Style(color=look.letters, bgcolor=look.background) if colours else Style()
    return Text.assemble((look.letter, style), " ", look.name, no_wrap=True)


def _cells(device: Device, width: int) -> Iterator[Look]:
    """What each cell shows: parts end at the cell nearest to their end, so that the widths of all sum to the whole."""
    parts = ordered(device)
    total = sum(part.bytes for part in parts)
    end, drawn = 0, 0
    for part in parts:
        end += part.bytes
        upto = round(width * end / total) if total else 0
        for _ in range(drawn, upto):
            yield LOOKS.get(part.component, _OTHERWISE)
        drawn = max(drawn, upto)
