"""Every query of the dashboards, asked of a real Prometheus that scrapes each metric of the catalogue."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, product
from pathlib import Path

from agent.metrics import CATALOGUE, Metric
from tests.dashboards.foreign import ENGINES
from tests.dashboards.model import FILES, every_expression, filled_in, load
from tests.prometheus import prometheus

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 40.0
GONE_AFTER_SCRAPES = 3
VALUES = {  # where a query chooses by a label; any other label has one value
    "component": ("weights", "runtime", "context", "free"),
    "server": ("chat", ""),
    "bound": ("likely", "early", "low", "high"),
    "kind": ("allocator", "kv_block"),
    "reason": ("pool_exhaustion", "device_creep"),
    "collector": ("nvml",),
    "window": ("60s", "start", "120s", "300s"),
    "state": ("used", "available", "running", "loading", "serving", "sleeping", "down"),
    "le": ("0.1", "+Inf"),
}
ABSENT = ("replica", "pool")  # as on a server with one of them
DRAWN_FROM = {"vramscope_risk_level": (("server", "reason"), ("gpu", "reason"))}  # one or the other


def _exposition(value: float) -> str:
    """Each metric with all of its labels, and the engines' own, at ``value`` or now; and a source that fails."""
    lines = []
    for metric in CATALOGUE:
        lines.append(f"# TYPE {metric.name} {metric.type}")
        now = time.time() if "timestamp" in metric.name or "start_time" in metric.name else value
        lines += [f"{metric.name}{labels} {now}" for labels in _labels(metric)]
    for name, labels in ENGINES.items():
        lines += [f"{name}{text} {value}" for text in _texts(tuple(labels - {"job", "instance"}))]
    lines.append('vramscope_collector_success{collector="endpoint",target="chat"} 0')
    lines.append('vramscope_collector_last_success_timestamp_seconds{collector="endpoint",target="chat"} 1')
    return "\n".join(lines) + "\n"


def _labels(metric: Metric) -> Iterator[str]:
    names = tuple(label for label in metric.labels if label not in ABSENT)
    for those in DRAWN_FROM.get(metric.name, (names,)):
        yield from _texts(those)


def _texts(names: tuple[str, ...]) -> Iterator[str]:
    for values in product(*(VALUES.get(name, ("x",)) for name in names)):
        if ("server", "") in zip(names, values, strict=True) and names[0] != "gpu":
            continue
        yield "{" + ",".join(f'{name}="{text}"' for name, text in zip(names, values, strict=True)) + "}"


@contextmanager
def _exporter(*, gone_after: float = float("inf")) -> Iterator[str]:
    """The ``host:port`` of a loopback server whose values grow with every scrape, until it fails."""
    scrapes = count(1)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = next(scrapes)
            body = _exposition(number).encode() if number <= gone_after else b""
            self.send_response(200 if body else 503)
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
    """With all variables at "All" no panel and no mark is empty: seconds stand for hours where it looks back."""
    asked = {filled_in(text) for path in FILES for text in every_expression(load(path))}
    queries = sorted(re.sub(r"offset \w+", "offset 3s", text) for text in asked)
    rules = sorted((ROOT / "alerts").glob("*.yml"))

    with (
        _exporter() as target,
        _exporter(gone_after=GONE_AFTER_SCRAPES) as gone,
        prometheus(tmp_path, {"vramscope": target, "gone": gone}, rules) as server,
    ):
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (queries := [query for query in queries if not server.query(query)]) and time.monotonic() < deadline:
            time.sleep(0.5)
        groups = server.get("rules")["groups"]

    assert queries == [], "no answer"
    names = [rule["name"] for group in groups for rule in group["rules"]]
    assert {"VramscopeHeadroomLow", "VramscopeKvPoolExhausting", "instance:vramscope_headroom_ratio:min"} <= set(names)
