"""Servers in namespaces of their own, as in containers: found, read and placed from outside."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from collectors.discovery.host import HostDiscovery
from collectors.discovery.view import ProcessView
from collectors.errors import CollectorError
from collectors.http_streams import StreamTransport
from collectors.http_text import Endpoint
from collectors.netns import connect_in_network_of
from collectors.readings import FoundServer
from collectors.registry import ENGINES
from tests.collectors.discovery.servers import installed, started
from tests.real import require

COMMANDS = {name: engine.command for name, engine in ENGINES.items()}
LOOPBACK = {"PROGRAM_LOOPBACK": "1"}


def unshare(*namespaces: str) -> list[str]:
    """A command that starts another in namespaces of its own; the test is skipped where that is not permitted."""
    command = [require("unshare"), *namespaces]
    if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        pytest.skip(f"unshare {' '.join(namespaces)} is not permitted here")
    return command


def found_below(pid: int) -> FoundServer:
    """The server whose processes include the one started, or descend from it."""
    servers = [one for one in HostDiscovery(COMMANDS).scan() if _is_below(pid, one)]
    assert len(servers) == 1, servers
    return servers[0]


def _is_below(pid: int, one: FoundServer) -> bool:
    root = one.tree.processes[0].pid
    parent = int(Path(f"/proc/{root}/stat").read_text().rpartition(")")[2].split()[1])
    return pid in (root, parent)


async def _read(url: str, network_pid: int | None) -> str:
    transport = StreamTransport(connect=connect_in_network_of(network_pid)) if network_pid is not None else None
    endpoint = Endpoint(url, paths=["/metrics"], deadline_seconds=5.0, transport=transport)
    try:
        return (await endpoint.get("/metrics")).text
    except CollectorError as exc:
        return exc.reason
    finally:
        await endpoint.aclose()


def read(url: str | None, network_pid: int | None) -> str:
    assert url is not None
    return asyncio.run(_read(url, network_pid))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_server_in_a_network_of_its_own(tmp_path: Path, host: str) -> None:
    """Its address is one of that network: read through it, and refused from ours."""
    command = unshare("--net")
    home = installed(tmp_path)
    with started(home, "m", "--host", host, prefix=command, environment=LOOPBACK) as server:
        one = found_below(server.pid)

        assert (one.listening, one.network_pid) == (True, one.tree.processes[0].pid)
        assert one.url == f"http://127.0.0.1:{server.port}"
        assert read(one.url, one.network_pid) == "vllm:num_requests_running 0\n"
        assert read(one.url, None) == "refused"

    assert read(one.url, one.network_pid) == "no_route"


def test_a_server_in_a_container(tmp_path: Path) -> None:
    """Network, process numbers and files are its own: its model is reached through its root, links included."""
    home = installed(tmp_path / "engine")
    (tmp_path / "mnt").mkdir()
    inside = f"""
        mount -t tmpfs none {tmp_path}/mnt
        mkdir -p {tmp_path}/mnt/real/model
        echo '{{"model_type": "llama"}}' > {tmp_path}/mnt/real/model/config.json
        ln -s {tmp_path}/mnt/real {tmp_path}/mnt/models
        exec "$@"
    """
    command = [*unshare("--net", "--mount", "--pid", "--fork", "--kill-child"), "sh", "-ec", inside, "sh"]
    with started(home, f"{tmp_path}/mnt/models/model", prefix=command, environment=LOOPBACK) as server:
        one = found_below(server.pid)
        pid = one.tree.processes[0].pid

        assert one.model == f"/proc/{pid}/root{tmp_path}/mnt/real/model"
        assert (Path(one.model) / "config.json").read_text() == '{"model_type": "llama"}\n'
        assert one.version == "0.32.0"
        assert ProcessView(pid).has_own("pid")
        assert read(one.url, one.network_pid) == "vllm:num_requests_running 0\n"
        assert not list((tmp_path / "mnt").iterdir())
