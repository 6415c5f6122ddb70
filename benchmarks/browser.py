"""What the page costs in the browser, with eight GPUs and eight servers: ``python -m benchmarks.browser``.

CPU seconds of the renderer's main thread in a headless Chromium (``ThreadTime`` of ``Performance.getMetrics``): it runs
scripts, layout and painting. Waiting for a CPU is not counted. It draws without a GPU, which a person's browser has.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.node import COUNT, busy_node
from benchmarks.report import figure, section
from tests.browser import Page, chromium
from tests.program import running

SECONDS = 30
SETTLE_SECONDS = 8


def main() -> int:
    path = shutil.which("chromium")
    if path is None:
        print("chromium is not installed: what the page costs there is not measured")
        return 0
    with tempfile.TemporaryDirectory(prefix="vramscope-bench-") as name, busy_node(Path(name)) as node:
        arguments = ("run", "--config", str(node.config), "--listen", "127.0.0.1:0")
        with running(*arguments, environment=node.environment) as program, chromium(path, Path(name)) as browser:
            section(f"the page in the browser, {COUNT} GPUs and {COUNT} servers, over {SECONDS} s")
            page = browser.open(program.base)
            page.call("Performance.enable")
            page.wait_until(f"document.querySelectorAll('.part[data-component=kv_used]').length >= {COUNT}", seconds=60)
            for what, address in (("overview", "#"), ("view of one server", "#server/server-0")):
                page.evaluate(f"location.hash = {address!r}")
                time.sleep(SETTLE_SECONDS)
                figure(f"CPU, {what}", share(page), "% of a core", at_most=5)
            page.close()
    return 0


def share(page: Page) -> float:
    """Percent of a core that the page's main thread is busy."""
    before, begun = busy(page), time.monotonic()
    time.sleep(SECONDS)
    return 100 * (busy(page) - before) / (time.monotonic() - begun)


def busy(page: Page) -> float:
    metrics = page.call("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "ThreadTime"))


if __name__ == "__main__":
    sys.exit(main())
