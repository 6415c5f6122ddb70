"""Servers found among real processes, and what is believed of them."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from collectors.discovery.host import MAX_SERVERS, HostDiscovery
from collectors.errors import Unreadable
from collectors.procfs import HostProcesses
from collectors.readings import FoundServer
from collectors.registry import ENGINES
from tests.collectors.discovery.servers import free_port, installed, started
from tests.collectors.discovery.table_of import ProcFolder
from tests.collectors.test_procfs import as_nobody

COMMANDS = {name: engine.command for name, engine in ENGINES.items()}


def discovery(proc: Path = Path("/proc")) -> HostDiscovery:
    return HostDiscovery(COMMANDS, proc=proc, clock=lambda: 5.0)


def found(pid: int, subject: HostDiscovery | None = None) -> FoundServer:
    """What is found of one process; others of this host may serve something too."""
    servers = [one for one in (subject or discovery()).scan() if one.tree.processes[0].pid == pid]
    assert len(servers) == 1, servers
    return servers[0]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An installed engine beside a model directory."""
    (tmp_path / "org" / "model").mkdir(parents=True)
    return installed(tmp_path)


@pytest.mark.parametrize("way", ["console script", "interpreter", "module"])
def test_a_server_is_found_however_it_was_started(home: Path, way: str) -> None:
    """Address, flags, model, version and processes, without a word of configuration."""
    python = str(home / "bin" / "python3")
    command = {
        "console script": [str(home / "bin" / "vllm"), "serve", "org/model"],
        "interpreter": [python, "-u", "bin/vllm", "serve", "org/model"],
        "module": [python, "-m", "vllm.entrypoints.openai.api_server", "--model", "org/model"],
    }[way]
    with started(home, "-tp", "2", command=command, environment={"PYTHONPATH": str(home / "source")}) as server:
        server.tell("fork VLLM::EngineCore")
        one = found(server.pid)

        assert one.engine == "vllm"
        assert (one.listening, one.host, one.port) == (True, "127.0.0.1", server.port)
        assert one.url == f"http://127.0.0.1:{server.port}"
        assert one.arguments == {"tensor-parallel-size": 2}
        assert (one.version, one.model, one.served_name) == ("0.32.0", str(home / "org" / "model"), "org/model")
        assert [process.pid for process in one.tree.processes] == [server.pid, *server.children]
        assert one.tree.processes[1].title == "VLLM::EngineCore"
        assert (one.tree.at, one.network_pid, one.notes) == (5.0, None, ())


def test_it_is_the_process_that_others_know(home: Path) -> None:
    """Pid and start time are those of psutil, and of the table that looks from the port."""
    with started(home, "org/model") as server:
        server.tell("fork")
        one = found(server.pid)
        tree = HostProcesses().tree(server.port)

        assert tree is not None
        assert one.tree.processes == tree.processes
        assert one.started_at == psutil.Process(server.pid).create_time()


def test_a_server_that_does_not_listen_yet_is_loading(home: Path) -> None:
    """It is there with all its flags; a URL comes once it listens, and goes when it ends."""
    subject = discovery()
    with started(home, "org/model", waits=True) as server:
        loading = found(server.pid, subject)
        server.tell(f"listen {server.port}")
        serving = found(server.pid, subject)
        server.tell("close")

    assert (loading.listening, loading.url, loading.port) == (False, None, server.port)
    assert loading.model is not None
    assert (serving.listening, serving.url) == (True, f"http://127.0.0.1:{server.port}")
    assert server.pid not in [one.tree.processes[0].pid for one in subject.scan()]


def test_the_port_of_another_process_is_not_its_own(home: Path) -> None:
    """A command line that names it is not believed: no URL, and nothing connects there."""
    with socket.create_server(("127.0.0.1", 0)) as victim:
        victim.setblocking(False)
        with started(home, "org/model", waits=True, port=victim.getsockname()[1]) as server:
            one = found(server.pid)

        assert (one.listening, one.url, one.port) == (False, None, server.port)
        assert one.notes == (f"another process listens on port {server.port}, its own: nothing is read from there",)
        with pytest.raises(BlockingIOError):
            victim.accept()


def test_a_port_that_its_command_line_does_not_name(home: Path) -> None:
    """A socket of its own that it does not announce is for something else."""
    with started(home, "org/model", waits=True) as server:
        server.tell(f"listen {free_port()}")
        one = found(server.pid)

    assert (one.listening, one.url, one.port) == (False, None, server.port)


