"""What the agent costs, in one run: ``python -m benchmarks``. Compare figures within a run only, bounds included.

The driver is the tests' double, which answers in half a microsecond: what is measured is the agent's own side.
"""

import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import psutil
from prometheus_client.parser import text_string_to_metric_families

from agent.memory.arguments import Arguments
from agent.memory.budget import compute
from agent.memory.gpus import find_gpus
from agent.memory.plan import Target, plan
from agent.memory.serving import ENGINES
from benchmarks import peer
from benchmarks.costs import Family, cpu_share
from benchmarks.forecasting import forecasting
from benchmarks.hot import Timings
from benchmarks.load import PLAIN, PROMETHEUS, Load, each_second, in_a_row, watched
from benchmarks.node import COUNT, BusyNode, busy_node
from benchmarks.pages import page
from benchmarks.report import figure, p50, p99, section, spread
from collectors.model_files import read_model
from collectors.vllm.page import parse_page
from tests.program import Program, running

IN_A_ROW = 500
CLIENTS = 50
PAGES = 20
ROUNDS = 20
REST_SECONDS = 30
SETTLE_SECONDS = 15
REAL_CALL_SECONDS = 12e-6  # median of MemoryInfo on an RTX 4090 with driver 610 (flightlessmango/MangoHud, PR 2104)
CONFIGS = Path("tests/fixtures/models/configs")
PARSE_LIMITS_MS = {1: 1.5, 16: 12.0}


def main() -> int:
    print(f"{platform.machine()}, {psutil.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{COUNT} GPUs by the driver-level double, {COUNT} vLLM servers, {COUNT * COUNT} processes")
    parsing()
    deciding()
    forecasting()
    with tempfile.TemporaryDirectory(prefix="vramscope-bench-") as folder, busy_node(Path(folder)) as node:
        hot(node)
        arguments = ("run", "--config", str(node.config), "--listen", "127.0.0.1:0")
        with running(*arguments, environment=node.environment) as program:
            settle(program)
            at_rest(program)
            ours = scrapes("the agent", program.base, limits=True)
            with node.slow_driver(1000):
                time.sleep(SETTLE_SECONDS)
                scrapes("the agent while every NVML call takes 1 ms more", program.base, limits=True)
            static_body(program, Path(folder))
            beside_nvitop(program, node, ours)
    return 0


def parsing() -> None:
    section("a vLLM page: what is needed of it, beside the library's parse of all of it")
    for replicas, limit in PARSE_LIMITS_MS.items():
        text = page(replicas)
        ours = timed(partial(parse_page, text, source="bench"), 100)
        library = timed(partial(parse_all, text), 10)
        what = f"{len(text) / 1000:.0f} KB, {replicas} replica{'s' * (replicas > 1)}"
        ratio = f"{p50(library) / p50(ours):.0f} x as fast as below"
        figure(f"read {what} (p50)", 1000 * p50(ours), "ms", at_most=limit, remark=ratio)
        figure("  prometheus_client's parser", 1000 * p50(library), "ms")


def deciding() -> None:
    """The whole ladder: budgets by the hundred where nothing fits, of which each is to take some milliseconds."""
    section("a budget, and a plan that tries all there is")
    device, gpus = find_gpus("h100x8")
    models = [read_model(path) for path in sorted(CONFIGS.glob("*.json"))]
    budgets = [p50(timed(partial(compute, files, Arguments(), device), 5)) for files in models]
    figure(f"budget of each of {len(models)} public models (p50)", 1000 * p50(budgets), "ms")
    figure("  of the slowest", 1000 * max(budgets), "ms", at_most=50)
    target = Target(gpus=gpus, context=131_072, concurrency=512)
    for name in ("llama-3.1-70b", "deepseek-v3", "deepseek-v4-flash", "qwen3.5-397b-a17b"):
        files = read_model(CONFIGS / f"{name}.json")
        one = timed(partial(compute, files, Arguments(tp=8), device), 20)
        whole = timed(partial(plan, files, Arguments(), device, target, others=ENGINES[1:]), 3)
        figure(f"budget of {name} (p50)", 1000 * p50(one), "ms", at_most=50)
        figure(f"plan of {name} in every engine (p50)", 1000 * p50(whole), "ms", at_most=1000)


def parse_all(text: str) -> int:
    return sum(len(family.samples) for family in text_string_to_metric_families(text))


def hot(node: BusyNode) -> None:
    """CPU back to back, in a process that has the double as its driver."""
    section("hot CPU, back to back (p50)")
    command = [sys.executable, "-m", "benchmarks.hot", str(node.config)]
    done = subprocess.run(command, env=node.environment, stdout=subprocess.PIPE, check=True)
    timings = msgspec.json.decode(done.stdout, type=Timings)
    bare, sample = p50(timings.bare), p50(timings.sample)
    real = COUNT * REAL_CALL_SECONDS
    figure("memory of 8 GPUs, bare pynvml calls", 1e6 * bare, "us")
    figure("  the child's sample: announced, checked, peaks", 1e6 * sample, "us", remark=f"{sample / bare:.1f} x")
    figure("  ratio with 12 us more a call, as a driver takes", (sample + real) / (bare + real), "x", at_most=2)
    figure("  the same as a line for the agent", 1e6 * p50(timings.line), "us")
    figure("process lists of 8 GPUs, bare pynvml calls", 1e6 * p50(timings.bare_lists), "us")
    figure("one turn, all in", 1000 * p50(timings.turns), "ms", at_most=15, remark="the work of a second:")
    figure("  pass over the devices, read by the agent", 1000 * p50(timings.devices), "ms")
    figure("  8 servers asked over HTTP and read", 1000 * p50(timings.servers), "ms")
    figure("  tick: attribute, render, compress", 1000 * p50(timings.ticks), "ms")
    figure("a look at the processes, every 5 s", 1000 * p50(timings.looks), "ms")


