"""Routes: every answer is bytes that the last tick left; nothing here waits for a GPU, an engine or a lock."""

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent.exporter import CONTENT_TYPE

PAGE_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
COMMON_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "content-security-policy": PAGE_POLICY,
    "cross-origin-resource-policy": "same-origin",
}
STATIC_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
STATIC_FOLDER = Path(__file__).parent
HOST_PATTERN = re.compile(r"\[(?P<v6>[0-9a-fA-F:.]+)\](?::\d{1,5})?|(?P<name>[A-Za-z0-9._-]{1,253})(?::\d{1,5})?")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Latest(Protocol):
    """What the poller left for readers."""

    @property
    def metrics(self) -> bytes: ...

    @property
    def metrics_gzip(self) -> bytes: ...

    @property
    def snapshot_json(self) -> bytes: ...

    def history_json(self) -> bytes: ...

    def not_ready(self) -> str | None:
        """Why collection is not fresh, None when it is."""
        ...

    def not_healthy(self) -> str | None:
        """Why what is published must not be passed on as current, None when it may."""
        ...


def build_app(latest: Latest, *, host_names: frozenset[str]) -> "Guard":
    """The application. ``host_names``: lower-case names of this node under which a browser may open the page."""
    static = _load_static()

    async def page(_: Request) -> Response:
        return _bytes(*static["index.html"])

    async def asset(request: Request) -> Response:
        found = static.get(request.path_params["name"])
        return _bytes(*found) if found else _text("no such file; the page is at /", 404)

    async def metrics(request: Request) -> Response:
        if reason := latest.not_healthy():
            return _text(reason, 503)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return _bytes(latest.metrics_gzip, CONTENT_TYPE, {"content-encoding": "gzip", "vary": "accept-encoding"})
        return _bytes(latest.metrics, CONTENT_TYPE, {"vary": "accept-encoding"})

    async def snapshot(_: Request) -> Response:
        if reason := latest.not_healthy():
            return _text(reason, 503)
        return _bytes(latest.snapshot_json, "application/json")

    async def history(_: Request) -> Response:
        return _bytes(latest.history_json(), "application/json")

    async def ready(_: Request) -> Response:
        reason = latest.not_ready()
        return _text(reason, 503) if reason else _text("ready", 200)

    async def healthy(_: Request) -> Response:
        reason = latest.not_healthy()
        return _text(reason, 503) if reason else _text("healthy", 200)

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/static/{name}", asset),
            Route("/metrics", metrics),
            Route("/api/v1/snapshot", snapshot),
            Route("/api/v1/history", history),
            Route("/-/ready", ready),
            Route("/-/healthy", healthy),
        ]
    )
    return Guard(app, host_names=host_names)


class Guard:
    """Before any route: a well-formed ``Host`` that names this node, no body, safe headers on every answer.

    A browser tricked into resolving a foreign name to this node (DNS rebinding) sends that name as ``Host``; page and
    API refuse it. Scrapers use names the node can't know, so ``/metrics`` and ``/-/`` only need a well-formed one.
    """

    def __init__(self, app: Starlette, *, host_names: frozenset[str]) -> None:
        self._app = app
        self._host_names = host_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = {name.encode(): value.encode() for name, value in COMMON_HEADERS.items()}
                message["headers"] = [*message["headers"], *headers.items()]
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["method"] not in ("GET", "HEAD"):
            return _text("only GET and HEAD are answered here", 405, {"allow": "GET, HEAD"})
        sizes = [value for name, value in scope["headers"] if name in (b"content-length", b"transfer-encoding")]
        if any(value != b"0" for value in sizes):
            return _text("a request here has no body", 413, {"connection": "close"})
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        parsed = HOST_PATTERN.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if parsed is None:
            return _text("expected one well-formed Host header", 400)
        path = scope["path"]
        if path != "/metrics" and not path.startswith("/-/") and not self._names_this_node(parsed):
            return _text("this Host is no name of this node; open the page by its address or host name", 421)
        return None

    def _names_this_node(self, host: re.Match[str]) -> bool:
        if host["v6"]:
            return True
        name = host["name"].lower().rstrip(".")
        try:
            ip_address(name)
        except ValueError:
            return name in self._host_names or "." not in name
        return True


def _load_static() -> dict[str, tuple[bytes, str]]:
    return {
        path.name: (path.read_bytes(), f"{STATIC_TYPES[path.suffix]}; charset=utf-8")
        for path in STATIC_FOLDER.iterdir()
        if path.suffix in STATIC_TYPES
    }


def _bytes(content: bytes, media_type: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(content, headers={"content-type": media_type, **(headers or {})})


def _text(text: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return Response(text + "\n", status_code=status, media_type="text/plain", headers=dict(headers or {}))
