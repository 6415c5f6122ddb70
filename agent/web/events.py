"""Server-sent events: each new snapshot, encoded once for all who listen, and only while somebody does.

Nobody has a queue: a client that takes its time gets the newest when it has taken the last, and what came between is
dropped. Compressed frames are deflate blocks that refer to nothing before them, so that one serves streams of any age.
Frames go straight to the connections, one behind the other: a fifth less than through a task for each and all layers of
the HTTP server.
https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import Any, Protocol

import msgspec
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from agent.web.web_config import WebConfig
from agent.web.web_file import WebFile

EVENTS_PATH = "/api/v1/events"
MAX_STREAMS = 32
"""Of the server's connections, so that open pages never keep a scraper out."""
PACE_SECONDS = 1.0
LOOK_SECONDS = 0.1
BEAT_SECONDS = 2.0
"""Without a new snapshot for so long, a beat says that the agent is there, and why it has none."""
_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_RAW_DEFLATE = -15

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Source(Protocol):
    """Where snapshots come from."""

    @property
    def snapshot_json(self) -> bytes: ...

    def not_healthy(self) -> str | None: ...


class _Frame:
    """One event on the wire."""

    def __init__(self, data: bytes, name: bytes = b"") -> None:
        event = b"event: %b\n" % name if name else b""
        self.plain = b"%bdata: %b\n\n" % (event, data)

    @cached_property
    def packed(self) -> bytes:
        packer = zlib.compressobj(1, zlib.DEFLATED, _RAW_DEFLATE)
        return packer.compress(self.plain) + packer.flush(zlib.Z_FULL_FLUSH)


class _Stream:
    """One client, which is written to in HTTP/1.1's chunks; HTTP/1.0 knows none, and takes what comes as it is.

    ``gone`` ends when the client has gone; the stream ends with it.
    """

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        gone: asyncio.Task[None],
        web: WebConfig,
        *,
        packed: bool,
        chunked: bool,
    ) -> None:
        self.gone = gone
        self.web = web
        self.figures: _Frame | None = None
        self.beat: _Frame | None = None
        self._transport = transport
        self._packed = packed
        self._chunked = chunked
        if packed:
            self._write(_GZIP_HEAD)

    @property
    def keeps_up(self) -> bool:
        """Whether the kernel has taken all that it was given; who has gone has not."""
        return not self._transport.is_closing() and self._transport.get_write_buffer_size() == 0

    def give(self, frame: _Frame) -> None:
        self._write(frame.packed if self._packed else frame.plain)

    def _write(self, part: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(part), part) if self._chunked else part)


class Events:
    """The ASGI application of the streams. ``web``: a stream ends when the config under which it began does.

    Of its server it needs the connection's transport, as ``transport`` in the state of a request.
    """

    def __init__(self, source: Source, web: WebFile) -> None:
        self._source = source
        self._web = web
        self._streams: set[_Stream] = set()
        self._figures: _Frame | None = None
        self._beat: _Frame | None = None
        self._feeding: asyncio.Task[None] | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if len(self._streams) >= MAX_STREAMS:
            refusal = f"{MAX_STREAMS} pages are being kept live already; ask /api/v1/snapshot again and again instead\n"
            await PlainTextResponse(refusal, status_code=503, headers={"retry-after": "30"})(scope, receive, send)
            return
        packed = takes_gzip(Headers(scope=scope).get("accept-encoding", ""))
        headers = [(b"content-type", b"text/event-stream"), (b"vary", b"accept-encoding")]
        if packed:
            headers.append((b"content-encoding", b"gzip"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        transport, chunked = scope["state"]["transport"], scope["http_version"] != "1.0"
        if scope["method"] == "GET" and not transport.is_closing():  # nor has it gone while its password was checked
            gone = asyncio.create_task(_gone(receive))
            await self._keep(_Stream(transport, gone, self._web.config, packed=packed, chunked=chunked))
        await send({"type": "http.response.body", "body": b""})

    async def _keep(self, stream: _Stream) -> None:
        """Let it be given what is new, until the client has gone or the feed ends it."""
        self._streams.add(stream)
        if self._feeding is None:
            self._feeding = asyncio.create_task(self._feed())
        try:
            self._give(stream)
            await asyncio.wait({stream.gone})
        finally:
            self._streams.discard(stream)
            stream.gone.cancel()

    async def _feed(self) -> None:
        """Look for what is new while somebody listens, at most once a second."""
        clock = asyncio.get_running_loop().time
        document, said_at = None, clock()
        try:
            while self._streams:
                reason = self._source.not_healthy()
                fresh = None if reason else self._source.snapshot_json
                pause = LOOK_SECONDS
                if fresh is not None and fresh != document:
                    document, pause = fresh, PACE_SECONDS
                    self._figures, self._beat, said_at = _Frame(fresh), None, clock()
                elif clock() - said_at >= BEAT_SECONDS:
                    self._beat, said_at = _Frame(msgspec.json.encode(reason), b"beat"), clock()
                for stream in self._streams:
                    self._give(stream)
                await asyncio.sleep(pause)
        finally:
            self._feeding = self._figures = self._beat = None

    def _give(self, stream: _Stream) -> None:
        """What it has not been given yet, where it has taken what it was given before."""
        if stream.web is not self._web.config:
            stream.gone.cancel()
        elif not stream.keeps_up:
            return
        elif self._figures is not None and self._figures is not stream.figures:
            stream.figures = self._figures
            stream.give(self._figures)
        elif self._beat is not None and self._beat is not stream.beat:
            stream.beat = self._beat
            stream.give(self._beat)


async def _gone(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def takes_gzip(accepted: str) -> bool:
    """Whether an ``Accept-Encoding`` names gzip with a weight above 0 (RFC 9110, 12.5.3)."""
    codings = (one.replace(" ", "").lower().partition(";q=") for one in accepted.split(","))
    return any(name == "gzip" and (not weight or weight.strip("0.") != "") for name, _, weight in codings)
