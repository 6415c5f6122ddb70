"""The agent's own routes on a real loopback server, over a made-up node that a test controls."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import msgspec

from agent.snapshot import Snapshot
from agent.web.routes import build_app
from agent.web.serving import HttpServer, bind
from tests.agent.web import sample
from tests.browser import Page


class Site:
    """Serves until stopped.

    ``tick`` counts the snapshots handed out, ``frozen`` hands out the same one again, ``refusal`` answers 503 with it.
    """

    def __init__(
        self,
        node: Callable[[int], Snapshot] = sample.node,
        *,
        port: int = 0,
        past: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        self.tick = 0
        self.frozen = False
        self.refusal: str | None = None
        self.metrics = self.metrics_gzip = b""
        self._node = node
        self._listener = bind("127.0.0.1", port)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self._server = HttpServer(build_app(self, host_names=frozenset(), past=past), self._listener)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.run_forever()), daemon=True)
        self._thread.start()

    @property
    def snapshot_json(self) -> bytes:
        self.tick += not self.frozen
        return msgspec.json.encode(self._node(self.tick))

    def history_json(self) -> bytes:
        return msgspec.json.encode(sample.history(self.tick))

    def not_ready(self) -> str | None:
        return self.refusal

    def not_healthy(self) -> str | None:
        return self.refusal

    def stop(self) -> None:
        """End the server; its port refuses connections afterwards."""
        self._server.stop()
        self._thread.join(timeout=10)
        self._listener.close()


Open = Callable[[Site], Page]
"""Opens the page of a site and waits for its first figures."""
