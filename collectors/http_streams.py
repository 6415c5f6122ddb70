"""HTTP/1.1 to one server by httptools, on one connection that is kept for the next request.

httpx's own transport takes several times the CPU for a request, which was the largest cost beside many servers; what
arrives goes to the parser at once, since asyncio's streams took as much as all the rest.
"""

import asyncio
import contextlib
import functools
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httptools
import httpx

KEEP_SECONDS = 4.0  # servers close what was idle for 5 s and more
PART_BYTES = 64 * 1024  # of a body, which are handed on before it is whole
MOST_PARTS_BYTES = 4 * PART_BYTES  # not handed on yet: for more the server waits
MAX_HEAD_BYTES = 16384
MAX_FRAMING_BYTES = 2**20
"""All of an answer that is not its body: also sizes, extensions and trailers of chunks, a chunk for each line."""
_LENGTHS = (b"content-length", b"transfer-encoding")

Connect = Callable[[str, int], Awaitable[socket.socket]]


async def connect(host: str, port: int) -> socket.socket:
    """A socket that is connected to the first address of the host that takes it, in our own network.

    Raises:
        OSError: the host has no address, or none that takes it.
    """
    failed = OSError(f"{host} has no address")
    for family, address in await _addresses(host, port):
        try:
            return await connected(new_socket(family), address)
        except OSError as exc:
            failed = exc
    raise failed


def new_socket(family: socket.AddressFamily) -> socket.socket:
    """A TCP socket as ``connected`` takes it."""
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    return made


async def connected(made: socket.socket, address: Any) -> socket.socket:
    """The same socket once it is connected; closed otherwise. Raises: OSError."""
    try:
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made


class StreamTransport:
    """Raises httpx's transport errors, their causes kept. Deadlines are the caller's: cancelled at any point, it leaves
    no socket behind. ``tls`` is by default the host's own trust store.
    """

    def __init__(self, *, connect: Connect = connect, tls: ssl.SSLContext | None = None) -> None:
        self._connect = connect
        self._tls = tls
        self._idle: _Connection | None = None

    async def handle_async_request(self, request: httpx.Request) -> "Response":
        idle = self._take_idle()
        if idle is not None:
            with contextlib.suppress(_Forsaken):
                return await self._asked(idle, request)
        return await self._asked(await self._open(request.url), request)

    async def _asked(self, connection: "_Connection", request: httpx.Request) -> "Response":
        try:
            answer = await connection.ask(request)
        except BaseException:
            connection.abort()
            raise
        return Response(connection, answer, self._keep)

    async def aclose(self) -> None:
        if self._idle is not None:
            self._idle.abort()
            self._idle = None

    def _take_idle(self) -> "_Connection | None":
        idle, self._idle = self._idle, None
        if idle is None or idle.is_usable():
            return idle
        idle.abort()
        return None

    def _keep(self, connection: "_Connection") -> None:
        if self._idle is None and connection.is_reusable():
            self._idle = connection
        else:
            connection.abort()

    async def _open(self, url: httpx.URL) -> "_Connection":
        port = url.port or {"http": 80, "https": 443}[url.scheme]
        try:
            found = await self._connect(url.host, port)
            loop = asyncio.get_running_loop()
            if url.scheme == "http":
                return (await loop.create_connection(_Connection, sock=found))[1]
            self._tls = self._tls or ssl.create_default_context()
            return (await loop.create_connection(_Connection, sock=found, ssl=self._tls, server_hostname=url.host))[1]
        except (OSError, ValueError) as exc:
            raise httpx.ConnectError(str(exc)) from exc


class _Forsaken(httpx.RemoteProtocolError):
    """The connection ended without a byte of an answer: a server may close a kept one just as it is used again."""