def settle(program: Program) -> None:
    """Until all servers and devices are read, and caches are filled."""
    program.until(lambda: program.metrics().count('_bytes{component="kv_used"') == COUNT, seconds=60)
    time.sleep(SETTLE_SECONDS)


def at_rest(program: Program) -> None:
    section(f"at default rhythms, over {REST_SECONDS} s")
    family = Family(program.process.pid)
    for name, meanwhile in meanwhiles(program.base):
        shares = cpu_share([family], meanwhile)[0]
        parts = f"agent {shares[0]:.2f}, child {sum(shares[1:]):.2f}"
        figure(f"CPU, {name}", sum(shares), "% of a core", at_most=2, remark=parts)
    sent: list[int] = []
    shares = cpu_share([family], lambda: sent.append(watched(program.base, pages=PAGES, rounds=REST_SECONDS)))[0]
    parts = f"each is sent {sent[0] / PAGES / REST_SECONDS / 1000:.1f} KB a second"
    figure(f"CPU, {PAGES} pages open and one scrape a second", sum(shares), "% of a core", at_most=2, remark=parts)


def meanwhiles(*bases: str) -> list[tuple[str, Callable[[], object]]]:
    def scraped() -> None:
        each_second(bases, PROMETHEUS, clients=1, rounds=REST_SECONDS)

    return [("no scrapes", partial(time.sleep, REST_SECONDS)), ("one scrape a second", scraped)]


def scrapes(what: str, base: str, *, limits: bool = False) -> Load:
    """One scraper and a crowd, without and with compression; gives the crowd's with compression."""
    section(f"scrapes of {what}")
    for name, headers in (("plain", PLAIN), ("as Prometheus asks", PROMETHEUS)):
        one = in_a_row(base, headers, IN_A_ROW)
        shown(f"1 client, {IN_A_ROW} in a row, {name}", one, 5 if limits else None)
        many = each_second([base], headers, clients=CLIENTS, rounds=ROUNDS)
        shown(f"{CLIENTS} clients, each once a second, {name}", many, 25 if limits else None)
    return many


def shown(what: str, load: Load, p99_limit_ms: float | None) -> None:
    remark = f"{load.answer_bytes:,} bytes" + f", {load.timeouts} never answered" * bool(load.timeouts)
    spread(what, load.seconds, p99_limit_ms=p99_limit_ms, remark=remark)


def static_body(program: Program, folder: Path) -> None:
    body = folder / "body.txt"
    body.write_bytes(program.get("/metrics").content)
    with peer.static_body(body) as (base, pid):
        scrapes("a static body of the same size behind the same HTTP server", base)
        figure("resident memory", sum(Family(pid).resident_mib()), "MiB")


def beside_nvitop(program: Program, node: BusyNode, ours: Load) -> None:
    """CPU of both in the same seconds, the exporter's scrapes, memory of both after all of it."""
    installed = peer.install()
    if installed is None:
        section(f"{peer.RELEASE} can't be installed here: nothing to hold against")
    else:
        with peer.nvitop_exporter(installed, node.environment) as (base, pid):
            time.sleep(SETTLE_SECONDS)
            section(f"{peer.RELEASE} in the same seconds on the same double, over {REST_SECONDS} s")
            families = [Family(program.process.pid), Family(pid)]
            for name, meanwhile in meanwhiles(program.base, base):
                mine, theirs = (sum(shares) for shares in cpu_share(families, meanwhile))
                remark = f"the agent {mine:.2f}: {theirs / mine:.1f} x less"
                figure(f"CPU, {name}", theirs, "% of a core", remark=remark)
            load = scrapes(peer.RELEASE, base)
            ratio = p99(load.seconds) / p99(ours.seconds)
            figure("scrape p99 of the crowd, against the agent's", ratio, "x", at_least=10)
            figure("resident memory", sum(families[1].resident_mib()), "MiB")
    section("resident memory of the agent, after all scrapes")
    sizes = Family(program.process.pid).resident_mib()
    figure("agent and NVML child", sum(sizes), "MiB", at_most=80, remark=" + ".join(f"{size:.1f}" for size in sizes))


def timed(action: Callable[[], object], count: int) -> list[float]:
    durations = []
    for _ in range(count):
        started = time.perf_counter()
        action()
        durations.append(time.perf_counter() - started)
    return durations


if __name__ == "__main__":
    assert Path("pyproject.toml").exists(), "run it in the project's root"
    sys.exit(main())
