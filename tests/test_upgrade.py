"""A restart from one version to another in the whole program: metrics, JSON, text and page; what outlives the agent."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.memory.upgrades import Record
from collectors.simulated.state import write_state
from tests.browser import chromium
from tests.collectors.replay import reply
from tests.node import GIB, LOG, MIB, RECORDED, Node, recorded_node, state
from tests.program import Program, finished, running
from tests.real import require

GRAPHS = 1228 * MIB
BLOCK = 16 * 131_072
GREW_TO = "0.33.0"


@pytest.fixture(scope="module")
def upgraded() -> Iterator[Program]:
    """A simulated node on which 0.19.1 was followed by 0.21.0, both of which lay still."""
    with running("demo", "--scenario", "upgrade", "--speed", "60", "--listen", "127.0.0.1:0") as program:
        program.until(lambda: any(server["upgrade"] for server in program.snapshot()["servers"]), seconds=60)
        yield program


def test_from_0_19_1_to_0_21_0_as_json(upgraded: Program) -> None:
    """The graphs of 1,228 MiB came on top of the fraction before: the pool has lost as many bytes, in whole blocks."""
    found = upgraded.snapshot()["servers"][0]["upgrade"]

    moved = {one["component"]: one["delta_bytes"] for one in found["components"]}
    assert (found["from_version"], found["to_version"]) == ("0.19.1", "0.21.0")
    assert moved == {"weights": 0, "kv_pool": -(GRAPHS // BLOCK) * BLOCK, "runtime": 0}
    assert found["causes"][0] == "CUDA graphs moved inside the fraction, so the pool is smaller by them"
    assert not any("gpu_memory_utilization" in cause for cause in found["causes"])  # 0.85 in both runs
    assert found["since"] == upgraded.snapshot()["servers"][0]["started_at"]
    assert {one["gpu"] for one in found["components"]} == {"0"}


def test_from_0_19_1_to_0_21_0_as_metrics(upgraded: Program) -> None:
    """A series for each component, with both versions."""
    text = upgraded.metrics()

    series = re.findall(r"^vramscope_server_upgrade_delta_bytes\{(.*)\} (\S+)$", text, re.M)
    assert len(series) == 3
    assert all('from_version="0.19.1"' in labels and 'to_version="0.21.0"' in labels for labels, _ in series)
    assert [int(value) for labels, value in series if 'component="kv_pool"' in labels] == [-(GRAPHS // BLOCK) * BLOCK]


def test_from_0_19_1_to_0_21_0_as_text(upgraded: Program) -> None:
    """One sentence; with ``--explain`` both runs."""
    done = finished("snapshot", "--url", upgraded.base, "--explain")

    text = " ".join(done.stdout.split())
    assert "since 0.19.1 -> 0.21.0: CUDA graphs moved inside the fraction, so the pool is smaller by them; " in text
    assert "KV pool -1.20 GiB" in text
    assert "0 kv_pool 51.08 GiB 49.88 GiB -1.20 GiB" in text


def test_from_0_19_1_to_0_21_0_on_the_page(upgraded: Program, tmp_path: Path) -> None:
    """The same sentence, and both runs behind it; nothing sticks out of the window."""
    with chromium(require("chromium"), tmp_path) as browser:
        page = browser.open(upgraded.base)
        page.wait_until("document.querySelector('[data-upgrade] p')", seconds=30)
        said = page.evaluate("document.querySelector('[data-upgrade] p').textContent")
        assert said.startswith("Since 0.19.1 -> 0.21.0: CUDA graphs moved inside the fraction")
        page.evaluate("document.querySelector('[data-upgrade] summary').click()")
        page.wait_until("document.querySelector('[data-moved]')", seconds=30)
        cells = "(row) => [...row.children].map((cell) => cell.textContent)"
        rows = page.evaluate(f"[...document.querySelectorAll('[data-moved]')].map({cells})")
        page.screenshot(tmp_path / "upgrade.png")
        assert ["KV pool", "51.08", "49.88", "\u22121.20"] in rows
        assert page.problems() == []


class Served:
    """A recorded server that is started anew as another version, and the agent's settings beside it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.state = node.folder / "state"
        self.starts(0, "0.32.0")
        text = node.config.read_text()
        node.config.write_text(f"{text}intervals: {{settle: 0.6}}\nstate_directory: '{self.state}'\n")

    def starts(self, number: int, version: str, *, holds: int = 2 * GIB) -> None:
        page = (RECORDED / "metrics_growing.txt").read_text()
        page = re.sub(r"^(process_start_time_seconds) .*$", rf"\1 {1.7e9 + 3600 * number}", page, flags=re.M)
        self.node.replay.answers["/metrics"] = reply(page)
        self.node.replay.answers["/version"] = reply(f'{{"version":"{version}"}}', content_type="application/json")
        self.node.log.write_text(LOG.replace("0.32.0", version))
        write_state(self.node.state_file, state(own_bytes=holds))

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("run", "--config", str(self.node.config), "--listen", "127.0.0.1:0")

    def remembered(self) -> dict[str, Record]:
        """What the state file says, if there is one."""
        if not (self.state / "upgrades.json").exists():
            return {}
        document = msgspec.json.decode((self.state / "upgrades.json").read_bytes())
        return msgspec.convert(document["servers"], dict[str, Record])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with recorded_node(tmp_path) as node:
        yield Served(node)


