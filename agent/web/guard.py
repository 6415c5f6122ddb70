"""What stands before every route: who may ask, for which host, in which way; and safe headers on every answer."""

import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import IPv6Address, ip_address
from typing import Any

from starlette.responses import PlainTextResponse, Response

from agent.web.basic_auth import Doorkeeper
from agent.web.web_file import WebFile

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
MAX_HEAD_BYTES = 16 * 1024
RELOAD_PATH = "/-/reload"
PROXY_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
HOST_PATTERN = re.compile(r"\[(?P<v6>[0-9a-fA-F:.]+)\](?::\d{1,5})?|(?P<name>[A-Za-z0-9._-]{1,253})(?::\d{1,5})?")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("vramscope.web")


class Guard:
    """Before any route: a well-formed ``Host`` that names this node, no body, credentials where users are configured.

    A browser tricked into resolving a foreign name to this node (DNS rebinding) sends that name as ``Host``; page, API
    and reload refuse it. Scrapers use names the node can't know, so the rest only needs a well-formed one.
    """

    def __init__(self, app: App, *, host_names: frozenset[str], web: WebFile) -> None:
        self._app = app
        self._host_names = host_names
        self._web = web
        self._doorkeeper = Doorkeeper()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = {**COMMON_HEADERS, **self._web.config.headers}
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), value.encode()) for name, value in headers.items()),
                ]
            await send(message)

        refusal = self._malformed(scope) or await self._unknown(scope) or self._not_for_them(scope)
        await (refusal or self._app)(scope, receive, send_safely)

    def _malformed(self, scope: Scope) -> Response | None:
        head = (scope["raw_path"], scope["query_string"], *(part for header in scope["headers"] for part in header))
        if sum(len(part) for part in head) > MAX_HEAD_BYTES:
            return _text(f"a request's head has at most {MAX_HEAD_BYTES} bytes here", 431, connection="close")
        path = scope["path"]
        methods = ("POST",) if path == RELOAD_PATH else ("GET", "HEAD")
        if scope["method"] not in methods:
            return _text(f"expected {' or '.join(methods)}", 405, allow=", ".join(methods))
        if any(value != "0" for name in ("content-length", "transfer-encoding") for value in _headers(scope, name)):
            return _text("a request here has no body", 413, connection="close")
        hosts = _headers(scope, "host")
        parsed = HOST_PATTERN.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if parsed is None:
            return _text("expected one well-formed Host header", 400)
        any_name = path != RELOAD_PATH and (path == "/metrics" or path.startswith("/-/"))
        if not any_name and not self._names_this_node(parsed):
            return _text("this Host is no name of this node; open the page by its address or host name", 421)
        return None

    async def _unknown(self, scope: Scope) -> Response | None:
        """The refusal of a request without the credentials of a user, where there are users; it says no more."""
        users = self._web.config.users
        if not users:
            return None
        given = _headers(scope, "authorization")
        address = scope["client"][0] if scope["client"] else ""
        verdict = await self._doorkeeper.verdict(given[0] if len(given) == 1 else None, users, address=address)
        if verdict == "admitted":
            return None
        if verdict == "busy":
            return _text("too many passwords are being checked; try again", 429, retry_after="5")
        if given:
            log.warning("refused %s: wrong credentials", address)
        return _text("expected the name and password of a user", 401, www_authenticate='Basic realm="vramscope"')

    def _not_for_them(self, scope: Scope) -> Response | None:
        """The refusal of a reload by a page of another site, or by somebody unknown elsewhere."""
        if scope["path"] != RELOAD_PATH:
            return None
        sites = _headers(scope, "sec-fetch-site")
        origins = _headers(scope, "origin")
        other_origin = any([origin.partition("://")[2]] != _headers(scope, "host") for origin in origins)
        if other_origin or set(sites) - {"same-origin", "none"}:
            return _text("a page of another site can't ask for this", 403)
        if not self._web.config.proves_clients and not _is_from_this_host(scope):
            return _text("only from this host, or with basic auth or client certificates in the web config", 403)
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


def _is_from_this_host(scope: Scope) -> bool:
    """Whether the client is a process of this host, and no proxy that passes on what somebody else wants."""
    if scope["client"] is None or any(_headers(scope, name) for name in PROXY_HEADERS):
        return False
    address = ip_address(scope["client"][0].partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _headers(scope: Scope, name: str) -> list[str]:
    """Every value of a header, in order."""
    return [value.decode("latin-1") for each, value in scope["headers"] if each == name.encode()]


def _text(text: str, status: int, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return PlainTextResponse(text + "\n", status_code=status, headers=named)
