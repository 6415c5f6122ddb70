"""The fleet: what is watched when settings and the process table say so, and how long."""

from pathlib import Path

import pytest

from agent.errors import InputError
from agent.fleet import FORGET_SECONDS, Fleet, ServerSpec
from agent.settings import ServerSettings
from agent.watch import ServerWatch
from collectors.errors import Unreadable
from collectors.http_text import Endpoint
from collectors.readings import FoundServer, ProcessTree, ServerProcess
from collectors.registry import engine_of


class Host:
    """A fleet on a host whose clock and processes the test moves."""

    def __init__(self, *servers: ServerSettings, alone: bool = False) -> None:
        self.now = 1000.0
        self.opened: list[ServerSpec] = []
        self.problem: InputError | None = None
        self.fleet = Fleet(
            servers,
            open_endpoint=self._open,
            local_hosts=frozenset({"localhost"}),
            clock=lambda: self.now,
            alone=alone,
        )

    def _open(self, spec: ServerSpec) -> Endpoint:
        if self.problem is not None:
            raise self.problem
        self.opened.append(spec)
        return Endpoint(spec.url, paths=engine_of(spec.engine).paths, deadline_seconds=1.0)

    def watch(self, name: str) -> ServerWatch:
        return next(watch for watch in self.fleet.watches if watch.facts.name == name)

    @property
    def names(self) -> list[str]:
        return sorted(watch.facts.name for watch in self.fleet.watches)


def found(pid: int = 7, port: int = 8000, **fields: object) -> FoundServer:
    listening = bool(fields.get("listening", True))
    known = {
        "engine": "vllm",
        "tree": ProcessTree(at=0.0, processes=(ServerProcess(pid=pid, started_at=1.0, title="vllm serve"),)),
        "started_at": 1.0,
        "listening": listening,
        "host": "127.0.0.1",
        "port": port,
        "url": f"http://127.0.0.1:{port}" if listening else None,
        "arguments": {"tensor-parallel-size": 2, "max-model-len": 4096, "some-new-flag": "x"},
        "version": "0.32.0",
        "model": "/models/llama-8b",
    }
    return FoundServer(**(known | fields))  # type: ignore[arg-type] # fields are those of the record


def test_a_found_server_is_named_after_model_and_port() -> None:
    """And read with the arguments of its command line; a flag that means nothing here is no error."""
    host = Host()

    host.fleet.found([found()])

    assert host.names == ["llama-8b:8000"]
    facts = host.watch("llama-8b:8000").facts
    assert facts.command is not None
    assert (facts.command.tp, facts.command.max_model_len, facts.configured) == (2, 4096, False)
    assert host.opened[0].settings is None


def test_flags_of_an_engine_without_a_planner_count_too() -> None:
    """Those that say which ranks there are."""
    host = Host()
    flags = {"tp-size": 4, "pp-size": 2, "kv-cache-dtype": "fp8"}

    host.fleet.found([found(engine="tensorrt_llm", arguments=flags)])

    command = host.watch("llama-8b:8000").facts.command
    assert command is not None
    assert (command.tp, command.pp) == (4, 2)
    assert host.fleet.sources["llama-8b:8000"].model is not None


def test_what_an_engine_takes_for_its_model(tmp_path: Path) -> None:
    """Triton only an engine that was built, and no repository of several; NIM's is not known."""
    (tmp_path / "config.json").write_text("{}")
    host = Host(
        ServerSettings(url="http://localhost:8002", engine="triton", name="a", model=str(tmp_path)),
        ServerSettings(url="http://localhost:8003", engine="nim", name="b", model=str(tmp_path)),
    )

    model = host.fleet.sources["a"].model
    assert model is not None
    with pytest.raises(Unreadable, match="expected the folder of an engine"):
        model()
    assert host.fleet.sources["b"].model is None


def test_a_server_that_does_not_listen_yet_is_loading_and_never_asked() -> None:
    """Its processes are known, so its memory is its own; its port is not touched before it is its own socket."""
    host = Host()

    host.fleet.found([found(listening=False)])

    watch = host.watch("llama-8b:8000")
    assert (watch.may_ask, watch.state) == (False, "loading")
    assert host.fleet.sources["llama-8b:8000"].model is not None

    host.fleet.found([found()])
    assert host.watch("llama-8b:8000") is watch
    assert (watch.may_ask, host.opened[0].url) == (True, "http://127.0.0.1:8000")
    assert len(host.opened) == 1


