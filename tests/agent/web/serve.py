"""The agent's HTTP server on loopback, over what a test says the board left."""

import asyncio
import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from agent.web.routes import Reload, build_app
from agent.web.serving import HttpServer, bind
from agent.web.web_file import WebFile


class FakeLatest:
    """What a board leaves for readers, with switches."""

    metrics = b"vramscope_build_info 1.0\n"
    metrics_gzip = gzip.compress(metrics)
    snapshot_json = b'{"schema":"vramscope.snapshot/1"}'
    ready: str | None = None
    healthy: str | None = None

    def history_json(self) -> bytes:
        return b'{"schema":"vramscope.history/1","pools":[]}'

    def not_ready(self) -> str | None:
        return self.ready

    def not_healthy(self) -> str | None:
        return self.healthy


@contextmanager
def serving_on_loopback(
    latest: FakeLatest | None = None, *, web: WebFile | None = None, reload: Reload | None = None
) -> Iterator[str]:
    """Serve until the block ends; the base URL."""
    web = web or WebFile()
    listener = bind("127.0.0.1", 0)
    names = frozenset({"gpu-node.example.net"})
    app = build_app(latest or FakeLatest(), host_names=names, web=web, reload=reload)
    server = HttpServer(app, listener, web)
    thread = threading.Thread(target=lambda: asyncio.run(server.run_forever()))
    thread.start()
    try:
        yield f"{web.scheme}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        thread.join()
        listener.close()


def plain_client(base: str) -> httpx.Client:
    """A client of a server without TLS; it spends no time on loading certificates."""
    return httpx.Client(base_url=base, verify=False, trust_env=False)
