"""The way of a log: from settings or a found process to what readers see, and what happens when it goes."""

from io import StringIO

import pytest
from rich.console import Console

from agent.board import Board
from agent.errors import InputError
from agent.memory.arguments import Arguments
from agent.settings import ServerSettings, parse_settings
from agent.terminal import print_snapshot
from agent.watch import ServerFacts, ServerWatch
from collectors.engine_logs.vllm import FORMAT
from collectors.readings import Container, Fault, Home, HostKills, LogReading, ProcessTree, ServerProcess
from collectors.run import Outcome
from tests.agent.test_fleet import Host, found
from tests.collectors.engine_logs.lines import GIB, read

LOG = read(
    FORMAT,
    "non-default args: {}",
    "Model loading took 1.5 GiB memory and 3.6 seconds",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "INFO:     Application startup complete.",
)
CONTAINER = Container(runtime="containerd", id="a1" * 32, name="vllm", pod="llama-0", namespace="prod")
GONE = Fault(reason="absent", message="/proc/7/fd/1: there is no such log")


class Watched:
    """A board with one server whose clock the test moves; its processes are there, its endpoint does not answer."""

    def __init__(self, *, log: str | None = None) -> None:
        self.now = 1.0
        facts = ServerFacts(name="chat", engine="vllm", url="http://127.0.0.1:8000", given=Arguments(), log=log)
        self.watch = ServerWatch(facts, rank_of=lambda _: None)
        self.watch.saw(ProcessTree(at=1.0, processes=(ServerProcess(pid=7, started_at=1.0, title="vllm serve m"),)))
        self.watch.home = Home(logs=("/proc/7/fd/1",), container=CONTAINER)
        self.board = Board([self.watch], memory_interval_seconds=1.0, clock=lambda: self.now, wall=lambda: 1.7e9)

    def took(self, value: LogReading | None = None, fault: Fault | None = None) -> None:
        self.board.took_log(self.watch, Outcome(value=value, fault=fault, duration_seconds=0.1, at=self.now))

    def metrics(self) -> str:
        return self.board.tick().metrics.decode()


def test_settings_say_where_a_log_is_before_what_is_found() -> None:
    """Without either there is nothing to read."""
    assert Watched(log="/var/log/vllm.log").watch.logs == ("/var/log/vllm.log",)
    found_one = Watched()
    assert found_one.watch.logs == ("/proc/7/fd/1",)
    found_one.watch.home = None
    assert not found_one.watch.logs


def test_failures_are_counted_and_the_last_one_has_its_figures() -> None:
    """Kinds that never happened are 0; the age grows."""
    node = Watched()
    node.took(LOG)
    node.now = 31.0

    text = node.metrics()
    assert 'server_oom_events_total{kind="cuda_oom",server="chat"} 1\n' in text
    assert 'server_oom_events_total{kind="capture_failed",server="chat"} 0\n' in text
    (server,) = node.board.published.snapshot.servers
    assert server.log is not None
    assert server.log.last_failure is not None
    assert (server.log.last_failure.kind, server.log.last_failure.age_seconds) == ("cuda_oom", 30.0)
    assert server.log.last_failure.figures == {"requested_bytes": 2 * GIB}


def test_a_container_is_named_on_an_info_series_alone() -> None:
    """Twelve characters of its id; the labels of other series stay as they are."""
    node = Watched()
    labels = 'container="vllm",container_id="a1a1a1a1a1a1",namespace="prod",pod="llama-0",server="chat",unit=""'

    lines = [line for line in node.metrics().splitlines() if "llama-0" in line]

    assert lines == [f"vramscope_server_container_info{{{labels}}} 1"]
    node.watch.home = None
    assert "server_container_info" not in node.metrics()


def test_a_found_log_that_goes_with_its_process_is_no_failure() -> None:
    """The sizes of that run are forgotten, what was counted is not."""
    node = Watched()
    node.took(LOG)

    node.took(fault=GONE)

    published = node.board.tick()
    assert [one.name for one in published.snapshot.collectors] == []
    (server,) = published.snapshot.servers
    assert server.log is not None
    assert (server.log.ranks, server.log.ready, server.log.failures["cuda_oom"]) == ((), False, 1)


