"""From the demo through Prometheus and Alertmanager, all of them real, to whoever is called."""

import time
from pathlib import Path

from tests.alertmanager import alertmanager, receiver
from tests.program import finished, running
from tests.prometheus import Prometheus, prometheus
from tests.real import require

SPEED = 10
ALERT = "VramscopeKvPoolExhausting"
FULL = 0.97
"""Share from which the demo's pool counts as full: usage falls in the step in which it would reach 1."""


def _rules(folder: Path) -> Path:
    """The rules, looked at every second, a tenth of their 15 s. ``for`` is 0 s: the hold is the agent's."""
    path = folder / "rules.yml"
    written = finished("rules", "--set", "pool_interval_seconds=1", "--selector", 'job="vramscope"')
    assert written.returncode == 0, written.stderr
    path.write_text(written.stdout, encoding="utf-8")
    return path


def _first_full(server: Prometheus, since: float) -> float:
    """When the pool was first seen full, or a request preempted."""
    expression = f"max(vramscope_kv_used_ratio) >= {FULL} or sum(vramscope_server_preemptions_total) > 0"
    parameters = {"query": expression, "start": str(since), "end": str(time.time()), "step": "1"}
    series = server.get("query_range", **parameters)["result"]
    return float(min(at for one in series for at, _ in one["values"]))


def test_the_pool_alert_arrives_before_the_pool_is_full_and_its_end_after(tmp_path: Path) -> None:
    """At ten times the speed of life, the agent's forecast included; the notice says how full the pool is."""
    for name in ("prometheus", "prometheus-alertmanager"):
        require(name)
    rules, began = _rules(tmp_path), time.time()
    demo = ("demo", "--speed", str(SPEED), "--listen", "127.0.0.1:0")
    with receiver() as hook, alertmanager(tmp_path, hook.url) as manager, running(*demo) as program:
        targets = {"vramscope": program.base.removeprefix("http://")}
        with prometheus(tmp_path, targets, [rules], alertmanager=manager) as server:
            firing = program.until(lambda: hook.told(ALERT, "firing"), seconds=120)[0]
            [resolved, *_] = program.until(lambda: hook.told(ALERT, "resolved"), seconds=120)
            full = _first_full(server, began)

    lead = (full - firing.at) * SPEED
    print(f"at speed {SPEED}: told {lead:.0f} simulated seconds before the pool was full")
    assert lead > 0
    assert resolved.at > full
    assert firing.labels["severity"] == "warning"
    assert firing.labels["engine"] == "vllm"
    assert "% of its fullest KV pool is in use" in firing.annotations["description"]
    assert firing.annotations["runbook_url"].endswith("/kv-pool-exhausting.md")
