"""Grafana dashboards drawn in Chromium without a Grafana: its published packages, bundled once, and a Prometheus.

The page is in ``dashboards/preview``. Its packages are installed into the person's cache, never into the tree.
"""

import functools
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.browser import Browser, BrowserError

SOURCES = Path(__file__).parent.parent.parent / "dashboards" / "preview"
# Plots are drawn in frames of their own after they are laid out, and icons are fetched.
SETTLED = "document.fonts.ready.then(() => new Promise((done) => setTimeout(done, 1500)))"

# Where Grafana's styles look for its font, and the file of the package that brings it.
FONTS = {
    "Inter-Regular": "inter-latin-400-normal",
    "Inter-Medium": "inter-latin-500-normal",
    "Inter-Italic": "inter-latin-400-italic",
}


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """What one panel shows: how many series or rows it got, and whether a published component draws its type."""

    title: str
    type: str
    drawn: bool
    returned: int


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """From where and how a dashboard is drawn: Unix seconds, seconds, CSS pixels; values of variables, else all."""

    url: str
    from_: int = msgspec.field(name="from")
    to: int
    scrape_interval: int
    width: int = 1600
    mode: str = "dark"
    values: dict[str, str] = {}


def installed() -> Path:
    """The packages of the preview, as its lock file names them, in the cache; installed where they are not yet.

    Raises:
        subprocess.CalledProcessError: npm could not install them.
    """
    lock = SOURCES / "package-lock.json"
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "vramscope-preview"
    folder = cache / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    done = folder / "installed"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCES / name, folder)
        subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, check=True)
        done.touch()
    return folder / "node_modules"


def bundle(modules: Path, into: Path) -> None:
    """Make the page in a folder: one script, one style sheet, fonts and Grafana's icons."""
    subprocess.run(
        [
            modules / ".bin" / "esbuild",
            SOURCES / "main.jsx",
            "--bundle",
            "--jsx=automatic",
            "--loader:.ttf=file",
            '--define:process.env.NODE_ENV="production"',
            "--log-level=error",
            f"--outfile={into / 'preview.js'}",
        ],
        env={**os.environ, "NODE_PATH": str(modules)},
        check=True,
    )
    shutil.copy(SOURCES / "index.html", into)
    (into / "fonts" / "inter").mkdir(parents=True)
    for name, file in FONTS.items():
        font = modules / "@fontsource" / "inter" / "files" / f"{file}.woff2"
        shutil.copy(font, into / "fonts" / "inter" / f"{name}.woff2")
    (into / "build").mkdir()
    (into / "build" / "img").symlink_to(modules / "@grafana" / "ui" / "dist" / "public" / "img")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address under which a folder is served on loopback until the block ends."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def draw(browser: Browser, page_url: str, dashboard: dict[str, Any], view: View, picture: Path) -> list[Panel]:
    """One dashboard, whole, as a picture; returns what each panel shows.

    Raises:
        BrowserError: the page threw, such as for a query that Prometheus refuses, or its console has complaints.
    """
    page = browser.open(page_url, width=view.width, height=900)
    try:
        page.wait_until("window.drawDashboard !== undefined", seconds=60)
        options = json.dumps({**msgspec.to_builtins(view), "dashboard": dashboard})
        panels = msgspec.convert(page.evaluate(f"drawDashboard({options})"), list[Panel])
        page.resize(view.width, int(page.evaluate("document.querySelector('.grid').offsetHeight")))
        page.evaluate(SETTLED)
        page.screenshot(picture)
        complaints = page.problems()
    finally:
        page.close()
    if complaints:
        raise BrowserError(f"{dashboard['title']}: {complaints}")
    return panels


def optimise(modules: Path, picture: Path, into: Path) -> None:
    """The same picture in at most 256 colours."""
    command: list[str | Path] = ["node", SOURCES / "optimise.mjs", picture, into]
    subprocess.run(command, env={**os.environ, "NODE_PATH": str(modules)}, check=True)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what is missing, the page complains of."""
