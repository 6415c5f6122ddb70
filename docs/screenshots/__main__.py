"""Makes docs/images: ``python -m docs.screenshots``; dashboards of a simulated day, page and terminal of the demo."""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from docs.screenshots import dashboards, node
from tests.browser import Browser, chromium
from tests.dashboards.backfill import a_day
from tests.dashboards.day import SCRAPE_SECONDS
from tests.prometheus import Prometheus
from tests.real import require

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
END = 1_796_023_800  # of the day: the same pictures whenever they are made
LOOKED_AT = END - 150  # the reasoner's pool fills: four minutes are left
ONE_NODE = {"instance": "node-1:10175"}
CHOSEN = {
    "vramscope-kv": {**ONE_NODE, "server": "reasoner-8b:8000"},
    "vramscope-node": ONE_NODE,
    "vramscope-budget": ONE_NODE,
    "vramscope-fragmentation": ONE_NODE,
}
LIGHT = {"vramscope-fragmentation"}
SECONDS = {"h": 3600, "m": 60}


def main() -> int:
    """Make every picture."""
    modules = dashboards.installed()
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, chromium(require("chromium"), Path(name)) as browser:
        folder = Path(name)
        with node.at_the_moment() as (demo, server):
            pictures = [*node.terminals(browser, demo, folder), *node.pages(browser, demo, server, folder)]
            pictures += node.in_trouble(browser, demo, folder)
        (folder / "day").mkdir()
        with a_day(folder / "day", end=END) as prometheus:
            pictures += drawn(browser, prometheus, modules, folder)
        for picture in pictures:
            dashboards.optimise(modules, picture, IMAGES / picture.name)
    return 0


def drawn(browser: Browser, prometheus: Prometheus, modules: Path, folder: Path) -> Iterator[Path]:
    """Pictures of the dashboards; says which panels no published package draws and which got nothing."""
    site = folder / "site"
    site.mkdir()
    dashboards.bundle(modules, site)
    with dashboards.served(site) as page:
        for source in sorted((ROOT / "dashboards" / "json").glob("*.json")):
            document = json.loads(source.read_bytes())
            view = dashboards.View(
                url=prometheus.base,
                from_=LOOKED_AT - _seconds(document["time"]["from"]),
                to=LOOKED_AT,
                scrape_interval=SCRAPE_SECONDS,
                mode="light" if source.stem in LIGHT else "dark",
                values=CHOSEN.get(source.stem, {}),
            )
            picture = folder / f"{source.stem}.png"
            panels = dashboards.draw(browser, page, document, view, picture)
            print(f"{source.stem}: {len(panels)} panels")
            print(f"  no package draws them: {[panel.title for panel in panels if not panel.drawn]}")
            print(f"  nothing came back: {[panel.title for panel in panels if not panel.returned]}")
            yield picture


def _seconds(ago: str) -> int:
    """Of a time such as ``now-6h``."""
    span = ago.removeprefix("now-")
    return int(span[:-1]) * SECONDS[span[-1]]


if __name__ == "__main__":
    sys.exit(main())
