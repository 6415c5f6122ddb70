"""HTTP into the network namespace of another process: sockets are opened there, everything else stays here.

A socket belongs to the namespace of the thread that makes it, so a thread of its own enters the namespace, makes the
socket and ends. That needs CAP_SYS_ADMIN. Source: Linux, setns(2), network_namespaces(7).
"""

import asyncio
import contextlib
import ctypes
import errno
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpcore
import httpx

from collectors.discovery.table import started_ticks

CLONE_NEWNET = 0x40000000
T = TypeVar("T")


def can_enter(pid: int, *, proc: Path = Path("/proc")) -> bool:
    """Whether we may enter the network namespace of a process; tried, since only the kernel knows."""
    try:
        return in_network_of(pid, lambda: True, proc=proc)
    except OSError:
        return False


def in_network_of(pid: int, act: Callable[[], T], *, proc: Path = Path("/proc"), started: int | None = None) -> T:
    """What ``act`` gives in a thread that lives in the network namespace of a process; it must not take long.

    ``started``: the process must be the one that started at those ticks after boot.

    Raises:
        PermissionError: we may not enter it.
        OSError: the process has ended, or what ``act`` raises.
    """
    namespace = os.open(proc / str(pid) / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)
    results: list[T] = []
    errors: list[OSError] = []

    def work() -> None:
        try:
            _enter(namespace)
            results.append(act())
        except OSError as exc:
            errors.append(exc)

    try:
        if started is not None and started_ticks(pid, proc=proc) != started:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), str(pid))
        thread = threading.Thread(target=work, name="vramscope-netns", daemon=True)
        thread.start()
        thread.join()
    finally:
        os.close(namespace)
    for error in errors:
        raise error
    return results[0]


class NamespaceTransport(httpx.AsyncBaseTransport):
    """HTTP to addresses as a process sees them; once it has ended, every request fails as unreachable."""

    def __init__(self, pid: int, *, tls: ssl.SSLContext | None = None, proc: Path = Path("/proc")) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=4,
            max_keepalive_connections=1,
            keepalive_expiry=4.0,
            network_backend=_Backend(pid, proc=proc),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        asked = httpcore.Request(request.method, url, headers=request.headers.raw, extensions=request.extensions)
        with _translated():
            answer = await self._pool.handle_async_request(asked)
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer), extensions=answer.extensions)

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Backend(httpcore.AsyncNetworkBackend):
    """Connects from within the namespace."""

    def __init__(self, pid: int, *, proc: Path) -> None:
        self._pid = pid
        self._proc = proc
        self._started = -1
        with contextlib.suppress(OSError):
            self._started = started_ticks(pid, proc=proc)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        with _raising(httpcore.ConnectTimeout, httpcore.ConnectError):
            async with asyncio.timeout(timeout):
                loop = asyncio.get_running_loop()
                opened = await loop.run_in_executor(None, self._socket, host)
                try:
                    await loop.sock_connect(opened, (host, port))
                    return _Stream(*await asyncio.open_connection(sock=opened))
                except BaseException:
                    opened.close()
                    raise

    def _socket(self, host: str) -> socket.socket:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET

        def make() -> socket.socket:
            made = socket.socket(family, socket.SOCK_STREAM)
            made.setblocking(False)
            return made

        return in_network_of(self._pid, make, proc=self._proc, started=self._started)


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        with _raising(httpcore.ReadTimeout, httpcore.ReadError):
            async with asyncio.timeout(timeout):
                return await self._reader.read(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        with _raising(httpcore.WriteTimeout, httpcore.WriteError):
            async with asyncio.timeout(timeout):
                self._writer.write(buffer)
                await self._writer.drain()

    async def aclose(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        with _raising(httpcore.ConnectTimeout, httpcore.ConnectError):
            async with asyncio.timeout(timeout):
                await self._writer.start_tls(ssl_context, server_hostname=server_hostname)
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # the other side closed a connection that was kept
            return self._reader.at_eof()
        return self._writer.get_extra_info({"server_addr": "peername", "client_addr": "sockname"}.get(info, info))


class _Body(httpx.AsyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated():
            async for part in self._answer.aiter_stream():
                yield part

    async def aclose(self) -> None:
        await self._answer.aclose()


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextlib.contextmanager
def _raising(timeout: type[Exception], failed: type[Exception]) -> Iterator[None]:
    """What the transport raises, as httpcore's; a deadline of somebody further out passes through."""
    try:
        yield
    except TimeoutError as exc:
        raise timeout from exc
    except (OSError, ValueError) as exc:
        raise failed(str(exc)) from exc


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """httpcore's errors as httpx's, which have the same names."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as exc:
        kind: type[Exception] = getattr(httpx, type(exc).__name__)
        raise kind(str(exc)) from exc
