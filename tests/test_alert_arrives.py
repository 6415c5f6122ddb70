"""From the demo through Prometheus and Alertmanager, all of them real, to whoever is called."""

import time
from pathlib import Path

import yaml

from collectors.simulated.scenario import load_scenario
from tests.alertmanager import alertmanager, receiver
from tests.program import finished, running
from tests.prometheus import Prometheus, prometheus
from tests.real import require

SPEED = 10
SCENARIOS = Path(__file__).parent.parent / "collectors" / "simulated" / "scenarios"
ALERT = "VramscopeKvPoolFilling"
FULL = 0.97
"""Share from which the demo's pool counts as full: usage falls in the step in which it would reach 1."""


def _story(folder: Path) -> Path:
    """The demo's own story, told from a later page: the chain has 40,000 tokens when it comes, and loading is quick.

    Growth is known after 30 seconds of a real clock, that is 300 of the story; the pool is full after 500.
    """
    document = yaml.safe_load((SCENARIOS / "reasoning.yaml").read_text(encoding="utf-8"))
    [server] = document["servers"]
    server["loading"] = dict.fromkeys(server["loading"], 1)
    server["workload"]["reasoning_chains"] = [{"start_seconds": 60, "prompt_tokens": 40000, "output_tokens": 62000}]
    server["workload"]["late_guests"] = []
    server["crashes"] = []
    document["processes"] = []
    path = folder / "story.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    load_scenario(path)
    return path


def _rules(folder: Path) -> Path:
    """The rules with the times of the demo: a tenth of the horizon, the hold and the interval. ``for`` is 0 s."""
    options = [
        *("--set", f"pool_horizon_seconds={300 // SPEED}"),
        *("--set", f"pool_hold_seconds={180 // SPEED}"),
        *("--set", "pool_interval_seconds=1"),
        *("--selector", 'job="vramscope"'),
    ]
    path = folder / "rules.yml"
    written = finished("rules", *options)
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
    """At ten times the speed of life; the notice says how full the pool is, and where to read on."""
    for name in ("prometheus", "prometheus-alertmanager"):
        require(name)
    story, rules, began = _story(tmp_path), _rules(tmp_path), time.time()
    demo = ("demo", "--speed", str(SPEED), "--seed", "3", "--listen", "127.0.0.1:0", "--scenario", str(story))
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
    assert "% of the KV pool is in use" in firing.annotations["description"]
    assert firing.annotations["runbook_url"].endswith("/kv-pool-filling.md")
