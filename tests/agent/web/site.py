"""The page's files and a made-up node behind a real loopback server, under the agent's content security policy."""

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import agent.web
from agent.snapshot import Snapshot
from tests.agent.web import sample

WEB = Path(agent.web.__file__).parent
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Site:
    """Serves until stopped; ``tick`` counts the snapshots handed out, ``frozen`` hands out the same one again."""

    def __init__(self, node: Callable[[int], Snapshot] = sample.node, *, port: int = 0) -> None:
        self.tick = 0
        self.frozen = False
        self._node = node
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        config = uvicorn.Config(self._application(), log_config=None, ws="none", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.force_exit = self._server.should_exit = True
        self._thread.join(timeout=10)

    def _application(self) -> Starlette:
        routes = [
            Route("/", lambda request: FileResponse(WEB / "index.html")),
            Route("/api/v1/snapshot", self._snapshot),
            Route("/api/v1/history", lambda request: _json(sample.history(self.tick))),
            Mount("/static", StaticFiles(directory=WEB)),
        ]
        return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=_with_policy)])

    def _snapshot(self, request: Request) -> Response:
        self.tick += not self.frozen
        return _json(self._node(self.tick))


async def _with_policy(request: Request, call_next: RequestResponseEndpoint) -> Response:
    response = await call_next(request)
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def _json(document: Any) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")


def wait_stopped(port: int, *, seconds: float = 10.0) -> None:
    """Until nothing listens on a port any more."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"port {port} still listens")