def upgrade_of(program: Program) -> Any:
    """None also until the server was asked, or its processes were seen."""
    servers = program.snapshot()["servers"]
    return servers[0]["upgrade"] if servers else None


def state_of(program: Program) -> dict[str, Any]:
    """The collector of the state file."""
    found = [one for one in program.snapshot()["collectors"] if one["name"] == "state"]
    return found[0] if found else {"success": None, "error": None, "failures": {}}


def test_what_a_killed_agent_knew_the_next_one_knows(served: Served) -> None:
    """The server is upgraded while nobody looks: the new agent has the run before from the file, as a one-shot has."""
    with running(*served.arguments, environment=served.node.environment) as program:
        program.until(lambda: "chat" in served.remembered())
        program.process.send_signal(signal.SIGKILL)
        program.process.wait()
    served.starts(1, GREW_TO, holds=2 * GIB + 512 * MIB)

    with running(*served.arguments, environment=served.node.environment) as program:
        found = program.until(lambda: upgrade_of(program))
        program.until(lambda: served.remembered()["chat"].before is not None)
    assert (found["from_version"], found["to_version"]) == ("0.32.0", GREW_TO)
    assert {one["component"]: one["delta_bytes"] for one in found["components"]}["runtime"] == 512 * MIB

    written = (served.state / "upgrades.json").stat().st_mtime_ns
    done = finished("snapshot", "--config", str(served.node.config), "--json", environment=served.node.environment)
    assert msgspec.json.decode(done.stdout)["servers"][0]["upgrade"]["summary"] == found["summary"]
    assert (served.state / "upgrades.json").stat().st_mtime_ns == written
    assert str(served.node.model) not in str({**found, "summary": ""})


def test_an_agent_without_a_place_for_its_state_goes_on(served: Served) -> None:
    """From the start, or midway: said once, exported as failing, all else is as ever; then it is written by itself."""
    served.state.write_text("a file where a directory should be")
    with running(*served.arguments, environment=served.node.environment) as program:
        program.until(lambda: state_of(program)["success"] is False)
        program.until(lambda: 'component="kv_used"' in program.metrics())
        served.state.unlink()
        program.until(lambda: state_of(program)["success"] and "chat" in served.remembered())

        served.state.rename(served.state.with_name("elsewhere"))
        served.state.write_text("again")
        served.starts(1, GREW_TO)
        program.until(lambda: upgrade_of(program) and state_of(program)["success"] is False)
        assert 'collector_success{collector="state",target=""} 0' in program.metrics()

        served.state.unlink()
        program.until(lambda: state_of(program)["success"])
        assert served.remembered()["chat"].before is not None
    said = [line for line in program.errors if " state " in line]
    assert ["failed" in line for line in said] == [True, False, True, False]
    assert "upgrades.json: can't read it: Not a directory; make the directory, or set state_directory to" in said[0]
    assert said[1].endswith("state works again\n")


def test_a_second_agent_on_the_same_directory_is_told_so(served: Served) -> None:
    """It takes over when the first has ended."""
    with running(*served.arguments, environment=served.node.environment) as first:
        first.until(lambda: state_of(first)["success"])
        with running(*served.arguments, environment=served.node.environment) as second:
            second.until(lambda: state_of(second)["failures"].get("locked"))
            assert state_of(second)["error"].endswith("set state_directory to one of its own")
            assert first.end() == 0
            second.until(lambda: state_of(second)["success"])


def test_a_broken_state_is_kept_aside_and_said(served: Served) -> None:
    """The agent begins anew, the file is not lost."""
    served.state.mkdir()
    (served.state / "upgrades.json").write_text('{"schema": "vramscope.upgr')
    with running(*served.arguments, environment=served.node.environment) as program:
        program.until(lambda: state_of(program)["failures"].get("malformed"))
        program.until(lambda: "chat" in served.remembered() and state_of(program)["success"])
    assert (served.state / "upgrades.json.unusable-1").read_text() == '{"schema": "vramscope.upgr'
    assert any("not a state that vramscope wrote; it is kept as " in line for line in program.errors)


def test_the_demo_leaves_no_state(tmp_path: Path) -> None:
    """Neither in the user's directory nor anywhere it is told of."""
    command = [sys.executable, "-Im", "agent", "demo", "--speed", "100", "--duration", "50", "--scenario", "idle"]
    places = {
        "HOME": str(tmp_path),
        "STATE_DIRECTORY": str(tmp_path / "state"),
        "XDG_STATE_HOME": str(tmp_path / "xdg"),
    }

    done = subprocess.run([*command, "--listen", "127.0.0.1:0"], env={**os.environ, **places}, check=False, timeout=60)

    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []
