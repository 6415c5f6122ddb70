"""Simulated servers on real loopback sockets: each listens while it serves and refuses while it loads or is dead.

A port stays one server's own for as long as the node lives: a second socket that never listens is bound to it, so a
restarted server comes back where it was, and until then the kernel refuses connections, as with the real one.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Mapping

from collectors.simulated.simulation import Simulation

HOST = "127.0.0.1"
_REQUEST_SECONDS = 10.0
_MAX_REQUEST_BYTES = 16 * 1024
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"


class SimulatedServers:
    """One listener for each server of a simulation, opened and closed as the server starts to serve and dies.

    ``ports`` are the wanted ones by server name; 0 lets the kernel choose.

    Raises:
        OSError: a wanted port is in use.
    """

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._reservations: dict[str, socket.socket] = {}
        self._listeners: dict[str, _Listener] = {}
        try:
            for name, port in ports.items():
                _check_unused(port)
                self._reservations[name] = _bound(port)
        except OSError:
            self._release()
            raise

    @property
    def ports(self) -> dict[str, int]:
        """The port of each server, listening or not."""
        return {name: int(held.getsockname()[1]) for name, held in self._reservations.items()}

    async def follow(self, simulation: Simulation) -> None:
        """Open what serves now and close what does not."""
        for name, port in self.ports.items():
            listener = self._listeners.get(name)
            if listener is not None and listener.engine is not simulation.life(name).engine:
                del self._listeners[name]
                listener.close()
                listener = None
            if listener is None and simulation.life(name).engine is not None:
                self._listeners[name] = await _Listener.open(port, name, simulation)

    async def stop(self) -> None:
        """Close everything and give the ports back."""
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        self._release()
        await asyncio.sleep(0)  # lets the aborted connections close their sockets

    def _release(self) -> None:
        for held in self._reservations.values():
            held.close()


class _Listener:
    """The HTTP side of one engine's life; its connections die with it."""

    def __init__(self, name: str, simulation: Simulation) -> None:
        self.engine = simulation.life(name).engine
        self._name = name
        self._simulation = simulation
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @classmethod
    async def open(cls, port: int, name: str, simulation: Simulation) -> "_Listener":
        listener = cls(name, simulation)
        listener._server = await asyncio.start_server(listener._serve, sock=_bound(port), limit=_MAX_REQUEST_BYTES)
        return listener

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close, whatever the client would like to keep alive."""
        self._writers.add(writer)
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client went away or does not speak HTTP
        finally:
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3:
            return _response("400 Bad Request", _JSON, b"{}")
        method, target, _ = words
        if method != b"GET":
            return _response("405 Method Not Allowed", _JSON, b'{"detail":"Method Not Allowed"}')
        match target.split(b"?", 1)[0]:
            case b"/metrics":
                text = self._simulation.metrics_text(self._name) or ""
                return _response("200 OK", _TEXT, text.encode())
            case b"/version":
                return _response("200 OK", _JSON, json.dumps(self._simulation.version(self._name)).encode())
            case b"/v1/models":
                return _response("200 OK", _JSON, json.dumps(self._simulation.models(self._name)).encode())
            case b"/health":
                return _response("200 OK", _TEXT, b"")
        return _response("404 Not Found", _JSON, b'{"detail":"Not Found"}')


def _response(status: str, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _check_unused(port: int) -> None:
    """Sockets that share a port would share it with another program's too: so ask first, without sharing."""
    if port:
        socket.create_server((HOST, port)).close()


def _bound(port: int) -> socket.socket:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((HOST, port))
    except OSError:
        held.close()
        raise
    return held
