"""Server-sent events: each new snapshot, encoded once for all who listen, and only while somebody does.

Nobody has a queue: a client that takes its time gets the newest when it has taken the last, and what came between is
dropped. Compressed frames are deflate blocks that refer to nothing before them, so that one serves streams of any age.
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


class Events:
    """The ASGI application of the streams. ``web``: a stream ends when the config under which it began does."""

    def __init__(self, source: Source, web: WebFile) -> None:
        self._source = source
        self._web = web
        self._listening: set[asyncio.Event] = set()
        self._figures: _Frame | None = None
        self._beat: _Frame | None = None
        self._feeding: asyncio.Task[None] | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if len(self._listening) >= MAX_STREAMS:
            refusal = f"{MAX_STREAMS} pages are being kept live already; ask /api/v1/snapshot again and again instead\n"
            await PlainTextResponse(refusal, status_code=503, headers={"retry-after": "30"})(scope, receive, send)
            return
        packed = takes_gzip(Headers(scope=scope).get("accept-encoding", ""))
        headers = [(b"content-type", b"text/event-stream"), (b"vary", b"accept-encoding")]
        if packed:
            headers.append((b"content-encoding", b"gzip"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "GET":
            await self._stream(receive, send, packed=packed)
        await send({"type": "http.response.body", "body": b""})

    async def _stream(self, receive: Receive, send: Send, *, packed: bool) -> None:
        """Send what is newest whenever there is something new, until the client has gone."""
        web = self._web.config
        woken = asyncio.Event()
        woken.set()
        gone = asyncio.create_task(_gone(receive))
        gone.add_done_callback(lambda _: woken.set())
        self._listening.add(woken)
        if self._feeding is None:
            self._feeding = asyncio.create_task(self._feed())
        figures, beat = None, self._beat
        try:
            if packed:
                await send({"type": "http.response.body", "body": _GZIP_HEAD, "more_body": True})
            while True:
                await woken.wait()
                woken.clear()
                if gone.done() or self._web.config is not web:
                    return
                frame = None
                if self._figures is not figures:
                    frame = figures = self._figures
                elif self._beat is not beat:
                    frame = beat = self._beat
                if frame is not None:
                    body = frame.packed if packed else frame.plain
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        finally:
            self._listening.discard(woken)
            gone.cancel()

    async def _feed(self) -> None:
        """Look for what is new while somebody listens, at most once a second."""
        clock = asyncio.get_running_loop().time
        document, said_at = None, clock()
        try:
            while self._listening:
                reason = self._source.not_healthy()
                fresh = None if reason else self._source.snapshot_json
                pause = LOOK_SECONDS
                if fresh is not None and fresh != document:
                    document, pause = fresh, PACE_SECONDS
                    self._figures, said_at = _Frame(fresh), clock()
                    self._wake()
                elif clock() - said_at >= BEAT_SECONDS:
                    self._beat, said_at = _Frame(msgspec.json.encode(reason), b"beat"), clock()
                    self._wake()
                await asyncio.sleep(pause)
        finally:
            self._feeding = self._figures = None

    def _wake(self) -> None:
        for woken in self._listening:
            woken.set()


async def _gone(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def takes_gzip(accepted: str) -> bool:
    """Whether an ``Accept-Encoding`` names gzip with a weight above 0 (RFC 9110, 12.5.3)."""
    codings = (one.replace(" ", "").lower().partition(";q=") for one in accepted.split(","))
    return any(name == "gzip" and (not weight or weight.strip("0.") != "") for name, _, weight in codings)
