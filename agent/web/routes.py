"""Routes: every answer is what the last tick left; nothing here waits for a GPU, an engine or a lock."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent.exporter import CONTENT_TYPE
from agent.web.events import EVENTS_PATH, Events, takes_gzip
from agent.web.guard import RELOAD_PATH, Guard
from agent.web.web_file import WebFile

STATIC_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
PAST_SECONDS = 8.0
STATIC_FOLDER = Path(__file__).parent


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


Reload = Callable[[], Awaitable[str | None]]
"""Takes the settings anew: None when they are in force, else one sentence that says why not."""


def build_app(
    latest: Latest,
    *,
    host_names: frozenset[str],
    web: WebFile | None = None,
    reload: Reload | None = None,
    past: Callable[[], Awaitable[bytes]] | None = None,
) -> Guard:
    """The application.

    ``host_names`` are lower-case names of this node under which a browser may open the page, ``web`` says who may ask
    (everybody without one), ``reload`` is what ``POST /-/reload`` calls, and ``past`` gives what a recorder kept.
    """
    static = _load_static()
    web = web or WebFile()

    async def page(_: Request) -> Response:
        return _bytes(*static["index.html"])

    async def asset(request: Request) -> Response:
        found = static.get(request.path_params["name"])
        return _bytes(*found) if found else _text("no such file; the page is at /", 404)

    async def metrics(request: Request) -> Response:
        if reason := latest.not_healthy():
            return _text(reason, 503)
        if takes_gzip(request.headers.get("accept-encoding", "")):
            return _bytes(latest.metrics_gzip, CONTENT_TYPE, {"content-encoding": "gzip", "vary": "accept-encoding"})
        return _bytes(latest.metrics, CONTENT_TYPE, {"vary": "accept-encoding"})

    async def snapshot(_: Request) -> Response:
        if reason := latest.not_healthy():
            return _text(reason, 503)
        return _bytes(latest.snapshot_json, "application/json")

    async def history(request: Request) -> Response:
        if "recorded" not in request.query_params:
            return _bytes(latest.history_json(), "application/json")
        if past is None:
            return _text("nothing is recorded here; without ?recorded this has the last ten minutes", 404)
        try:
            async with asyncio.timeout(PAST_SECONDS):
                return _bytes(await past(), "application/json")
        except TimeoutError:
            return _text("the disk is too slow for what was recorded; try again", 503)

    async def ready(_: Request) -> Response:
        reason = latest.not_ready()
        return _text(reason, 503) if reason else _text("ready", 200)

    async def healthy(_: Request) -> Response:
        reason = latest.not_healthy()
        return _text(reason, 503) if reason else _text("healthy", 200)

    app = Starlette(
        routes=[
            Route("/metrics", metrics),  # they are tried in this order
            Route("/", page),
            Route("/static/{name}", asset),
            Route("/api/v1/snapshot", snapshot),
            Route("/api/v1/history", history),
            Route(EVENTS_PATH, Events(latest, web)),
            Route("/-/ready", ready),
            Route("/-/healthy", healthy),
            *([_reload_route(reload)] if reload else []),
        ],
        exception_handlers={404: _nothing_there},
    )
    app.router.redirect_slashes = False  # it would lead to whatever the request's Host says
    return Guard(app, host_names=host_names, web=web)


async def _nothing_there(_: Request, __: Exception) -> Response:
    return _text("nothing is here; the page is at /, metrics are at /metrics", 404)


def _reload_route(reload: Reload) -> Route:
    async def answer(_: Request) -> Response:
        problem = await reload()
        return _text(problem, 500) if problem else _text("reloaded", 200)

    return Route(RELOAD_PATH, answer, methods=["POST"])


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
