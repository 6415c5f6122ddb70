"""Reading text from one server: a closed list of paths, a deadline for the whole answer, a cap on the decoded body.

Nothing here trusts the other side: it may answer slowly, endlessly, compressed into a bomb, with another host's address
or with something that is not HTTP. A key is sent to the configured host only and never appears in a message.
"""

import asyncio
import functools
import socket
import ssl
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import Any, Protocol

import httpx
from msgspec import Struct

from collectors.errors import CollectorError, Refused, Unreachable, Unreadable
from collectors.http_streams import StreamTransport

MAX_BYTES = 8 * 1024 * 1024
MAX_DOCUMENT_BYTES = 1024 * 1024
"""Of an answer that is no page of metrics: JSON is taken apart at once. The largest of a real server has 21 KB."""
MAX_MEMBERS = 256
MAX_HOST = 253
_PAGE = "/metrics"
_ANY_HEAD = zlib.MAX_WBITS | 32
_HEADERS = {"Accept": "text/plain, application/json", "Accept-Encoding": "identity", "User-Agent": "vramscope"}
_TEXT_TYPES = ("text/", "application/json", "application/openmetrics-text")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Response(Protocol):
    """An answer as it arrives; ``stream`` gives its body once."""

    status_code: int

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def stream(self) -> Any: ...

    async def aclose(self) -> None: ...


class Transport(Protocol):
    """What a request goes through; httpx's own are some. Raises: httpx.TransportError."""

    async def handle_async_request(self, request: httpx.Request, /) -> Response: ...

    async def aclose(self) -> None: ...


class Answer(Struct, frozen=True, kw_only=True):
    """A complete 200 answer; bytes that are not UTF-8 are replaced. ``content_type`` is empty when not sent."""

    status: int
    content_type: str
    text: str


