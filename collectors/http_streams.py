"""HTTP/1.1 to one server over asyncio's streams and httptools, on one connection that is kept for the next request.

httpx's own transport takes several times the CPU for a request, which was the largest cost beside many servers.
"""

import asyncio
import contextlib
import functools
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httptools
import httpx

KEEP_SECONDS = 4.0  # servers close what was idle for 5 s and more
READ_BYTES = 65536
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


class StreamTransport(httpx.AsyncBaseTransport):
    """Raises httpx's transport errors, their causes kept. Deadlines are the caller's: cancelled at any point, it leaves
    no socket behind. ``tls`` is by default the host's own trust store.
    """

    def __init__(self, *, connect: Connect = connect, tls: ssl.SSLContext | None = None) -> None:
        self._connect = connect
        self._tls = tls
        self._idle: _Connection | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        idle = self._take_idle()
        if idle is not None:
            with contextlib.suppress(_Forsaken):
                return await self._asked(idle, request)
        return await self._asked(await self._open(request.url), request)

    async def _asked(self, connection: "_Connection", request: httpx.Request) -> httpx.Response:
        with connection.aborted_on_error():
            answer = await connection.ask(request)
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(connection, self._keep))

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
            if url.scheme == "http":
                return _Connection(*await asyncio.open_connection(sock=found))
            self._tls = self._tls or ssl.create_default_context()
            return _Connection(*await asyncio.open_connection(sock=found, ssl=self._tls, server_hostname=url.host))
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
        self.parts.append(part)

    def on_message_complete(self) -> None:
        self.is_whole = self.status > 0
        self._keep_alive = self._parser.should_keep_alive()


class _Connection:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = _Answer()
        self._idle_until = 0.0

    async def ask(self, request: httpx.Request) -> _Answer:
        """Send the request, which has no body, and give its answer once the head is there."""
        self._answer = _Answer()
        self._writer.write(_encoded(request))
        while not self._answer.status:
            await self._feed()
        return self._answer

    async def part(self) -> bytes | None:
        """The next piece of the body, None at its end."""
        answer = self._answer
        while not answer.parts and not answer.is_whole:
            await self._feed()
        found = b"".join(answer.parts)
        answer.parts.clear()
        return found or None

    async def _feed(self) -> None:
        try:
            data = await self._reader.read(READ_BYTES)
        except OSError as exc:
            if not self._answer.has_begun:
                raise _Forsaken("the server disconnected without an answer") from exc
            raise httpx.ReadError(str(exc)) from exc
        self._answer.feed(data)

    def is_reusable(self) -> bool:
        """Whether its answer came whole and another request may follow; if so it is idle from now on."""
        self._idle_until = asyncio.get_running_loop().time() + KEEP_SECONDS
        return self._answer.keeps_connection

    def is_usable(self) -> bool:
        """Whether the server has neither closed it nor is about to."""
        open_ = not self._reader.at_eof() and not self._writer.is_closing() and self._reader.exception() is None
        return open_ and asyncio.get_running_loop().time() < self._idle_until

    def abort(self) -> None:
        self._writer.transport.abort()

    @contextlib.contextmanager
    def aborted_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.abort()
            raise


class _Body(httpx.AsyncByteStream):
    def __init__(self, connection: _Connection, keep: Callable[[_Connection], None]) -> None:
        self._connection = connection
        self._keep = keep

    def __aiter__(self) -> "_Body":
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
