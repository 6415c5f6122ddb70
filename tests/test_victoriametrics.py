"""VictoriaMetrics itself: what it makes of the examples and rules, and of an agent that it scrapes."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dashboards.model import FILES, every_expression, filled_in, load
from tests.program import Program, running
from tests.prometheus import Prometheus, free_port, prometheus, server_running
from tests.real import require

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
TLS = ROOT / "tests" / "fixtures" / "tls"
NAMED = {
    "ca.pem": (TLS / "ca.pem").read_text(encoding="utf-8"),
    "vramscope-password": "secret",
}  # files of the reader's that an example names
READ = "vramscope_kv_used_ratio"
SETTLED_SECONDS = 60.0  # VictoriaMetrics finds a new series some seconds after its first sample


def _takes(program: str, *arguments: str) -> None:
    command = [require(program), "-loggerLevel=ERROR", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("program", ["vmagent", "victoria-metrics"])
@pytest.mark.parametrize(
    "name", ["vmagent.yml", "prometheus.yml", "prometheus-kubernetes.yml", "prometheus-fewer-series.yml"]
)
def test_it_takes_the_example(program: str, name: str, tmp_path: Path) -> None:
    """Every key of it is known, discovery in a cluster too."""
    (tmp_path / name).write_bytes((EXAMPLES / name).read_bytes())
    for file, content in NAMED.items():
        (tmp_path / file).write_text(content)

    _takes(program, f"-promscrape.config={tmp_path / name}", "-promscrape.config.dryRun")


@pytest.mark.parametrize("path", sorted((ROOT / "alerts").glob("*.yml")), ids=lambda path: path.stem)
def test_vmalert_takes_the_rules(path: Path, tmp_path: Path) -> None:
    """Expressions and templates of all; Debian 12's is older than one key, which Prometheus and newer ones have."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    for rule in (rule for group in document["groups"] for rule in group["rules"]):
        rule.pop("keep_firing_for", None)
    (tmp_path / path.name).write_text(yaml.safe_dump(document))

    _takes("vmalert", "-dryRun", f"-rule={tmp_path / path.name}")


def test_it_scrapes_an_agent_and_answers_every_dashboard(tmp_path: Path) -> None:
    """By the example: all series of the agent arrive, and each query finds the same series as in a Prometheus."""
    with running("demo", "--speed", "20", "--listen", "127.0.0.1:0") as agent:
        target = agent.base.partition("//")[2]
        with _victoria_metrics(tmp_path, target) as victoria, prometheus(tmp_path, {"vramscope": target}) as reference:
            agent.until(lambda: all(one.at(READ, time.time() - 5) for one in (victoria, reference)), seconds=60)
            agent.until(lambda: _names(victoria) >= _exposed(agent))
            queries = {filled_in(query) for file in FILES for query in every_expression(load(file))}
            found = _answers(victoria, reference, queries)

    assert len(found) > len(queries) / 3


def _answers(victoria: Prometheus, reference: Prometheus, queries: set[str]) -> dict[str, Any]:
    """What was found for each query; queries whose series differ for as long as anybody looks fail."""
    found: dict[str, Any] = {}
    left = sorted(queries)
    deadline = time.monotonic() + SETTLED_SECONDS
    while time.monotonic() < deadline:
        moment = time.time() - 2  # scraped by both
        answers = {query: [_series(one.at(query, moment)) for one in (victoria, reference)] for query in left}
        found |= {query: here for query, (here, there) in answers.items() if here and here == there}
        left = [query for query, (here, there) in answers.items() if here != there]
        if not left:
            return found
        time.sleep(2)
    raise AssertionError({query: answers[query] for query in left})


def _series(samples: Sequence[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    return sorted(sorted(sample["metric"].items()) for sample in samples)


def _exposed(agent: Program) -> set[str]:
    return {
        line.partition("{")[0].partition(" ")[0] for line in agent.metrics().splitlines() if line[:1] not in ("", "#")
    }


def _names(server: Prometheus) -> set[str]:
    return set(server.get("label/__name__/values", **{"match[]": '{job="vramscope"}'}))


@contextmanager
def _victoria_metrics(folder: Path, target: str) -> Iterator[Prometheus]:
    """The single binary, which scrapes by the example, once a second and another address."""
    config = yaml.safe_load((EXAMPLES / "vmagent.yml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    job |= {"scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    (folder / "scrape.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [
        require("victoria-metrics"),
        f"-promscrape.config={folder / 'scrape.yml'}",
        f"-storageDataPath={folder / 'victoria'}",
        f"-httpListenAddr={address}",
        "-search.latencyOffset=0s",  # else what is younger than 30 s is not shown
    ]
    with server_running(command, address, folder / "victoria.log") as client:
        yield Prometheus(client)
