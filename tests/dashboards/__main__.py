"""``python -m tests.dashboards``: a Prometheus that holds the demo day, until it is interrupted."""

import argparse
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.dashboards.backfill import a_day
from tests.dashboards.day import SCRAPE_SECONDS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.dashboards", description="Serve the demo day.")
    parser.add_argument("--port", type=int, default=9090, help="port on loopback (default: %(default)s)")
    options = parser.parse_args()
    end = int(time.time()) // SCRAPE_SECONDS * SCRAPE_SECONDS
    with (
        tempfile.TemporaryDirectory(prefix="vramscope-day-") as folder,
        a_day(Path(folder), end=end, port=options.port),
        suppress(KeyboardInterrupt),
    ):
        print(f"http://127.0.0.1:{options.port} holds the day until {end}", flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
