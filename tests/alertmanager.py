"""A real Alertmanager, and a receiver that writes down what it is told and when."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.prometheus import free_port, server_running
from tests.real import require


class Told(NamedTuple):
    """One alert of a notification: when it came (seconds since the epoch), and what Alertmanager says of it."""

    at: float
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]


class Receiver:
    """A webhook on loopback."""

    def __init__(self, url: str, told: list[Told]) -> None:
        self.url = url
        self._told = told

    def told(self, alert: str, status: str) -> list[Told]:
        """What came so far of one alert, ``firing`` or ``resolved``."""
        return [one for one in self._told if one.labels["alertname"] == alert and one.status == status]


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Listen until the block ends."""
    told: list[Told] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            now = time.time()
            document: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.extend(Told(now, one["status"], one["labels"], one["annotations"]) for one in document["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Receiver(f"http://127.0.0.1:{server.server_port}/", told)
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def alertmanager(folder: Path, webhook: str) -> Iterator[str]:
    """Run Alertmanager with one receiver, which is told at once, until the block ends; its ``host:port``."""
    route = {"receiver": "webhook", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
    receivers = [{"name": "webhook", "webhook_configs": [{"url": webhook, "send_resolved": True}]}]
    config = folder / "alertmanager.yml"
    config.write_text(yaml.safe_dump({"route": route, "receivers": receivers}), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [
        require("prometheus-alertmanager"),
        f"--config.file={config}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    with server_running(command, address, folder / "alertmanager.log"):
        yield address
