"""Makes docs/images: ``python -m docs.screenshots``."""

import json
import sys
import tempfile
import time
from pathlib import Path

from docs.screenshots import dashboards
from tests.browser import chromium
from tests.program import running
from tests.prometheus import prometheus
from tests.real import require

ROOT = Path(__file__).parent.parent.parent
IMAGES = ROOT / "docs" / "images"
SPEED = "10"
WATCHED_SECONDS = 240


def main() -> int:
    """Draw every dashboard. Returns 1 where a panel shows nothing."""
    modules = dashboards.installed()
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = folder / "site"
        site.mkdir()
        dashboards.bundle(modules, site)
        with running("demo", "--speed", SPEED, "--listen", "127.0.0.1:0") as demo:
            rules = sorted((ROOT / "alerts").glob("*.yml"))
            with (
                prometheus(folder, {"vramscope": demo.base.removeprefix("http://")}, rules) as server,
                chromium(require("chromium"), folder) as browser,
                dashboards.served(site) as page,
            ):
                time.sleep(WATCHED_SECONDS)
                now = int(time.time())
                view = dashboards.View(url=server.base, from_=now - WATCHED_SECONDS, to=now, scrape_interval=1)
                empty = 0
                for source in sorted((ROOT / "dashboards" / "json").glob("*.json")):
                    picture = folder / f"{source.stem}.png"
                    panels = dashboards.draw(browser, page, json.loads(source.read_bytes()), view, picture)
                    dashboards.optimise(modules, picture, IMAGES / picture.name)
                    empty += _say(source.stem, panels)
    return 1 if empty else 0


def _say(name: str, panels: list[dashboards.Panel]) -> int:
    nothing = [panel.title for panel in panels if not panel.returned]
    undrawn = [panel.title for panel in panels if not panel.drawn]
    print(f"{name}: {len(panels)} panels; nothing in {nothing}; of a type that no package draws: {undrawn}")
    return len(nothing)


if __name__ == "__main__":
    sys.exit(main())
