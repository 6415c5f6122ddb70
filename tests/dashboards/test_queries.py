"""Every query of the dashboards, asked of a real Prometheus that scrapes each metric of the catalogue."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, product
from pathlib import Path

from agent.metrics import CATALOGUE
from tests.dashboards.model import FILES, expressions, filled_in, load
from tests.prometheus import prometheus

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 30.0
VALUES = {  # where a query chooses by a label; any other label has one value
    "component": ("weights", "free"),
    "server": ("chat", ""),
    "bound": ("likely",),
    "state": ("used", "available", "running", "loading", "serving", "sleeping", "down"),
}
ABSENT = ("replica", "pool")  # as on a server with one of them


def _exposition(value: float) -> str:
    """Each metric with all of its labels; counters and gauges alike are at ``value``."""
    lines = []
    for metric in CATALOGUE:
        lines.append(f"# TYPE {metric.name} {metric.type}")
        names = [label for label in metric.labels if label not in ABSENT]
        for values in product(*(VALUES.get(name, ("x",)) for name in names)):
            labels = ",".join(f'{name}="{text}"' for name, text in zip(names, values, strict=True))
            lines.append(f"{metric.name}{{{labels}}} {value}")
    return "\n".join(lines) + "\n"


@contextmanager
def _exporter() -> Iterator[str]:
    """The ``host:port`` of a loopback server whose values grow with every scrape."""
    scrapes = count(1)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = _exposition(next(scrapes)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_every_query_finds_its_series(tmp_path: Path) -> None:
    """With all variables at "All" no panel is empty, and the alert rules load beside them."""
    queries = [filled_in(text) for path in FILES for text in expressions(load(path))]
    rules = sorted((ROOT / "alerts").glob("*.yml"))

    with _exporter() as target, prometheus(tmp_path, {"vramscope": target}, rules) as server:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (queries := [query for query in queries if not server.query(query)]) and time.monotonic() < deadline:
            time.sleep(0.5)
        groups = server.get("rules")["groups"]

    assert queries == [], "no answer"
    names = [rule["name"] for group in groups for rule in group["rules"]]
    assert {"VramscopeHeadroomLow", "VramscopeKvPoolExhausting", "instance:vramscope_headroom_ratio:min"} <= set(names)
