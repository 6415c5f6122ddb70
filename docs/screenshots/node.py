"""The node page and the terminal, of the demo at a moment at which its pool is foreseen to be full."""

import io
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from docs.screenshots.dashboards import SETTLED
from tests.browser import Browser
from tests.program import Program, finished, running
from tests.tmux import Terminal, terminal

SPEED = "10"
STORY_SECONDS = 180.0  # of waiting for the moment: the demo's whole story is 150 s at that speed
USED = (0.6, 0.8)
CHANGES_SECONDS = 3.0  # after which tokens of a second are known
NARROW = (80, 24)
COLOURS = {"COLORTERM": "truecolor"}
SCREENS = (  # of a terminal: name, size, the keys that lead there from the one before, what is on it then
    ("top", NARROW, (), "by risk"),
    ("top-server", (100, 24), ("End", "Enter"), "esc back"),
    ("top-help", (80, 48), ("h",), "Of the bars"),
)
WIDEST = 200  # of what is written; nothing is wrapped
SHEET = 780  # CSS pixels: 80 columns and a margin
PAGES = (
    ("page", "", 1280, "light"),
    ("page-dark", "", 1280, "dark"),
    ("page-phone", "", 400, "dark"),
    ("page-server", "#server/{server}", 1280, "dark"),
)
TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: {background}; color: {foreground}; display: inline-block; }}
pre {{ margin: 12px 16px; font: 15px/1.25 "DejaVu Sans Mono", monospace; }}
{stylesheet}</style><pre>{code}</pre>"""


@contextmanager
def at_the_moment() -> Iterator[tuple[Program, str]]:
    """The demo while its pool fills, and its server's name."""
    with running("demo", "--speed", SPEED, "--seed", "1", "--listen", "127.0.0.1:0") as demo:
        yield demo, str(demo.until(lambda: _filling(demo), seconds=STORY_SECONDS))


def pages(browser: Browser, demo: Program, server: str, folder: Path) -> Iterator[Path]:
    """Pictures of the page on a desk and on a phone, light and dark, and of the view of a server."""
    for name, address, width, scheme in PAGES:
        page = browser.open(f"{demo.base}/{address.format(server=quote(server))}", width=width, height=900)
        page.prefer(scheme)
        page.wait_until("document.querySelector('[data-component=kv_used]')", seconds=60)
        page.evaluate(SETTLED)
        page.resize(width, int(page.evaluate("document.documentElement.scrollHeight")))
        page.screenshot(folder / f"{name}.png")
        page.close()
        yield folder / f"{name}.png"


def terminals(browser: Browser, demo: Program, folder: Path) -> Iterator[Path]:
    """Pictures of what ``vramscope snapshot`` and ``vramscope top`` write."""
    yield _written(browser, folder / "snapshot.png", finished("snapshot", "--url", demo.base).stdout)
    with _top(demo, folder, NARROW, COLOURS) as screen:
        for name, size, keys, shown in SCREENS:
            screen.resize(*size)
            if keys:
                screen.type(*keys)
            screen.until(shown)
            yield _written(browser, folder / f"{name}.png", screen.screen(styles=True))


def in_trouble(browser: Browser, demo: Program, folder: Path) -> Iterator[Path]:
    """Pictures of ``vramscope top`` once a level is critical: wide, and without colours."""
    demo.until(lambda: "critical" in str(demo.snapshot()["servers"][0]["risk"]), seconds=STORY_SECONDS)
    for name, size, environment in (("top-risk", (140, 30), COLOURS), ("top-plain", (60, 20), {"NO_COLOR": "1"})):
        with _top(demo, folder, size, environment) as screen:
            yield _written(browser, folder / f"{name}.png", screen.screen(styles=True))


@contextmanager
def _top(demo: Program, folder: Path, size: tuple[int, int], environment: Mapping[str, str]) -> Iterator[Terminal]:
    width, height = size
    arguments = ("top", "--url", demo.base)
    own = Path(tempfile.mkdtemp(dir=folder))  # a server of tmux for each
    with terminal(own, *arguments, width=width, height=height, environment=environment) as screen:
        screen.until("SERVER", "reasoner")
        time.sleep(CHANGES_SECONDS)
        yield screen


def _filling(demo: Program) -> str | None:
    for server in demo.snapshot()["servers"]:
        for pool in server["pools"]:
            forecast = pool.get("forecast")
            foreseen = forecast and forecast["exhaustion_seconds"]["likely"]
            if foreseen and USED[0] <= (pool["used_ratio"] or 0) <= USED[1]:
                return str(server["name"])
    return None


def _written(browser: Browser, picture: Path, text: str) -> Path:
    """A terminal's text with its colours, as a picture."""
    console = Console(record=True, width=WIDEST, file=io.StringIO())
    plain = text.rstrip("\n").replace("\x1b[7m", "\x1b[30;47m")  # HTML has no reversed text
    console.print(Text.from_ansi(plain), no_wrap=True, crop=False)
    written = picture.with_suffix(".html")
    written.write_text(console.export_html(theme=MONOKAI, code_format=TERMINAL), encoding="utf-8")
    page = browser.open(written.as_uri(), width=SHEET, height=100)
    width, height = page.wait_until(
        "document.querySelector('pre') && [document.body.offsetWidth, document.body.offsetHeight]"
    )
    page.resize(max(width, SHEET), height)
    page.screenshot(picture)
    page.close()
    return picture