class Endpoint:
    """One server's base URL and the only paths that may ever be requested from it.

    ``deadline_seconds`` covers a whole ``get``: connecting, a redirect, and the last byte of the body. ``max_bytes`` is
    for pages of metrics; what lies at another path may have ``MAX_DOCUMENT_BYTES``.

    Raises:
        ValueError: the URL or the key can't be used; the message never holds the key.
    """

    def __init__(
        self,
        base_url: str,
        *,
        paths: Iterable[str],
        deadline_seconds: float,
        max_bytes: int = MAX_BYTES,
        api_key: str | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._base = parse_base_url(base_url)
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and api_key == api_key.strip()):
            raise ValueError("the API key must be printable ASCII without spaces at its ends; check the key file")
        self._urls = {path: self._base.copy_with(path=self._base.path.rstrip("/") + path) for path in paths}
        self._requests: dict[tuple[str, bool], httpx.Request] = {}
        self._url = str(self._base).rstrip("/")
        self._deadline_seconds = deadline_seconds
        self._max_bytes = max_bytes
        self._api_key = api_key
        self._transport: Transport = transport or StreamTransport()

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    @property
    def url(self) -> str:
        """The base URL without a trailing slash."""
        return self._url

    @property
    def has_key(self) -> bool:
        return self._api_key is not None

    async def get(self, path: str, *, key: bool = False) -> Answer:
        """The body of ``path`` as text; ``key``: send the API key when there is one.

        Raises:
            ValueError: the path is not on the list (a programming error).
            Unreachable: refused, reset, name not found, deadline passed.
            Refused: 401 or 403.
            Unreadable: any other status than 200, a foreign redirect, too large, not text, not HTTP, cut off.
        """
        if path not in self._urls:
            raise ValueError(f"{path!r} is not one of the paths this endpoint may read: {sorted(self._urls)}")
        url = self._urls[path]
        if (path, key) not in self._requests:
            self._requests[path, key] = self._asking(url, key=key)
        try:
            async with asyncio.timeout(self._deadline_seconds):
                return await self._follow(self._requests[path, key], key=key)
        except (TimeoutError, httpx.TimeoutException) as exc:
            message = (
                f"{url} did not answer completely within {self._deadline_seconds:g} s; the server is overloaded or hung"
            )
            raise Unreachable("timeout", message) from exc
        except httpx.TransportError as exc:
            raise _translated(url, exc) from exc

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _follow(self, request: httpx.Request, *, key: bool) -> Answer:
        url = request.url
        answer = await self._answer(request)
        if isinstance(answer, Answer):
            return answer
        if not self._may_follow(url, answer):
            message = (
                f"{url} redirects to {_shown(answer)}; only the same host and path is followed: configure that URL"
            )
            raise Unreadable("redirect", message)
        second = await self._answer(self._asking(answer, key=key))
        if isinstance(second, Answer):
            return second
        raise Unreadable("redirect", f"{url} redirects more than once; configure the final URL")

    def _may_follow(self, asked: httpx.URL, target: httpx.URL) -> bool:
        same_origin = (asked.scheme, asked.host, asked.port) == (target.scheme, target.host, target.port)
        allowed = {url.path for url in self._urls.values()} | {asked.path + "/"}
        return same_origin and target.path in allowed and not target.query and not target.userinfo

    async def _answer(self, request: httpx.Request) -> Answer | httpx.URL:
        url = request.url
        response = await self._transport.handle_async_request(request)
        try:
            if response.status_code in _REDIRECTS and "location" in response.headers:
                return _resolved(url, response.headers["location"])
            _check_status(url, response.status_code)
            content_type = response.headers.get("content-type", "")
            if content_type and not content_type.strip().lower().startswith(_TEXT_TYPES):
                message = f"{url} answered {content_type[:80]!r}, not text; check that the URL is the server's own"
                raise Unreadable("not_text", message)
            is_page = url.path.rstrip("/").endswith(_PAGE)
            most = self._max_bytes if is_page else min(self._max_bytes, MAX_DOCUMENT_BYTES)
            body = await _body(url, response, most)
        finally:
            await response.aclose()
        if b"\0" in body:
            raise Unreadable(
                "not_text", f"{url} answered binary data, not text; check that the URL is the server's own"
            )
        return Answer(status=response.status_code, content_type=content_type, text=body.decode("utf-8", "replace"))

    def _asking(self, url: httpx.URL, *, key: bool) -> httpx.Request:
        headers = {"Authorization": f"Bearer {self._api_key}"} if key and self._api_key is not None else {}
        return httpx.Request("GET", url, headers=_HEADERS | headers)


@functools.lru_cache(maxsize=256)  # the same few, every look at the processes
def parse_base_url(text: str) -> httpx.URL:
    """A server's base URL, as it may stand in settings; a path in front (reverse proxy) is kept.

    Raises:
        ValueError: not an absolute http or https URL, or one that carries a user name, a query or a fragment.
    """
    try:
        url = httpx.URL(text.strip())
    except (httpx.InvalidURL, UnicodeError) as exc:
        raise ValueError("the server's URL can't be parsed; expected the form http://HOST:PORT") from exc
    if url.userinfo or ("@" in text and not url.host):  # without its scheme
        raise ValueError("the server's URL carries a user name or password; put a key into api_key_file instead")
    absolute = url.scheme in ("http", "https") and url.host and (url.port is None or 0 < url.port < 65536)
    if url.query or url.fragment:  # a key may be in it, so it is not repeated
        raise ValueError("the server's URL has a query or fragment; expected the form http://HOST:PORT")
    if not absolute:
        raise ValueError(f"{text[:100]!r} is not the URL of a server; expected the form http://HOST:PORT")
    if not is_host(url.raw_host.decode("ascii")):
        raise ValueError("the server's URL names no host that could be looked up; expected the form http://HOST:PORT")
    return url