class _Answer:
    """One answer, as the parser tells of it; heads of 100 Continue and its like are passed over."""

    def __init__(self) -> None:
        self.status = 0  # until its head is whole
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []
        self.parts_bytes = 0
        self.is_whole = False
        self._bytes = 0
        self._body_bytes = 0
        self._keep_alive = False
        self._parser = httptools.HttpResponseParser(self)

    @property
    def has_begun(self) -> bool:
        return self._bytes > 0

    @property
    def keeps_connection(self) -> bool:
        """Whether another request may follow on it."""
        return self.is_whole and self._keep_alive

    def feed(self, data: bytes) -> None:
        """Take what the server sent next; nothing when it closed the connection.

        Raises:
            httpx.RemoteProtocolError: not HTTP, a head or chunks without end, or an answer that is cut off.
        """
        if not data:
            self._end()
            return
        self._bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            if self.is_whole:
                self._keep_alive = False
                return
            raise httpx.RemoteProtocolError(str(exc)) from exc
        if self._bytes - self._body_bytes > (MAX_FRAMING_BYTES if self.status else MAX_HEAD_BYTES):
            raise httpx.RemoteProtocolError("what frames its body has no end")

    def _end(self) -> None:
        """An answer that does not say how long it is ends with its connection."""
        if not self.status:
            kind = httpx.RemoteProtocolError if self.has_begun else _Forsaken
            raise kind("the server disconnected without an answer")
        if not self.is_whole and any(name.lower() in _LENGTHS for name, _ in self.headers):
            raise httpx.RemoteProtocolError("the answer is incomplete")
        self.is_whole = True

    def on_message_begin(self) -> None:
        if self.is_whole:
            raise ValueError("nobody asked for another")  # the parser goes no further

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # else behind the last chunk
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self.headers.clear()
        else:
            self.status = status

    def on_body(self, part: bytes) -> None:
        self._body_bytes += len(part)
        self.parts_bytes += len(part)
        self.parts.append(part)

    def take(self) -> bytes:
        """What has come of the body since the last call."""
        taken = b"".join(self.parts)
        self.parts.clear()
        self.parts_bytes = 0
        return taken

    def on_message_complete(self) -> None:
        self.is_whole = self.status > 0
        self._keep_alive = self._parser.should_keep_alive()


class _Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer = _Answer()
        self._failed: httpx.TransportError | None = None
        self._arrived: asyncio.Future[None] | None = None  # while somebody waits for more
        self._idle_until = 0.0

    async def ask(self, request: httpx.Request) -> _Answer:
        """Send the request, which has no body, and give its answer once the head is there."""
        if self._answer.is_whole:
            self._answer = _Answer()
        self._transport.write(_encoded(request))
        while not self._answer.status:
            await self._more()
        return self._answer

    async def part(self) -> bytes | None:
        """The next piece of the body, None at its end."""
        while not self._answer.is_whole and self._answer.parts_bytes < PART_BYTES:
            await self._more()
        found = self._answer.take()
        self._transport.resume_reading()
        return found or None

    async def _more(self) -> None:
        """Raises: httpx.TransportError, when nothing more will come."""
        if self._failed is not None:
            raise self._failed
        self._arrived = self._loop.create_future()
        await self._arrived

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._feed(data)
        if self._answer.parts_bytes > MOST_PARTS_BYTES:
            self._transport.pause_reading()

    def eof_received(self) -> None:
        self._feed(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self._feed(b"")
        elif not self._answer.has_begun:
            self._fail(_Forsaken("the server disconnected without an answer"), exc)
        else:
            self._fail(httpx.ReadError(str(exc)), exc)

    def _feed(self, data: bytes) -> None:
        try:
            self._answer.feed(data)
        except httpx.RemoteProtocolError as exc:
            self._fail(exc)
        self._wake()

    def _fail(self, failed: httpx.TransportError, cause: Exception | None = None) -> None:
        """Of several failures the first counts."""
        if self._failed is None:
            failed.__cause__ = failed.__cause__ or cause
            self._failed = failed
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def is_reusable(self) -> bool:
        """Whether its answer came whole and another request may follow; if so it is idle from now on."""
        self._idle_until = self._loop.time() + KEEP_SECONDS
        return self._answer.keeps_connection

    def is_usable(self) -> bool:
        """Whether the server has neither closed it, nor sent what nobody asked for, nor is about to close it."""
        is_open = self._answer.keeps_connection and self._failed is None and not self._transport.is_closing()
        return is_open and self._loop.time() < self._idle_until

    def abort(self) -> None:
        self._transport.abort()


class Response:
    """What ``httpx.Response`` has and is needed here; to make one of those took a quarter of a request."""

    def __init__(self, connection: _Connection, answer: _Answer, keep: Callable[[_Connection], None]) -> None:
        self.status_code = answer.status
        self.headers: dict[str, str] = {}
        for raw, value in answer.headers:
            name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
            self.headers[name] = f"{self.headers[name]}, {text}" if name in self.headers else text
        self.stream = self
        self._connection = connection
        self._keep = keep

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        part = await self._connection.part()
        if part is None:
            raise StopAsyncIteration
        return part

    async def aclose(self) -> None:
        self._keep(self._connection)


@functools.lru_cache(maxsize=256)  # the same few again and again, each an object that its endpoint keeps
def _encoded(request: httpx.Request) -> bytes:
    lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    lines += [b"%s: %s" % header for header in request.headers.raw]
    return b"\r\n".join([*lines, b"", b""])


async def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    with contextlib.suppress(ValueError):
        version = ipaddress.ip_address(host).version
        return [(socket.AF_INET6 if version == 6 else socket.AF_INET, (host, port))]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]
