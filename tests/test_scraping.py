"""The examples for scrapers: read by Prometheus' own checker where they are its format, and all at our address."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.metrics import CATALOGUE
from agent.settings import Settings
from tests.promtool import promtool

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
SCRAPES = ("prometheus.yml", "prometheus-kubernetes.yml", "prometheus-fewer-series.yml", "vmagent.yml")


def _config(name: str) -> dict[str, Any]:
    """The part of an example that is in Prometheus' format."""
    document: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))
    if "receivers" in document:
        document = document["receivers"]["prometheus"]["config"]
    return document


@pytest.mark.parametrize("name", [*SCRAPES, "otel-collector.yml"])
def test_promtool_takes_the_example(name: str, tmp_path: Path) -> None:
    """Without the files that it names, which are the reader's, and the discovery that Debian's build does not have."""
    config = _config(name)
    found = [entry for job in config["scrape_configs"] for entry in job.pop("kubernetes_sd_configs", ())]
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")

    promtool("check", "config", "--syntax-only", path)
    assert found == ([{"role": "pod"}] if "kubernetes" in name else [])


@pytest.mark.parametrize("name", [*SCRAPES, "otel-collector.yml"])
def test_it_scrapes_our_port_and_path_as_our_job(name: str) -> None:
    """The default port and path; `vramscope` is the job in the end, as rules and dashboards have it."""
    port = Settings().listen.rpartition(":")[2]
    for job in _config(name)["scrape_configs"]:
        assert "metrics_path" not in job
        targets = [target for group in job.get("static_configs", ()) for target in group["targets"]]
        assert all(target.endswith(f":{port}") for target in targets)
        assert targets or port in [rule.get("regex") for rule in job["relabel_configs"]]
        renamed = [rule["replacement"] for rule in job.get("relabel_configs", ()) if rule.get("target_label") == "job"]
        assert [*renamed, job["job_name"]][0] == "vramscope"


def test_what_is_left_out_is_ours_and_needed_by_no_alert() -> None:
    """Each name of the example is a metric of the catalogue, and in no rule."""
    (job,) = _config("prometheus-fewer-series.yml")["scrape_configs"]
    names = {metric.name for metric in CATALOGUE}
    rules = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "alerts").glob("*.yml"))
    for rule in job["metric_relabel_configs"]:
        dropped = [name for name in names if re.fullmatch(rule["regex"], name)]
        assert len(dropped) == rule["regex"].count("|") + 1
        assert not [name for name in dropped if name in rules]


def test_the_collectors_pipeline_uses_what_it_declares() -> None:
    """Every receiver and exporter of a pipeline is there."""
    document = yaml.safe_load((EXAMPLES / "otel-collector.yml").read_text(encoding="utf-8"))
    for pipeline in document["service"]["pipelines"].values():
        assert set(pipeline["receivers"]) <= set(document["receivers"])
        assert set(pipeline["exporters"]) <= set(document["exporters"])


def test_alloys_blocks_are_closed_and_refer_to_each_other() -> None:
    """What is scraped goes to a component that is in the file; braces and brackets are balanced."""
    text = (EXAMPLES / "config.alloy").read_text(encoding="utf-8")
    blocks = {".".join(found) for found in re.findall(r'^([\w.]+) "(\w+)" \{$', text, re.M)}

    assert blocks == {"prometheus.scrape.vramscope", "prometheus.remote_write.store"}
    assert set(re.findall(r"forward_to = \[(.+)\.receiver\]", text)) <= blocks
    assert all(text.count(left) == text.count(right) for left, right in ("{}", "[]", "()"))
    assert all(found == "10175" for found in re.findall(r'"__address__" = "[^"]+:(\d+)"', text))


def test_every_example_is_on_the_page() -> None:
    """And nothing else."""
    page = (ROOT / "docs" / "scraping.md").read_text(encoding="utf-8")

    assert sorted(re.findall(r"\(examples/([\w.-]+)\)", page)) == sorted(path.name for path in EXAMPLES.iterdir())
