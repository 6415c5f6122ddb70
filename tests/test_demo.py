"""``vramscope demo`` as a newcomer meets it: the page in a real Chromium, the metrics in a real Prometheus."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import chromium
from tests.program import Program, finished, running
from tests.prometheus import prometheus
from tests.real import require

SPEED = "20"
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def demo() -> Iterator[Program]:
    with running("demo", "--speed", SPEED, "--seed", "3", "--listen", "127.0.0.1:0") as program:
        yield program


def test_a_drawn_page_with_bars_and_a_pool_that_grows(demo: Program, tmp_path: Path) -> None:
    """Parts as wide as their bytes, together the whole bar; used KV grows on the page; no complaint in the console."""
    with chromium(require("chromium"), tmp_path) as browser:
        page = browser.open(demo.base)
        page.wait_until("document.querySelector('[data-component=kv_used]')", seconds=60)
        drawn = page.evaluate(
            "[...document.querySelectorAll('[data-gpu=\"0\"] [data-row=live] .part')].map("
            "(part) => [part.dataset.component, Number(part.dataset.bytes), part.getBoundingClientRect().width])"
        )
        whole = page.evaluate(
            "document.querySelector('[data-gpu=\"0\"] [data-row=live]').getBoundingClientRect().width"
        )
        total = sum(count for _, count, _ in drawn)
        assert total == demo.snapshot()["devices"][0]["total_bytes"]
        for name, count, width in drawn:
            assert width == pytest.approx(whole * count / total, abs=0.5), name
        assert sum(width for _, _, width in drawn) == pytest.approx(whole, abs=0.5)

        assert page.evaluate("document.getElementById('status').textContent").startswith(
            "simulated node, not this host"
        )

        used = "Number(document.querySelector('[data-component=kv_used]').dataset.bytes)"
        first = page.evaluate(used)
        page.wait_until(f"{used} > {first} + 2 ** 30", seconds=60)
        page.screenshot(tmp_path / "page.png")
        assert page.problems() == []


def test_a_real_prometheus_scrapes_it(demo: Program, tmp_path: Path) -> None:
    """The target is up, the parts sum to the total in PromQL, and our rules are evaluated without an error."""
    rules = sorted((ROOT / "alerts").glob("*.yml"))
    with prometheus(tmp_path, {"vramscope": demo.base.removeprefix("http://")}, rules) as server:
        closed = "sum by (gpu) (vramscope_memory_bytes) == on (gpu) vramscope_memory_total_bytes"
        demo.until(lambda: server.query(closed))
        assert server.query("up")[0]["value"][1] == "1"
        groups = server.get("rules")["groups"]
        assert len(groups) >= 2
        demo.until(lambda: all(r["health"] == "ok" for g in server.get("rules")["groups"] for r in g["rules"]))


def test_a_demo_with_a_duration_ends_by_itself() -> None:
    """So many simulated seconds, one line on stdout, exit code 0."""
    done = finished("demo", "--speed", "100", "--duration", "50", "--listen", "127.0.0.1:0", "--scenario", "idle")

    assert done.returncode == 0
    assert done.stdout.startswith("listening on http://127.0.0.1:")
    assert "Traceback" not in done.stderr


def test_a_series_for_each_process_where_that_is_asked_for() -> None:
    """With the name that the process table has; what no look has seen has an empty one."""
    with running(
        "demo", "--speed", "20", "--scenario", "reasoning", "--listen", "127.0.0.1:0", "--per-process"
    ) as program:
        series = re.compile(r'^vramscope_process_memory_bytes\{gpu="0",name="([^"]+)",pid="\d+"\} \d{9,}$', re.M)
        program.until(lambda: series.search(program.metrics()), seconds=60)
        names = series.findall(program.metrics())

    assert all(0 < len(name) <= 15 for name in names)


def test_eight_gpus_with_one_server() -> None:
    """TP=8: every device closes, and all carry the same server."""
    with running("demo", "--speed", "50", "--scenario", "eight", "--listen", "127.0.0.1:0") as program:
        program.until(lambda: program.metrics().count('component="kv_used"') >= 16, seconds=60)
        devices = program.snapshot()["devices"]

    assert len(devices) == 8
    for device in devices:
        assert sum(part["bytes"] for part in device["components"]) == device["total_bytes"]
        assert {part["server"] for part in device["components"]} - {""} != set()