def test_a_port_that_another_process_shares(home: Path) -> None:
    """With two sockets at one address the kernel chooses who answers: nothing is read."""
    with socket.socket() as rival:
        rival.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        rival.bind(("127.0.0.1", 0))
        rival.listen()
        port = rival.getsockname()[1]
        with started(home, "org/model", environment={"PROGRAM_REUSE": "1"}, port=port) as server:
            one = found(server.pid)

    assert (one.listening, one.url) == (True, None)
    assert one.notes == (
        f"another process listens on port {port} too, and the kernel decides who answers: nothing is read from there",
    )


@pytest.mark.parametrize(
    ("host", "url_host"), [("0.0.0.0", "127.0.0.1"), ("127.0.0.9", "127.0.0.9"), ("::", "[::1]"), ("::1", "[::1]")]
)
def test_addresses(home: Path, host: str, url_host: str) -> None:
    """All addresses are reached by the loopback, a specific one by itself."""
    if ":" in host and not Path("/proc/net/if_inet6").read_text():
        pytest.skip("IPv6 is not available")
    with started(home, "org/model", "--host", host) as server:
        assert found(server.pid).url == f"http://{url_host}:{server.port}"


def test_a_server_with_tls(home: Path) -> None:
    """Its flags say so."""
    with started(home, "org/model", "--ssl-certfile", "x.pem") as server:
        assert found(server.pid).url == f"https://127.0.0.1:{server.port}"


def test_copies_of_its_command_line_are_part_of_it(home: Path) -> None:
    """A forked child shows the command line of its parent until it takes a title."""
    with started(home, "org/model") as server:
        server.tell("fork")
        server.tell("fork VLLM::Worker_TP0")

        assert [one.pid for one in found(server.pid).tree.processes] == [server.pid, *server.children]


def test_api_servers_share_the_socket_of_their_parent(home: Path) -> None:
    """One server, whichever of its processes holds the socket."""
    with started(home, "org/model", "--api-server-count", "2", waits=True) as server:
        server.tell("sharing")
        one = found(server.pid)

        assert one.url == f"http://127.0.0.1:{server.port}"
        assert [process.title for process in one.tree.processes[1:]] == ["VLLM::APIServer_0", "VLLM::APIServer_1"]


def test_a_title_taken_later_leaves_what_was_known(home: Path) -> None:
    """The process is the same: its flags were read before it overwrote them."""
    subject = discovery()
    with started(home, "org/model", "-tp", "2") as server:
        before = found(server.pid, subject)
        server.tell("title VLLM::APIServer")
        after = found(server.pid, subject)
        server.tell("title mine")
        later = found(server.pid, subject)

    assert after.tree.processes[0].title == "VLLM::APIServer"
    assert later.tree.processes[0].title == "mine"
    assert (after.arguments, after.url, after.model) == (before.arguments, before.url, before.model)
    assert later.arguments == before.arguments


def test_a_title_and_nothing_else(home: Path) -> None:
    """Where its parent has ended no flags are known; its only socket is still its own."""
    with started(home, "org/model", "-tp", "2", waits=True) as server:
        server.tell(f"server VLLM::APIServer_0 {server.port}")
        assert found(server.pid).arguments == {"tensor-parallel-size": 2}
        server.tell("leave")
        server.process.wait()
        one = found(server.children[0])

    assert (one.url, one.arguments, one.model) == (f"http://127.0.0.1:{server.port}", {}, None)
    assert one.notes == (
        "its flags are not known: it has overwritten its command line, and no process above it shows them",
    )


def test_a_supervisor_has_a_server_for_each_rank(home: Path) -> None:
    """Each rank has its own port, and the flags of the supervisor; that one serves nothing itself."""
    flags = ("-dpm", "-dp", "4", "-dpl", "2", "-dpr", "2", "-tp", "1")
    with started(home, "org/model", *flags, waits=True, port=two_free_ports()) as server:
        assert found(server.pid).listening is False
        server.tell(f"server VLLM::APIServer_DP2 {server.port}")
        server.tell(f"server VLLM::APIServer_DP3 {server.port + 1}")
        pids = [server.pid, *server.children]
        servers = {pid: one for one in discovery().scan() if (pid := one.tree.processes[0].pid) in pids}

    assert {pid: one.url for pid, one in servers.items()} == {
        server.children[0]: f"http://127.0.0.1:{server.port}",
        server.children[1]: f"http://127.0.0.1:{server.port + 1}",
    }
    assert {one.arguments["data-parallel-size"] for one in servers.values()} == {4}


def two_free_ports() -> int:
    """The first of two neighbours."""
    while True:
        first = free_port()
        with socket.socket() as second, contextlib.suppress(OSError):
            second.bind(("127.0.0.1", first + 1))
            return first