def test_a_configured_server_takes_what_was_found_on_its_port() -> None:
    """One watch: its name, arguments and model as set, the rest as found."""
    setting = ServerSettings(url="http://localhost:8000", name="chat", arguments={"tensor-parallel-size": 4})
    host = Host(setting)

    host.fleet.found([found()])

    assert host.names == ["chat"]
    watch = host.watch("chat")
    assert watch.tree is not None
    assert (watch.facts.given.tp, watch.facts.command.max_model_len) == (4, 4096)  # type: ignore[union-attr] # it is there
    assert host.fleet.sources["chat"].model is not None


def test_a_found_server_in_another_network_is_not_the_configured_one() -> None:
    """The same port number elsewhere is another port."""
    host = Host(ServerSettings(url="http://127.0.0.1:8000", name="chat"))

    host.fleet.found([found(network_pid=7)])

    assert host.names == ["chat", "llama-8b:8000"]
    assert host.watch("chat").tree is None
    assert host.opened[-1].network_pid == 7


def test_a_remote_server_is_never_matched_by_port() -> None:
    """Its port says nothing about processes here."""
    host = Host(ServerSettings(url="http://gpu-2:8000", name="far"))

    host.fleet.found([found()])

    assert host.names == ["far", "llama-8b:8000"]
    assert not host.watch("far").facts.on_this_host


def test_a_server_that_went_is_down_and_forgotten_after_ten_minutes() -> None:
    """It stays long enough to be seen, and not for ever; a configured one stays."""
    host = Host(ServerSettings(url="http://localhost:9000", name="chat"))
    host.fleet.found([found()])

    host.now += 5
    host.fleet.found([])
    assert host.watch("llama-8b:8000").state == "down"
    assert not host.watch("llama-8b:8000").may_ask

    host.now += FORGET_SECONDS
    host.fleet.found([])
    assert host.names == ["chat"]
    assert set(host.fleet.sources) == {"chat"}


def test_a_restart_keeps_its_watch() -> None:
    """New pids, same model and port: what is remembered stays, so that the restart can be seen."""
    host = Host()
    host.fleet.found([found(pid=7)])
    watch = host.watch("llama-8b:8000")

    host.fleet.found([])
    host.fleet.found([found(pid=99)])

    assert host.watch("llama-8b:8000") is watch
    assert watch.tree is not None
    assert watch.tree.processes[0].pid == 99
    assert len(host.opened) == 1


def test_a_restart_between_two_looks_keeps_its_name() -> None:
    """Killed and started again at once: the name goes on, nothing stays behind as down, others keep theirs."""
    host = Host()
    host.fleet.found([found(pid=7, network_pid=7), found(pid=9, network_pid=9)])
    first, second = host.watch("llama-8b:8000"), host.watch("llama-8b:8000-2")

    host.fleet.found([found(pid=99, network_pid=99), found(pid=9, network_pid=9)])

    assert host.names == ["llama-8b:8000", "llama-8b:8000-2"]
    assert (host.watch("llama-8b:8000"), host.watch("llama-8b:8000-2")) == (first, second)
    assert [watch.tree.processes[0].pid for watch in (first, second) if watch.tree] == [99, 9]


def test_two_servers_of_the_same_name_are_told_apart() -> None:
    """Two containers with the same model on the same port of their own networks."""
    host = Host()
    pair = [found(pid=7, network_pid=7), found(pid=9, network_pid=9)]

    host.fleet.found(pair)
    host.fleet.found(list(reversed(pair)))

    assert host.names == ["llama-8b:8000", "llama-8b:8000-2"]
    assert {watch.tree.processes[0].pid for watch in host.fleet.watches if watch.tree} == {7, 9}


def test_new_settings_keep_what_stays_as_it_was() -> None:
    """A reload that adds a server does not forget the others; one that changes a model reads that anew."""
    chat = ServerSettings(url="http://localhost:8000", name="chat", model="/models/a")
    host = Host(chat)
    watch, source = host.watch("chat"), host.fleet.sources["chat"]

    host.fleet.configure([chat, ServerSettings(url="http://localhost:8001", name="more")])
    assert host.names == ["chat", "more"]
    assert (host.watch("chat"), host.fleet.sources["chat"]) == (watch, source)

    host.fleet.configure([ServerSettings(url="http://localhost:8000", name="chat", model="/models/b")])
    assert host.names == ["chat"]
    assert host.watch("chat") is watch
    assert host.fleet.sources["chat"] is not source


