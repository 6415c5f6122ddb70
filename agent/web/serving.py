"""The HTTP server: uvicorn with bounds on connections, header time and header size, and one-sentence bind errors."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent.errors import RunError

MAX_CONNECTIONS = 512
MAX_HEADER_BYTES = 16 * 1024
REQUEST_SECONDS = 10.0
BACKLOG = 512


def bind(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        RunError: one sentence: port in use, not permitted, or an address this host does not have.
    """
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise RunError(f"can't listen on {place}: {error.strerror}; use an address of this host") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise RunError(f"can't listen on {place}: {reason}; choose another address with --listen") from error
    listener.setblocking(False)
    return listener


class _Protocol(H11Protocol):
    """uvicorn's connection, closed when a client does not complete a request in time or there are too many."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn declares it
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._deadline is None:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class HttpServer(uvicorn.Server):
    """Serves one application on one bound socket until ``stop``; leaves signals to the caller."""

    def __init__(self, app: Any, listener: socket.socket) -> None:  # an ASGI application
        super().__init__(
            uvicorn.Config(
                app,
                http=_Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                timeout_keep_alive=60,
                timeout_graceful_shutdown=2,
            )
        )
        self._listener = listener

    async def run_forever(self) -> None:
        await self.serve(sockets=[self._listener])

    def stop(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
