"""A real HTTP server on loopback that answers what it is told to, byte by byte, and records what it was asked."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct

FIXTURES = Path(__file__).parent.parent / "fixtures"

TLS = "TLS"
TURNS = 5  # of the event loop: from an accepted connection to its handler, from an aborted one to its end

Script = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Request(Struct, frozen=True, kw_only=True):
    path: str
    headers: dict[str, str]


class Replay:
    """What the server answers (by path, may be changed while it runs) and what it was asked so far.

    The answer of the path ``TLS`` is for clients that try a TLS handshake.
    """

    def __init__(self, answers: Mapping[str, bytes | Script]) -> None:
        self.answers = dict(answers)
        self.requests: list[Request] = []
        self.url = ""
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._handle(reader, writer))
        self._connections.add(task)
        task.add_done_callback(partial(self._ended, writer))

    def _ended(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        """However it ended, and even if it never began."""
        self._connections.discard(task)
        writer.transport.abort()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, EOFError):  # who asked has gone
            await self._serve(reader, writer)
            writer.close()
            await writer.wait_closed()

    async def end(self) -> None:
        await _turns()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await _turns()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = await self._answer(reader)
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
        else:
            await answer(writer)

    async def _answer(self, reader: asyncio.StreamReader) -> bytes | Script:
        start = await reader.readexactly(1)
        if start == b"\x16":
            return self.answers.get(TLS, reply(b"plain", status=400))
        head = (start + await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        path = head[0].split(" ")[1]
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        self.requests.append(Request(path=path, headers=headers))
        return self.answers.get(path, reply(b"not found", status=404))


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def reply(
    body: bytes | str, *, status: int = 200, content_type: str = "text/plain; version=0.0.4", extra: str = ""
) -> bytes:
    """A complete answer, after which the connection closes; ``extra`` holds further header lines."""
    data = body.encode() if isinstance(body, str) else body
    head = (
        f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n"
    )
    return head.encode() + extra.encode() + b"\r\n" + data


def redirect(location: str) -> bytes:
    return reply(b"", status=307, extra=f"Location: {location}\r\n")


@contextlib.asynccontextmanager
async def replaying(
    answers: Mapping[str, bytes | Script], *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Replay]:
    """Serve the answers on ``port`` of ``host``, by default a free one, while inside."""
    replay = Replay(answers)
    server = await asyncio.start_server(replay.connected, host, port)
    port = server.sockets[0].getsockname()[1]
    replay.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    async with server:
        yield replay
        server.close()
        await replay.end()


def vllm(name: str) -> str:
    """A fixture of vLLM's exposition."""
    return (FIXTURES / "vllm" / name).read_text(encoding="utf-8")
