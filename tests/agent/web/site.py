"""The agent's own routes on a real loopback server, over a made-up node that a test controls."""

import socket
import threading
from collections.abc import Awaitable, Callable

import msgspec
import uvicorn

from agent.snapshot import Snapshot
from agent.web.routes import build_app
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
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        app = build_app(self, host_names=frozenset(), past=past)
        self._server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
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
        self._server.force_exit = self._server.should_exit = True
        self._thread.join(timeout=10)


Open = Callable[[Site], Page]
"""Opens the page of a site and waits for its first figures."""
