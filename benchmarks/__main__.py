"""What the agent costs: parse, tick, scrape, CPU, memory. ``python -m benchmarks``; compare within one run only."""

import http.client
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families

from agent.board import Board
from agent.exporter import render
from benchmarks.busy_node import PAGE, Clock, busy_board, feed
from benchmarks.pages import page
from collectors.vllm.page import parse_page

SEQUENTIAL = 500
CLIENTS = 50
SCRAPES_EACH = 20
REST_SECONDS = 20
SPEED = "1"


def main() -> int:
    print(f"python {sys.version.split()[0]}, {psutil.cpu_count()} cores, load {psutil.getloadavg()[0]:.1f}\n")
    parsing()
    in_process()
    whole_program()
    return 0


def parsing() -> None:
    """What is needed of a page, beside the library's parse of all of it."""
    for replicas in (1, 16):
        text = page(replicas)
        what = f"{len(text) / 1000:.0f} KB ({replicas} replica{'s' * (replicas > 1)})"
        ours = timed(partial(parse_page, text, source="bench"), 100)
        library = timed(partial(parse_all, text), 10)
        row(f"parse {what}", ours, f"{statistics.median(library) / statistics.median(ours):.0f} x as fast as below")
        row("  the library's parse of all of it", library)


def parse_all(text: str) -> int:
    return sum(len(family.samples) for family in text_string_to_metric_families(text))


def in_process() -> None:
    """Hot figures, back to back in this process."""
    text = PAGE.read_text()
    board, clock = busy_board()
    feed(board, clock)
    snapshot = board.tick().snapshot
    series = board.metrics.count(b"\n") - board.metrics.count(b"\n#") - 1
    print(
        f"8 GPUs, 8 servers, 64 processes: {series} series, {len(board.metrics):,} bytes, "
        f"{len(board.metrics_gzip):,} gzip"
    )
    row("parse a vLLM page", timed(lambda: parse_page(text, source="bench"), 200), f"{len(text):,} bytes")
    row("render /metrics", timed(lambda: render(snapshot), 50))
    row("tick (assemble, render, gzip, JSON)", timed(board.tick, 50))
    row("tick with 8 pages parsed and 8 devices taken", timed(lambda: cycle(text, board, clock), 50))


def cycle(text: str, board: Board, clock: Clock) -> None:
    for _ in range(8):
        parse_page(text, source="bench")
    feed(board, clock)
    board.tick()


def whole_program() -> None:
    """The program itself beside a simulated node with 8 GPUs."""
    command = [
        sys.executable,
        "-Im",
        "agent",
        "demo",
        "--scenario",
        "eight",
        "--speed",
        SPEED,
        "--listen",
        "127.0.0.1:0",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        time.sleep(5)
        print(
            f"\nthe program beside 8 simulated GPUs (the simulation runs in it), {len(scrape(port)):,} bytes a scrape"
        )
        at_rest(process.pid)
        row(f"scrape, 1 client, {SEQUENTIAL} in a row", scrapes(port, SEQUENTIAL))
        row(f"scrape, {CLIENTS} clients x {SCRAPES_EACH}", crowd(port))
        memory(process.pid)
    finally:
        process.terminate()
        process.wait()


def at_rest(pid: int) -> None:
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    before = [sum(one.cpu_times()[:2]) for one in family]
    time.sleep(REST_SECONDS)
    after = [sum(one.cpu_times()[:2]) for one in family]
    shares = [100 * (b - a) / REST_SECONDS for a, b in zip(before, after, strict=True)]
    print(f"  CPU without scrapes: agent {shares[0]:.1f} % of a core, NVML child {shares[1]:.1f} %")


def memory(pid: int) -> None:
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    sizes = [one.memory_info().rss / 2**20 for one in family]
    print(f"  RSS after load: agent {sizes[0]:.0f} MiB, NVML child {sizes[1]:.0f} MiB")


def scrape(port: int, connection: http.client.HTTPConnection | None = None) -> bytes:
    connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    return connection.getresponse().read()


def scrapes(port: int, count: int) -> list[float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    return timed(lambda: scrape(port, connection), count)


def crowd(port: int) -> list[float]:
    """All clients at once, each on a connection of its own."""
    start = threading.Barrier(CLIENTS)

    def client(_: int) -> list[float]:
        start.wait()
        return scrapes(port, SCRAPES_EACH)

    with ThreadPoolExecutor(CLIENTS) as pool:
        return [seconds for each in pool.map(client, range(CLIENTS)) for seconds in each]


def timed(action: Callable[[], object], count: int) -> list[float]:
    durations = []
    for _ in range(count):
        started = time.perf_counter()
        action()
        durations.append(time.perf_counter() - started)
    return durations


def row(what: str, seconds: Sequence[float], remark: str = "") -> None:
    ordered = sorted(seconds)
    p50, p99 = statistics.median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(f"  {what:<46} p50 {1000 * p50:8.2f} ms   p99 {1000 * p99:8.2f} ms   {remark}")


if __name__ == "__main__":
    assert Path("pyproject.toml").exists(), "run it in the project's root"
    sys.exit(main())