def test_a_log_of_the_settings_that_is_not_there_is_a_failure() -> None:
    """With its path; and what is known stays, since the file may be rotated just now."""
    node = Watched(log="/var/log/vllm.log")
    node.took(LOG)
    node.took(fault=GONE)

    published = node.board.tick()
    assert [(one.name, one.success) for one in published.snapshot.collectors] == [("log", False)]
    assert 'collector_failures_total{collector="log",reason="absent",target="chat"} 1\n' in published.metrics.decode()
    assert published.snapshot.servers[0].log is not None


def test_kills_by_the_host_are_counted_beside_what_the_log_says() -> None:
    """Also without a log; a control group made anew begins at 0 and its kills are added; what was counted stays."""
    node = Watched()
    assert "host_oom_kill" not in node.metrics()
    for group, count, total in ((1, 0, 0), (1, 2, 2), (1, 2, 2), (2, 2, 4), (2, 1, 4), (2, 2, 5)):
        node.watch.take_home(Home(container=CONTAINER, kills=HostKills(group=group, count=count)))
        assert f'server_oom_events_total{{kind="host_oom_kill",server="chat"}} {total}\n' in node.metrics()

    node.watch.take_home(None)
    assert 'server_oom_events_total{kind="host_oom_kill",server="chat"} 5\n' in node.metrics()
    out = StringIO()
    print_snapshot(node.board.tick().snapshot, explain=True, console=Console(file=out, width=200, highlight=False))
    assert "for want of memory 5 times" in out.getvalue()


@pytest.mark.parametrize("log", ["journald:vllm.service", "journald:CONTAINER_NAME=vllm", "journald:vllm"])
def test_a_log_may_be_the_journal_of_a_unit_or_a_container(log: str) -> None:
    """By its name after ``journald:``."""
    host = Host(ServerSettings(url="http://127.0.0.1:8000", name="chat", log=log))

    assert host.watch("chat").logs == (log,)


@pytest.mark.parametrize("log", ["journald:", "journald:--help", "journald:a b", "journald:MESSAGE=x"])
def test_a_journal_of_nothing_is_a_mistake_in_the_settings(log: str) -> None:
    """One sentence with the key."""
    with pytest.raises(InputError, match=r"servers\[0\]\.log: expected a unit such as journald:vllm.service"):
        parse_settings(f"servers: [{{url: 'http://127.0.0.1:1', log: '{log}'}}]".encode(), where="s")


def test_the_reader_of_a_log_outlives_the_other_ways_to_its_server() -> None:
    """It has counted; a model that is found later must not make it count again."""
    host = Host()
    host.fleet.found([found(model=None, served_name="chat")])
    (before,) = host.fleet.sources.values()

    host.fleet.found([found(served_name="chat")])

    (after,) = host.fleet.sources.values()
    assert after is not before
    assert before.log is not None
    assert after.log is before.log


def test_the_terminal_explains_container_and_log() -> None:
    """Names, sizes by rank, and what ran out."""
    node = Watched()
    node.took(LOG)
    out = StringIO()

    print_snapshot(node.board.tick().snapshot, explain=True, console=Console(file=out, width=200, highlight=False))

    text = out.getvalue()
    assert "in runtime containerd, id a1a1" in text
    assert "pod llama-0, namespace prod" in text
    assert "log: rank tp 0 pp 0: weights 1.50 GiB" in text
    assert "log: cuda_oom 1 times" in text
    assert "log: last of them, cuda_oom: requested_bytes 2,147,483,648" in text


def test_a_log_is_a_key_of_the_settings() -> None:
    """Of a server."""
    host = Host(ServerSettings(url="http://127.0.0.1:8000", name="chat", log="/var/log/vllm.log"))

    assert host.watch("chat").logs == ("/var/log/vllm.log",)
