"""A real Prometheus that scrapes what a test serves, once a second."""

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.real import require

START_SECONDS = 30.0


class Prometheus:
    """A running server, asked over its HTTP API."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    @property
    def base(self) -> str:
        """Its address, without a slash at the end."""
        return str(self._client.base_url).rstrip("/")

    def get(self, path: str, **parameters: str) -> Any:
        """The ``data`` of an answer of the HTTP API; an answer that is no success fails the test."""
        document = self._client.get(f"/api/v1/{path}", params=parameters).json()
        assert document["status"] == "success", f"{parameters}: {document}"
        return document["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression, now."""
        return self.at(expression, None)

    def at(self, expression: str, time: float | None) -> list[dict[str, Any]]:
        """The samples of an expression at a moment, None: now."""
        when = {} if time is None else {"time": str(time)}
        result: list[dict[str, Any]] = self.get("query", query=expression, **when)["result"]
        return result

    def range(self, expression: str, *, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The series of an expression between two moments."""
        window = {"start": str(start), "end": str(end), "step": str(step)}
        result: list[dict[str, Any]] = self.get("query_range", query=expression, **window)["result"]
        return result


@contextmanager
def prometheus(
    folder: Path,
    targets: Mapping[str, str],
    rules: Sequence[Path] = (),
    *,
    options: Mapping[str, Any] | None = None,
    alertmanager: str | None = None,
    flags: Sequence[str] = (),
    port: int | None = None,
) -> Iterator[Prometheus]:
    """Run Prometheus in a folder of its own until the block ends.

    Args:
        targets: ``host:port`` by job.
        rules: rule files that it evaluates.
        options: further keys of every scrape config.
        alertmanager: ``host:port`` of the one that its alerts go to.
        flags: more of its command line.
        port: where it listens on loopback, None: anywhere.
    """
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}], **(options or {})}
            for job, target in targets.items()
        ],
    }
    if alertmanager is not None:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    address = f"127.0.0.1:{port or free_port()}"
    command = [
        require("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
        *flags,
    ]
    with server_running(command, address, folder / "prometheus.log") as client:
        yield Prometheus(client)


@contextmanager
def server_running(command: Sequence[str], address: str, log: Path) -> Iterator[httpx.Client]:
    """A program of the Prometheus family, ready at its address, until the block ends."""
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=60, trust_env=False) as client:
            _await_ready(process, client, log)
            yield client
    finally:
        process.terminate()
        process.wait(timeout=10)


def free_port() -> int:
    """A port of loopback on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _await_ready(process: "subprocess.Popen[bytes]", client: httpx.Client, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if client.get("/-/ready").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"{process.args!r} did not start: {log.read_text(encoding='utf-8')[-2000:]}")
