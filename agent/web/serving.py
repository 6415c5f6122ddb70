"""The HTTP server: uvicorn with bounds on connections, header time and header size, and one-sentence bind errors.

With TLS in the web config, each new connection begins with a handshake under the config of that moment.
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent.errors import RunError
from agent.web.events import EVENTS_PATH
from agent.web.guard import MAX_HEAD_BYTES
from agent.web.tls import Tls
from agent.web.web_file import WebFile

MAX_CONNECTIONS = 512
MAX_TLS_CONNECTIONS = 128
"""Less, for each costs 290 KiB in asyncio's buffers, against 8 KiB without TLS."""
REQUEST_SECONDS = 10.0
SEND_SECONDS = 30.0
"""For a client to take an answer that the kernel has no more room for."""
HANDSHAKE_SECONDS = 10.0
CLOSING_SECONDS = 2.0
ACCEPT_RETRY_SECONDS = 1.0
TICK_SECONDS = 1.0
BACKLOG = 512
UNSENT_BYTES = 128 * 1024
"""That the kernel holds for a client; what it takes more makes the sender wait."""
SPEAK_TLS = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n"
    b"this port speaks TLS; use https://\n"
)

log = logging.getLogger("vramscope.web")


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
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)  # its connections inherit it
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise RunError(f"can't listen on {place}: {reason}; choose another address with --listen") from error
    listener.setblocking(False)
    return listener


