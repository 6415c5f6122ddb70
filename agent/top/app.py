"""The terminal itself: keys change what is chosen, figures come by themselves, and what has changed is drawn anew."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import ClassVar, TextIO

from msgspec.structs import replace
from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from agent.top.ending import Ending
from agent.top.follow import Source
from agent.top.keyboard import Keyboard
from agent.top.rows import SORTS, Sort
from agent.top.screen import Choice, Page, Screen, screen
from agent.top.seen import Seen

LOOK_SECONDS = 0.5
TERMINAL_SECONDS = 2.0
_SORT_KEYS: dict[str, Sort] = {"r": "risk", "t": "left", "u": "used", "n": "name"}
_PAGE_KEYS: dict[str, Page] = {"h": "help", "?": "help", "f": "failures"}
_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "home": -(10**6), "g": -(10**6), "end": 10**6, "G": 10**6}


class Canvas(Widget):
    """Lines of text, of which only those that have changed are drawn."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; background: ansi_default; color: ansi_default; }"

    def __init__(self) -> None:
        super().__init__()
        self._lines: tuple[list[Segment], ...] = ()

    def show(self, drawn: Screen) -> None:
        """Take the lines of a screen."""
        before = self._lines
        self._lines = tuple(map(self._segments, drawn.lines))
        if len(before) != len(self._lines):
            self.refresh()
            return
        changed = [y for y, line in enumerate(self._lines) if line != before[y]]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def _segments(self, line: Text) -> list[Segment]:
        """With the style of the whole line, which ``Text.render`` leaves to others."""
        console = self.app.console
        return list(Segment.apply_style(line.render(console, end=""), console.get_style(line.style)))

    def render_line(self, y: int) -> Strip:
        """One line, as wide as the canvas."""
        segments = self._lines[y] if y < len(self._lines) else []
        return Strip(segments).adjust_cell_length(self.size.width, self.rich_style)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """All there is."""
        return container.height


class Top(App[None]):
    """Shows what a source sees until its person ends it."""

    CSS = "Screen { background: ansi_default; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c,ctrl+q,q", "quit", show=False, priority=True)]

    def __init__(
        self, source: Source, name: str, *, colours: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(driver_class=Keyboard, ansi_color=True)
        self._source = source
        self._seen = Seen(name, clock=clock)
        self._colours = colours
        self._choice = Choice()
        self._drawn = Screen(lines=(), keys=(), selected=None)
        self._on_screen: object = None
        self._ending = Ending(keys=_number(sys.__stdin__, 0), screen=_number(sys.__stderr__, 2))

    def compose(self) -> ComposeResult:
        yield Canvas()

    async def on_mount(self) -> None:
        """Begin to look."""
        loop = asyncio.get_running_loop()
        self._ending.on(signal.SIGTERM, lambda: loop.call_soon_threadsafe(self.exit))
        signal.signal(signal.SIGHUP, lambda *_: _end_at_once())
        self.run_worker(self._source.run(self._seen), exit_on_error=True)
        self.set_interval(LOOK_SECONDS, self._draw)
        self.set_interval(TERMINAL_SECONDS, _end_without_terminal)

    def on_resize(self, _: events.Resize) -> None:
        """Draw for the new size."""
        self._draw()

    def on_key(self, event: events.Key) -> None:
        """Take what a person wants."""
        self._choice = self._chosen(event.character if event.character and event.is_printable else event.key)
        self._draw()

    def _draw(self) -> None:
        """Draw what is not yet on the screen."""
        shown, (width, height) = self._seen.shown(), self.size
        wanted = (id(shown.snapshot), shown.problem, self._choice, width, height)
        if wanted == self._on_screen or not (width and height):
            return
        self._on_screen = wanted
        self._drawn = screen(shown, self._choice, width=width, height=height, colours=self._colours)
        self.query_one(Canvas).show(self._drawn)

    def _chosen(self, key: str) -> Choice:
        choice, height = self._choice, max(1, self.size.height - 4)
        if key in ("escape", "left", "backspace") or _PAGE_KEYS.get(key) == choice.page:
            return replace(choice, page=choice.back, back="tables", scroll=0)
        if key in _PAGE_KEYS:
            back = choice.back if choice.page in _PAGE_KEYS.values() else choice.page
            return replace(choice, page=_PAGE_KEYS[key], back=back, scroll=0)
        if key in ("enter", "right") and self._drawn.selected is not None:
            return replace(choice, page="detail", back="tables", selected=self._drawn.selected, scroll=0)
        if key in _SORT_KEYS or key == "s":
            after = SORTS[(SORTS.index(choice.sort) + 1) % len(SORTS)]
            return replace(choice, sort=_SORT_KEYS.get(key, after))
        step = {**_STEPS, "pageup": -height, "pagedown": height}.get(key, 0)
        if choice.page != "tables":
            return replace(choice, scroll=max(0, min(self._drawn.last_scroll, choice.scroll + step)))
        return replace(choice, selected=self._beside(step))

    def _beside(self, step: int) -> str | None:
        """The row so many below the selected one, the first or last one where there are not so many."""
        keys, selected = self._drawn.keys, self._drawn.selected
        if selected is None:
            return None
        return keys[max(0, min(len(keys) - 1, keys.index(selected) + step))]


def _end_without_terminal() -> None:
    """A terminal may go without a signal, where it is not the one that controls this process."""
    if not os.isatty(_number(sys.__stdin__, 0)):
        _end_at_once()


def _number(stream: TextIO | None, otherwise: int) -> int:
    return otherwise if stream is None else stream.fileno()


def _end_at_once() -> None:
    """There is nothing to restore on a terminal that is gone, and textual's reader of keys would spin on its end."""
    os._exit(128 + signal.SIGHUP)