def test_a_program_that_becomes_a_server(home: Path) -> None:
    """A start script replaces itself: the same process is a server from then on."""
    subject = discovery()
    script = ["bash", "-c", 'read -r line; exec "$@"', "bash", str(home / "bin" / "vllm"), "serve", "org/model"]
    waiting = {"PATH": os.environ["PATH"], "PROGRAM_WAITS": "1"}
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=waiting, text=True) as process:
        assert process.stdin is not None
        assert process.pid not in [one.tree.processes[0].pid for one in subject.scan()]
        process.stdin.write("go\n")
        process.stdin.flush()
        eventually(lambda: process.pid in [one.tree.processes[0].pid for one in subject.scan()])

        assert found(process.pid, subject).port == 8000
        process.kill()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_settings_file_of_the_server(home: Path) -> None:
    """Read from where the server found it; the command line wins."""
    (home / "settings.yaml").write_text("model: org/model\ntensor-parallel-size: 4\nblock-size: 16\n")
    with started(home, "--config", "settings.yaml", "-tp", "2", port=(port := free_port())) as server:
        one = found(server.pid)

    assert one.arguments == {"tensor-parallel-size": 2, "block-size": 16}
    assert (one.model, one.port) == (str(home / "org" / "model"), port)


def test_secrets_on_its_command_line(home: Path) -> None:
    """No key is taken from a process, and none is shown."""
    keys = ("--api-key", "sesame-1", "sesame-2", "--hf-token", "sesame")
    with started(home, "org/model", *keys, environment={"VLLM_API_KEY": "sesame"}) as server:
        server.tell("fork")
        one = found(server.pid)

    assert "sesame" not in repr(one)
    assert one.url is not None


def test_a_model_that_appears_later_is_found_then(home: Path) -> None:
    """It may still be on its way here."""
    subject = discovery()
    with started(home, "models/late") as server:
        before = found(server.pid, subject)
        (home / "models" / "late").mkdir(parents=True)
        after = found(server.pid, subject)

    assert before.model is None
    assert before.notes != ()
    assert (after.model, after.notes) == (str(home / "models" / "late"), ())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up privileges")
def test_a_process_we_may_not_look_into(home: Path) -> None:
    """It is found by its command line; which privilege is missing, and for what, is said."""
    with started(home, "org/model", "-tp", "2") as server:
        text = as_nobody(lambda: repr(found(server.pid)))

    assert "listening=False" in text
    assert "url=None" in text
    assert "'tensor-parallel-size': 2" in text
    assert "on which socket it listens is hidden from us, so its metrics are not read: run vramscope as root" in text
    assert "where its model org/model lies is hidden from us: run vramscope as root" in text


def test_no_process_table(tmp_path: Path) -> None:
    """That is said in one sentence."""
    with pytest.raises(Unreadable, match=r"none: can't list processes: No such file or directory; is it mounted\?"):
        discovery(tmp_path / "none").scan()


