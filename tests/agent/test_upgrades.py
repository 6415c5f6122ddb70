"""What the agent remembers of runs, from ticks: restarts, its own restarts, and how much it remembers at most."""

import json

import msgspec
import pytest
from msgspec.structs import replace

from agent.exporter import render
from agent.memory.arguments import Arguments
from agent.memory.upgrades import Record, Run
from agent.snapshot import Upgrade
from agent.upgrades import KEPT_ARGUMENTS, MAX_SERVERS, Upgrades
from collectors.readings import Fault
from tests.agent.test_board import BLOCK, BLOCKS, GIB, Bench, facts, gpu, serving

HELD = 40 * GIB
START = 1e9


class Life(Bench):
    """A server on one GPU; its agent looks at it every ten seconds for as long as it ``lives``."""

    def __init__(self, given: Arguments | None = None) -> None:
        super().__init__(facts(given=given or Arguments()))
        self.model()

    def lives(
        self,
        seconds: float = 80,
        *,
        version: str | None = "0.19.1",
        started_at: float | None = START,
        held: int = HELD,
        blocks: int = BLOCKS,
        used: int = 1000,
        state: str = "serving",
    ) -> Upgrade | None:
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.node(gpu(self.clock, used={7: held}, free=80 * GIB - held - GIB))
            self.tree(7)
            pools = tuple(replace(one, blocks=blocks, used_blocks=used) for one in serving(0).pools)
            self.server(version=version, started_at=started_at, pools=pools, state=state)
            self.board.tick()
            self.clock.now += 10.0
        return self.upgrade

    @property
    def upgrade(self) -> Upgrade | None:
        return self.board.published.snapshot.servers[0].upgrade

    def restarted(self) -> "Life":
        """A new agent with what the old one remembers, as it comes out of a file."""
        remembered = msgspec.json.encode(self.board.upgrades.records)
        other = Life()
        other.clock.now = self.clock.now
        other.board.upgrades.restore(msgspec.json.decode(remembered, type=dict[str, Record]))
        return other


@pytest.fixture
def life() -> Life:
    return Life()


def deltas(upgrade: Upgrade | None) -> dict[str, int]:
    assert upgrade is not None
    return {moved.component: moved.delta_bytes for moved in upgrade.components}


def test_another_version_is_shown_once_it_lies_still(life: Life) -> None:
    """Nothing before: neither with the first run, nor while the second one loads or settles."""
    assert life.lives() is None
    assert life.lives(30, state="loading", version="0.21.0", started_at=START + 100) is None
    assert life.lives(60, version="0.21.0", started_at=START + 100, blocks=BLOCKS - 600) is None

    upgrade = life.lives(10, version="0.21.0", started_at=START + 100, blocks=BLOCKS - 600)

    assert upgrade is not None
    assert (upgrade.from_version, upgrade.to_version, upgrade.since) == ("0.19.1", "0.21.0", START + 100)
    assert deltas(upgrade) == {"weights": 0, "kv_pool": -600 * BLOCK, "runtime": 600 * BLOCK}
    assert [moved.gpu for moved in upgrade.components] == ["0", "0", "0"]
    assert upgrade.summary.startswith("since 0.19.1 -> 0.21.0: CUDA graphs moved inside the fraction")
    assert upgrade.summary.endswith("KV pool -1.17 GiB, runtime +1.17 GiB")


def test_the_difference_as_metrics(life: Life) -> None:
    """One series for each component, with both versions; gone while the next run settles."""
    life.lives()
    life.lives(version="0.21.0", started_at=START + 100, blocks=BLOCKS - 600)
    text = render(life.board.published.snapshot).decode()
    labels = 'from_version="0.19.1",gpu="0",server="chat",to_version="0.21.0"'
    assert f'server_upgrade_delta_bytes{{component="kv_pool",{labels}}} {-600 * BLOCK}' in text
    assert text.count("vramscope_server_upgrade_delta_bytes{") == 3

    life.lives(10, version="0.22.0", started_at=START + 500)
    assert "server_upgrade_delta_bytes" not in render(life.board.published.snapshot).decode()