class _Protocol(H11Protocol):
    """uvicorn's connection, closed when a client does not complete a request, or take an answer, in time.

    ``since`` is when the client last sent something, or last had taken all that it was given, in the loop's time.
    """

    tls: Tls | None = None
    since = 0.0
    made: Callable[[], None] = staticmethod(lambda: None)
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn declares it
        super().connection_made(transport)
        self.app_state["transport"] = transport
        self.since = self.loop.time()
        self.made()
        if self.tls is not None and not self.tls.allows(transport.get_extra_info("peercert")):
            log.warning("refused %s: its client certificate has no allowed name", self.client and self.client[0])
            transport.abort()
            return
        self._watch()

    @property
    def waits(self) -> bool:
        """Whether it waits for its client: for a request, or until an answer is taken."""
        return self.cycle is None or self.cycle.response_complete or self._unsent

    @property
    def is_late(self) -> bool:
        """Whether the client has not taken an answer in time."""
        return self._unsent and self.loop.time() - self.since > SEND_SECONDS

    @property
    def is_stream(self) -> bool:
        """Whether it is being sent events, which has no end."""
        return self.cycle is not None and not self.cycle.response_complete and self.cycle.scope["path"] == EVENTS_PATH

    def look(self) -> None:
        """Take that the client of a stream keeps up."""
        if self.is_stream and not self._unsent:
            self.since = self.loop.time()

    def resume_writing(self) -> None:
        self.since = self.loop.time()
        super().resume_writing()

    @property
    def _unsent(self) -> bool:
        return self.transport.get_write_buffer_size() > 0

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        self.since = self.loop.time()
        super().data_received(data)
        if self.is_stream and self.flow.read_paused:  # a request behind it: under TLS its end would never be seen
            self.transport.abort()
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._deadline is None:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: a request that asks for another protocol is answered in this one."""

    def _watch(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class HttpServer(uvicorn.Server):
    """Serves one application on one bound socket until ``stop``; leaves signals to the caller.

    ``web`` is the web config that it follows; without one it speaks plain HTTP. uvicorn's own way from the listening
    socket to a connection takes one TLS context for good and counts no connection before its handshake; ours does.
    """

    def __init__(self, app: Any, listener: socket.socket, web: WebFile | None = None) -> None:  # an ASGI application
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
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                timeout_keep_alive=60,
                timeout_graceful_shutdown=2,
            )
        )
        self._listener = listener
        self._web = web or WebFile()
        self._arriving: set[asyncio.Task[None]] = set()
        self._unmade: set[socket.socket] = set()  # arriving, and not counted among the connections yet
        self._resting: asyncio.TimerHandle | None = None
        self._stopped = asyncio.Event()

    async def run_forever(self) -> None:
        with self._web.watched():
            await self.serve(sockets=[self._listener])

    def stop(self) -> None:
        self.should_exit = True
        self._stopped.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []
        self._listen()
        self.started = True

    async def main_loop(self) -> None:
        """Once a second, where uvicorn's own wakes ten times to see whether it should stop."""
        while not await self.on_tick(counter=0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._stopped.wait()

    async def on_tick(self, counter: int) -> bool:
        """End connections to clients that are late, or made under TLS settings that no longer hold; whether to stop."""
        tls = self._web.config.tls
        for connection in self._connections():
            connection.look()
            if connection.is_late:
                connection.transport.abort()
            elif connection.tls is not tls and not connection.transport.is_closing():
                connection.shutdown()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        if self._resting is not None:
            self._resting.cancel()
        for task in self._arriving:
            task.cancel()
        await asyncio.gather(*self._arriving, return_exceptions=True)
        for connection in self._connections():
            if connection.is_stream:
                connection.transport.close()
        await super().shutdown(sockets)

    def _connections(self) -> list[_Protocol]:
        return [one for one in self.server_state.connections if isinstance(one, _Protocol)]

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        """Take one connection; the event loop comes back for the next, so that a flood does not keep it."""
        loop = asyncio.get_running_loop()
        try:
            connection, address = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # the client has gone
        except OSError as error:
            log.warning("can't accept connections: %s", error.strerror)
            loop.remove_reader(self._listener)
            self._resting = loop.call_later(ACCEPT_RETRY_SECONDS, self._listen)
            return
        connection.setblocking(False)
        limit = MAX_CONNECTIONS if self._web.config.tls is None else MAX_TLS_CONNECTIONS
        if len(self._unmade) + len(self.server_state.connections) >= limit and not self._make_room():
            connection.close()
            return
        task = loop.create_task(self._admit(connection, address[0]))
        self._arriving.add(task)
        self._unmade.add(connection)
        task.add_done_callback(partial(self._arrived, connection))

    def _make_room(self) -> bool:
        """End the connection that has waited longest for its client; False where none does."""
        waiting = [one for one in self._connections() if one.waits]
        if not waiting:
            return False
        min(waiting, key=lambda one: one.since).transport.abort()
        return True

    def _protocol(self, tls: Tls | None, connection: socket.socket) -> _Protocol:
        made = _Protocol(config=self.config, server_state=self.server_state, app_state={})
        made.tls = tls
        made.made = partial(self._unmade.discard, connection)
        return made

    def _arrived(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._arriving.discard(task)
        self._unmade.discard(connection)
        if task.cancelled():  # maybe before it began
            connection.close()

    async def _admit(self, connection: socket.socket, address: str) -> None:
        """Make an accepted socket a connection, after its handshake where there is TLS; close it where that fails."""
        loop = asyncio.get_running_loop()
        tls = self._web.config.tls
        protocol = partial(self._protocol, tls, connection)
        admitted = False
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                if tls is None:
                    await loop.connect_accepted_socket(protocol, connection)
                    admitted = True
                elif (await _first_byte(connection)).isalpha():
                    await loop.sock_recv(connection, MAX_HEAD_BYTES)
                    await loop.sock_sendall(connection, SPEAK_TLS)
                else:
                    await loop.connect_accepted_socket(
                        protocol, connection, ssl=tls.context, ssl_shutdown_timeout=CLOSING_SECONDS
                    )
                    admitted = True
        except ssl.SSLError as error:
            log.warning("TLS handshake with %s failed: %s", address, (error.reason or "").lower().replace("_", " "))
        except OSError:
            pass  # the client went away, or was too slow
        finally:
            if not admitted:
                connection.close()


async def _first_byte(connection: socket.socket) -> bytes:
    """Wait for the first byte, and leave it in the socket: a letter begins an HTTP request, never a handshake."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_reader(connection, arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK)
