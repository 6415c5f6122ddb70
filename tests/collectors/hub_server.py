"""A hub on loopback: repositories as files by path, ranges, tokens, redirects and refusals, like the real one."""

import contextlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeHub:
    """What it serves and how; may be changed while it runs.

    ``files``: bodies by path. ``statuses`` and ``redirects`` (targets) by path come first. ``token``: the only one that
    is let in. ``requests``: path, Range and Authorization of each, in order.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.statuses: dict[str, int] = {}
        self.redirects: dict[str, str] = {}
        self.token: str | None = None
        self.ignores_ranges = False
        self.requests: list[tuple[str, str | None, str | None]] = []
        self.sent_bytes = 0
        self.url = ""

    def add(self, name: str, files: dict[str, bytes], *, revision: str = "main") -> None:
        """A repository."""
        for file, body in files.items():
            self.files[f"/{name}/resolve/{revision}/{file}"] = body


@contextlib.contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """Serve until the block ends."""
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # the client has read enough
                super().handle()

        def do_GET(self) -> None:
            authorization = self.headers.get("Authorization")
            hub.requests.append((self.path, self.headers.get("Range"), authorization))
            if self.path in hub.redirects:
                self._answer(302, b"", Location=hub.redirects[self.path])
            elif self.path in hub.statuses:
                self._answer(hub.statuses[self.path], b"no")
            elif hub.token is not None and authorization != f"Bearer {hub.token}":
                self._answer(401, b"no")
            elif self.path not in hub.files:
                self._answer(404, b"no")
            else:
                self._send(hub.files[self.path])

        def _send(self, body: bytes) -> None:
            asked = re.fullmatch(r"bytes=0-(\d+)", self.headers.get("Range") or "")
            if asked is None or hub.ignores_ranges:
                self._answer(200, body)
                return
            part = body[: int(asked[1]) + 1]
            self._answer(206, part, Content_Range=f"bytes 0-{len(part) - 1}/{len(body)}")

        def _answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            hub.sent_bytes += len(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False  # closing waits for them
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
