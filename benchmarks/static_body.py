"""A fixed body behind the agent's HTTP server: ``python -m benchmarks.static_body FILE``, the floor of a scrape."""

import asyncio
import gzip
import sys
from pathlib import Path

from agent.web.routes import build_app
from agent.web.serving import HttpServer, bind


class Fixed:
    """Bytes that never change."""

    def __init__(self, body: bytes) -> None:
        self.metrics = body
        self.metrics_gzip = gzip.compress(body, compresslevel=1)
        self.snapshot_json = b"{}"

    def history_json(self) -> bytes:
        return b"{}"

    def not_ready(self) -> None:
        return None

    def not_healthy(self) -> None:
        return None


def main() -> None:
    listener = bind("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    app = build_app(Fixed(Path(sys.argv[1]).read_bytes()), host_names=frozenset())
    asyncio.run(HttpServer(app, listener).run_forever())


if __name__ == "__main__":
    main()