@pytest.mark.parametrize("flags", [{"max-model-len": "auto"}, {"tensor-parallel-size": -1}, {"dtype": ["x"]}])
def test_flags_out_of_range_are_left_out(flags: dict[str, object]) -> None:
    """A command line is somebody else's text: it can't break the agent."""
    host = Host()

    host.fleet.found([found(arguments=flags)])

    assert host.names == ["llama-8b:8000"]


def test_servers_that_can_not_be_read_change_nothing() -> None:
    """Whatever is wrong with one of them: those before stay as they were, and the good ones beside it are not taken."""
    chat = ServerSettings(url="http://localhost:8000", name="chat")
    host = Host(chat)
    host.fleet.found([found()])
    source = host.fleet.sources["chat"]

    with pytest.raises(ValueError, match="can't be parsed"):
        host.fleet.configure([ServerSettings(url="http://h:1", name="new"), ServerSettings(url="http://é☃.x")])

    assert (host.names, host.fleet.sources) == (["chat"], {"chat": source})
    assert host.fleet.local_ports == {"chat": 8000}
    assert host.watch("chat").tree is not None


UNNAMED = ServerSettings(url="http://localhost:8000", arguments={"mem-fraction-static": 0.8})


def test_an_engine_that_settings_leave_out_is_that_of_the_process_behind_the_port() -> None:
    """Under the name that it had before; with what is known of the process; also when that has ended."""
    host = Host(UNNAMED, ServerSettings(url="http://localhost:9000", engine="vllm"))
    before = host.watch("server:8000").facts

    host.fleet.found([found(engine="sglang", arguments={"tp-size": 2})])
    host.fleet.found([])

    facts = host.watch("server:8000").facts
    assert (before.engine, facts.engine) == (None, "sglang")
    assert [watch.facts.name for watch in host.fleet.watches] == ["server:8000", "vllm:9000"]
    assert (facts.given.engine, facts.given.mem_fraction_static) == ("sglang", 0.8)
    assert "its engine is not known yet; set engine: of this server" in before.notes[0]
    assert facts.notes == ()


def test_an_engine_that_settings_leave_out_is_what_the_server_says() -> None:
    """It is read as that; flags that this engine does not have are not used, and that is said."""
    host = Host(UNNAMED, ServerSettings(url="http://localhost:9000", engine="vllm"))

    host.fleet.named(host.watch("server:8000"), "tgi")

    facts = host.watch("server:8000").facts
    assert facts.engine == "tgi"
    assert [watch.facts.name for watch in host.fleet.watches] == ["server:8000", "vllm:9000"]
    assert host.opened[-1].engine == "tgi"
    (note,) = facts.notes
    assert note.startswith("not used: unknown argument 'mem-fraction-static'")


def test_an_engine_that_is_given_is_used_as_given() -> None:
    """Whatever is found on its port."""
    host = Host(ServerSettings(url="http://localhost:8000", engine="vllm"))

    host.fleet.found([found(engine="sglang")])

    assert host.watch("vllm:8000").facts.engine == "vllm"


def test_a_fleet_alone_watches_only_what_settings_name() -> None:
    """What is found completes that."""
    host = Host(ServerSettings(url="http://localhost:8000"), alone=True)

    host.fleet.found([found(), found(pid=8, port=8001)])

    assert host.names == ["server:8000"]
    assert host.watch("server:8000").facts.engine == "vllm"
    assert host.watch("server:8000").tree is not None


def test_a_key_that_can_not_be_read_any_more_changes_nothing() -> None:
    """What is found, or what the server says, would be read with it; the agent goes on as it was."""
    host = Host(ServerSettings(url="http://localhost:8000", name="chat"))
    source = host.fleet.sources["chat"]
    host.problem = InputError("servers[0].api_key_file: can't read it")

    host.fleet.found([found()])
    with pytest.raises(Unreadable, match="api_key_file: can't read it"):
        host.fleet.named(host.watch("chat"), "vllm")
    blind = host.watch("chat").facts.engine
    host.problem = None
    host.fleet.found([found()])

    assert (blind, host.watch("chat").facts.engine) == (None, "vllm")
    assert host.fleet.sources["chat"] is not source