def test_a_pool_that_fills_is_no_change(life: Life) -> None:
    """Its parts move by gigabytes, the pool does not."""
    life.lives(30)
    life.lives(30, used=7000)
    life.lives(20, used=20)

    assert list(life.board.upgrades.records) == ["chat"]


def test_a_restart_of_the_agent_is_no_restart_of_the_server(life: Life) -> None:
    """It shows at once what its predecessor showed, and goes on from there."""
    life.lives()
    shown = life.lives(version="0.21.0", started_at=START + 100, blocks=BLOCKS - 600)
    assert shown is not None

    other = life.restarted()

    assert other.lives(10, version="0.21.0", started_at=START + 101, blocks=BLOCKS - 600) == shown
    assert other.lives(version="0.21.0", started_at=START + 99, blocks=BLOCKS - 600) == shown
    third = other.lives(version="0.22.0", started_at=START + 500)
    assert third is not None
    assert third.from_version == "0.21.0"


def test_an_upgrade_while_the_agent_was_away(life: Life) -> None:
    """The run that its predecessor saw settle is what the new one stands beside."""
    life.lives()
    other = life.restarted()

    upgrade = other.lives(version="0.21.0", started_at=START + 100)

    assert upgrade is not None
    assert (upgrade.from_version, upgrade.to_version) == ("0.19.1", "0.21.0")


def test_what_was_seen_before_the_file_could_be_read_comes_on_top(life: Life) -> None:
    """A state that becomes readable late is older than what the agent has seen itself."""
    life.lives()
    earlier = {"chat": Record(current=replace(life.board.upgrades.records["chat"].current, version="0.18.0"))}
    revision = life.board.upgrades.revision

    life.board.upgrades.restore(earlier)

    record = life.board.upgrades.records["chat"]
    assert record.before == earlier["chat"].current
    assert record.current.version == "0.19.1"
    assert life.board.upgrades.revision > revision


def test_without_a_start_time_the_process_tells(life: Life) -> None:
    """An engine that does not say when it began: its first process does, so a look later nothing is new."""
    life.lives(started_at=None)
    assert life.board.upgrades.records["chat"].current.started_at == 1.0
    assert life.lives(started_at=None) is None


def test_a_server_that_is_down_has_no_difference(life: Life) -> None:
    """What it held is no more; the comparison is there again with the same run."""
    life.lives()
    shown = life.lives(version="0.21.0", started_at=START + 100)
    life.refuse()
    life.tree()
    life.board.tick()
    assert life.upgrade is None

    assert life.lives(10, version="0.21.0", started_at=START + 100) == shown


def test_a_gpu_that_is_lost_is_left_out(life: Life) -> None:
    """What there was on it has no label any more; nothing is made up."""
    life.lives()
    life.lives(version="0.21.0", started_at=START + 100)
    life.board.lost_node(Fault(reason="gpu_lost", message="fell off the bus"))
    life.board.tick()

    assert life.upgrade is not None
    assert life.upgrade.components == ()


def test_only_arguments_about_memory_are_remembered() -> None:
    """A path is none of them, nor is anything that nobody has thought of."""
    life = Life(Arguments(tp=1, draft_model="/secret/draft"))
    life.lives()

    remembered = life.board.upgrades.records["chat"].current.arguments
    assert remembered["tp"] == 1
    assert "/secret" not in json.dumps(msgspec.to_builtins(life.board.upgrades.records))
    assert set(Arguments.__struct_fields__) >= KEPT_ARGUMENTS
    assert "draft_model" not in KEPT_ARGUMENTS


def test_no_more_than_so_many_servers_are_remembered() -> None:
    """Those that settled longest ago go first."""
    upgrades = Upgrades(settle_seconds=60.0)
    runs = {f"server {number}": Record(current=Run(engine="vllm", settled_at=float(number))) for number in range(300)}

    upgrades.restore(runs)

    assert len(upgrades.records) == MAX_SERVERS
    assert "server 43" not in upgrades.records
    assert "server 44" in upgrades.records