class TestByPlainFiles:
    """What would take luck to catch among real processes."""

    @pytest.fixture
    def proc(self, tmp_path: Path) -> ProcFolder:
        return ProcFolder(tmp_path / "proc")

    def serve(self, proc: ProcFolder, pid: int, *, port: int = 8000, **shape: object) -> None:
        proc.add(pid, f"vllm\0serve\0m\0--port\0{port}\0".encode(), **shape)  # type: ignore[arg-type] # keywords of it

    def test_a_pid_that_is_used_again(self, proc: ProcFolder) -> None:
        """Another start time is another server, with its own flags."""
        subject = discovery(proc.folder)
        self.serve(proc, 7, port=8000, started=1000)
        [first] = subject.scan()
        self.serve(proc, 7, port=9000, started=2000)
        [second] = subject.scan()
        proc.add(7, b"bash\0", started=3000)

        assert (first.port, second.port) == (8000, 9000)
        assert second.started_at == first.started_at + 10
        assert subject.scan() == ()

    def test_a_pid_that_is_used_again_inside_a_tree(self, proc: ProcFolder) -> None:
        """A member whose pid went to a stranger is none any more, even before the table is looked at again."""
        subject = discovery(proc.folder)
        self.serve(proc, 7)
        proc.add(8, b"VLLM::EngineCore\0", parent=7)
        for _ in range(20):
            [one] = subject.scan()
            assert [process.pid for process in one.tree.processes] == [7, 8]
        proc.add(8, b"stranger\0", parent=1, started=5000)
        [one] = subject.scan()

        assert [process.pid for process in one.tree.processes] == [7]

    def test_processes_that_are_each_others_parents(self, proc: ProcFolder) -> None:
        """A table read while it changes may show a circle."""
        self.serve(proc, 7, parent=8)
        self.serve(proc, 8, parent=7)

        assert len(discovery(proc.folder).scan()) in (0, 1, 2)

    def test_a_server_that_starts_another(self, proc: ProcFolder) -> None:
        """Other flags, another server; each has its own processes."""
        self.serve(proc, 7, port=8000, started=1)
        self.serve(proc, 8, port=8001, started=2, parent=7)
        proc.add(9, b"VLLM::EngineCore\0", parent=8, started=3)
        first, second = discovery(proc.folder).scan()

        assert [[one.pid for one in server.tree.processes] for server in (first, second)] == [[7], [8, 9]]

    def test_more_servers_than_any_host_has(self, proc: ProcFolder) -> None:
        """Somebody pretends: the oldest count, and the work stays bounded."""
        for pid in range(1, MAX_SERVERS + 20):
            self.serve(proc, pid, parent=0, started=pid)
        servers = discovery(proc.folder).scan()

        assert [one.tree.processes[0].pid for one in servers] == list(range(1, MAX_SERVERS + 1))

    def test_several_ports_and_no_flags(self, proc: ProcFolder) -> None:
        """Which of them has the metrics is not guessed."""
        proc.add(7, b"VLLM::APIServer_0\0")
        proc.listening(7, ("0100007F", 8000, 1), ("0100007F", 29500, 2))
        proc.holds(7, 1, 2)
        [one] = discovery(proc.folder).scan()

        assert (one.url, one.listening) == (None, False)
        assert "it listens on the ports 8000, 29500; which of them has its metrics is not known" in one.notes

    def test_orphans_of_one_server(self, proc: ProcFolder) -> None:
        """API servers without their parent share a socket: one server, not several."""
        for pid in (7, 8):
            proc.add(pid, f"VLLM::APIServer_{pid}\0".encode(), started=pid)
            proc.listening(pid, ("0100007F", 8000, 1))
            proc.holds(pid, 1)
        [one] = discovery(proc.folder).scan()

        assert one.tree.processes[0].pid == 7

    def test_a_socket_of_one_interface(self, proc: ProcFolder) -> None:
        """A link-local address has no URL without its interface."""
        self.serve(proc, 7)
        proc.listening(7, ("000080FE000000000000000001000000", 8000, 1))
        proc.holds(7, 1)
        [one] = discovery(proc.folder).scan()

        assert (one.listening, one.url) == (True, None)
        assert one.notes[0] == "it listens on the link-local address fe80::1 alone: configure its URL"

    def test_a_server_without_an_endpoint(self, proc: ProcFolder) -> None:
        """No port, no URL, and why."""
        proc.add(7, b"vllm\0serve\0m\0--headless\0")
        [one] = discovery(proc.folder).scan()

        assert (one.port, one.url) == (None, None)
        assert one.notes[0].startswith("it runs with --headless")

    def test_another_network_that_we_may_not_enter(self, proc: ProcFolder) -> None:
        """It listens, but from here nobody can ask it."""
        self.serve(proc, 7, network="container")
        proc.listening(7, ("00000000", 8000, 1))
        proc.holds(7, 1)
        asked: list[int] = []

        def may_enter(pid: int) -> bool:
            asked.append(pid)
            return False

        [one] = HostDiscovery(COMMANDS, proc=proc.folder, clock=lambda: 0.0, may_enter=may_enter).scan()

        assert (one.listening, one.url, one.network_pid, asked) == (True, None, 7, [7])
        assert one.notes[0] == (
            "it is in a network namespace of its own: run vramscope with CAP_SYS_ADMIN to read its metrics there, or"
            " configure a URL that reaches it"
        )

    def test_two_containers_with_the_same_address(self, proc: ProcFolder) -> None:
        """Each is reached through its own network."""
        for pid in (7, 8):
            self.serve(proc, pid, network=f"container-{pid}")
            proc.listening(pid, ("00000000", 8000, pid))
            proc.holds(pid, pid)
        subject = HostDiscovery(COMMANDS, proc=proc.folder, clock=lambda: 0.0, may_enter=lambda _: True)

        assert [(one.url, one.network_pid) for one in subject.scan()] == [
            ("http://127.0.0.1:8000", 7),
            ("http://127.0.0.1:8000", 8),
        ]


def test_any_process_has_a_name_once_the_table_was_read() -> None:
    """That of the system, of ourselves too; who is not there has none."""
    discovery = HostDiscovery({})
    before = discovery.name(os.getpid())
    discovery.scan()

    assert before == ""
    assert discovery.name(os.getpid()) == Path("/proc/self/comm").read_text().rstrip("\n")
    assert discovery.name(2**30) == ""