def is_host(text: str) -> bool:
    """Whether an address or name can be looked up at all; ``getaddrinfo`` raises what is no OSError where not."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return text.isprintable() and len(text) <= MAX_HOST


async def _body(url: httpx.URL, response: Response, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in _decoded(url, response, max_bytes):
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(url, max_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def _decoded(url: httpx.URL, response: Response, max_bytes: int) -> AsyncIterable[bytes]:
    """The body in pieces of bounded size, whatever a compressed chunk would expand to."""
    stream: AsyncIterable[bytes] = response.stream
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return stream
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Unreadable("encoding", f"{url} answers in the encoding {encoding[:40]!r}, which was not asked for")
    return _inflated(url, stream, max_bytes)


async def _inflated(url: httpx.URL, chunks: AsyncIterable[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    inflate = zlib.decompressobj(wbits=_ANY_HEAD)
    size = members = 0
    try:
        async for chunk in chunks:
            size += len(chunk)
            if size > max_bytes:
                raise _too_large(url, max_bytes)
            while chunk and (chunk := chunk.lstrip(b"\0") if inflate.eof else chunk):  # zeros fill up after a member
                if inflate.eof:
                    inflate, members = zlib.decompressobj(wbits=_ANY_HEAD), members + 1
                if members > MAX_MEMBERS:
                    raise Unreadable("encoding", f"{url} answers with more than {MAX_MEMBERS} compressed pieces in one")
                yield inflate.decompress(chunk, max_bytes + 1)
                chunk = inflate.unused_data
    except zlib.error as exc:
        raise Unreadable("encoding", f"{url} answers with damaged compressed data; try again") from exc
    if not inflate.eof:
        raise Unreadable("truncated", f"{url} answered with a compressed body that is cut off")


def _too_large(url: httpx.URL, max_bytes: int) -> Unreadable:
    limit = f"{max_bytes:,} bytes"
    message = f"{url} answers with more than {limit}; nothing of it was used: check what this path serves"
    return Unreadable("too_large", message)


def _check_status(url: httpx.URL, status: int) -> None:
    if status == 200:
        return
    if status in (401, 403):
        raise Refused(
            f"http_{status}", f"{url} answered {status}; set api_key_file of this server to a file with its key"
        )
    advice = {
        404: "nothing is served there: check the URL, and that the server exports it",
        500: "the server fails to render it: look into its log",
        503: "the server is not ready or its engine has died: look into its log",
    }
    raise Unreadable(f"http_{status}", f"{url} answered {status}; {advice.get(status, 'expected 200: check the URL')}")


def _resolved(url: httpx.URL, location: str) -> httpx.URL:
    try:
        return url.join(location)
    except (httpx.InvalidURL, UnicodeError) as exc:
        raise Unreadable("redirect", f"{url} redirects to something that is not a URL") from exc


def _shown(url: httpx.URL) -> str:
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))[:200]


def _translated(url: httpx.URL, exc: httpx.TransportError) -> CollectorError:
    causes = _causes(exc)
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return Unreachable("refused", f"nothing listens at {url}; the server is down or still loading")
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return Unreachable("name", f"the host name of {url} can't be resolved; check the URL")
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return Unreachable("tls", f"no trusted TLS connection to {url}; check its certificate, or use http://")
    if isinstance(exc, httpx.ConnectError):
        return Unreachable("no_route", f"no connection to {url}; check the address and the network")
    text = str(exc)
    if "incomplete" in text or "without sending complete message body" in text:
        return Unreadable("truncated", f"{url} closed the connection before the end of its answer")
    if isinstance(exc, httpx.ProtocolError) and "disconnected" not in text:
        return Unreadable("not_http", f"what answers at {url} does not speak HTTP; check host and port")
    return Unreachable("reset", f"{url} closed the connection without an answer; the server may be restarting")


def _causes(exc: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    current: BaseException | None = exc
    while current is not None and current not in found:
        found.append(current)
        current = current.__cause__ or current.__context__
    return found
