"""The processes behind a port, on the real process table, and the same from a simulated node."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.errors import Refused, Unreadable
from collectors.procfs import HostProcesses, ProcessTable, redact
from collectors.readings import ProcessTree, ServerProcess
from collectors.simulated.processes import SimulatedProcesses
from collectors.simulated.state import HostProcess, NodeState, write_state

# Listens on the port given, starts a child with a grandchild, says so; all end with its standard input.
SERVER = """
import socket, subprocess, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
grandchild = "[sys.executable, '-c', 'import sys; sys.stdin.read()', 'grandchild']"
child = f"import subprocess, sys; subprocess.run({grandchild})"
command = [sys.executable, "-c", child, "child", "--api-key", "ses" + "ame"]
shared = [listener.fileno()] if sys.argv[2] == "shared" else []
with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=shared):
    print(listener.getsockname()[1], flush=True)
    for line in sys.stdin:
        listener.close()
        print("closed", flush=True)
"""
NOBODY = 65534


@contextlib.contextmanager
def serving(port: int = 0, *, socket_is: str = "own") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server process with descendants; any line to it makes it stop listening, its end ends all."""
    command = [sys.executable, "-c", SERVER, str(port), socket_is]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.communicate(timeout=10)


def eventually(read: Callable[[], ProcessTree | None], count: int) -> ProcessTree:
    """The tree once it has that many processes: children take a moment to start."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        tree = read()
        if tree is not None and len(tree.processes) == count:
            return tree
        time.sleep(0.02)
    raise AssertionError(f"expected {count} processes, got {tree}")


def as_nobody(act: Callable[[], str]) -> str:
    """What ``act`` gives in a forked process that has given up all privileges."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: the child only reads /proc
        pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, act().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        result = file.read()
    os.waitpid(pid, 0)
    return result


def test_the_listener_comes_first_with_all_its_descendants() -> None:
    """Pid, start time and title of listener, child and grandchild."""
    with serving() as (process, port):
        tree = eventually(lambda: HostProcesses(clock=lambda: 5.0).tree(port), 3)

    assert tree.at == 5.0
    assert tree.processes[0].pid == process.pid
    assert tree.processes[0].title.startswith(f"{sys.executable} -c import socket")
    assert abs(tree.processes[0].started_at - time.time()) < 60
    assert sorted(one.title.split()[-1] for one in tree.processes[1:]) == ["***", "grandchild"]


def test_of_several_holders_of_the_socket_the_oldest_is_the_listener() -> None:
    """API servers share the socket that their parent opened, and engines are children of the parent."""
    with serving(socket_is="shared") as (process, port):
        tree = eventually(lambda: HostProcesses().tree(port), 3)

    assert tree.processes[0].pid == process.pid


def test_secrets_on_a_command_line_are_masked_when_it_is_read() -> None:
    """No title holds the key that a process was started with."""
    with serving() as (_, port):
        tree = eventually(lambda: HostProcesses().tree(port), 3)

    assert "sesame" not in repr(tree)


def test_a_port_that_nobody_listens_on() -> None:
    """None, not an error; a bound port without a listener is none either."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert HostProcesses().tree(bound.getsockname()[1]) is None


def test_a_known_listener_is_kept_while_it_lives() -> None:
    """A server that closes its port while it restarts inside still has its processes."""
    table = HostProcesses()
    with serving() as (process, port):
        eventually(lambda: table.tree(port), 3)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("close\n")
        process.stdin.flush()
        assert process.stdout.readline() == "closed\n"

        assert len(eventually(lambda: table.tree(port), 3).processes) == 3
        assert HostProcesses().tree(port) is None


def test_ports_asked_for_in_a_row_are_answered_from_one_reading() -> None:
    """A process that ended within half a second of it is still shown: one reading serves all servers of a node."""
    now = 0.0
    table = HostProcesses(clock=lambda: now)
    with serving() as (_, port):
        eventually(lambda: HostProcesses().tree(port), 3)
        assert table.tree(port) is not None
    now = 0.4
    assert table.tree(port) is not None
    now = 0.6
    assert table.tree(port) is None


def test_another_process_on_the_port_is_found_after_the_first_ended() -> None:
    """The end of the known listener makes the sockets be looked at again, half a second later at most."""
    clock = iter(range(1_000_000))
    table = HostProcesses(clock=lambda: next(clock))
    with serving() as (first, port):
        eventually(lambda: table.tree(port), 3)
    assert table.tree(port) is None
    with serving(port) as (second, _):
        tree = eventually(lambda: table.tree(port), 3)

    assert first.pid != second.pid
    assert tree.processes[0].pid == second.pid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up privileges")
def test_a_listener_of_another_user_is_a_missing_privilege() -> None:
    """Somebody listens, but we may not see who: that is said, not guessed."""

    def read() -> str:
        try:
            return str(HostProcesses().tree(port))
        except Refused as exc:
            return f"{exc.reason}: {exc}"

    with serving() as (_, port):
        message = as_nobody(read)

    assert message == (
        f"permission: which process listens on port {port} is hidden from us; run vramscope as root or with"
        " CAP_SYS_PTRACE, in a container also with the host's pid namespace"
    )


@pytest.mark.parametrize(
    ("argv", "title"),
    [
        (["vllm", "serve", "m", "--api-key", "k1", "k2", "--port", "1"], "vllm serve m --api-key *** *** --port 1"),
        (["vllm", "--api-key=k1"], "vllm --api-key=***"),
        (["x", "--hf-token", "abc", "--tokenizer", "t"], "x --hf-token *** --tokenizer t"),
        (["x", "--max-num-batched-tokens", "8192"], "x --max-num-batched-tokens 8192"),
        (["x", "--tokenizer-mode", "auto", "--ssl-keyfile", "/a"], "x --tokenizer-mode auto --ssl-keyfile /a"),
        (["x", "--admin-password", "a b"], "x --admin-password *** ***"),
        (["x", "--password=a b", "--n", "1"], "x --password=*** *** --n 1"),
        (["env", "HF_TOKEN=abc", "vllm", "serve"], "env HF_TOKEN=*** vllm serve"),
        (["sh", "-c", "OPENAI_API_KEY=abc vllm serve m"], "sh -c OPENAI_API_KEY=*** vllm serve m"),
        (["x", "clientSecret=abc", "a.token=b", "mode=c"], "x clientSecret=*** a.token=*** mode=c"),
        (["x", "--cfg", '{"api_key": "abc", "size": "1"}'], 'x --cfg {"api_key": "***", "size": "1"}'),
        (["x", "http://user:pw@host/p"], "x http://***@host/p"),
        (["x", "hf_abcdefghijkl", "sk-abcdefghijkl"], "x *** ***"),
        (["x", "--header", "Authorization: Bearer abc"], "x --header Authorization: Bearer ***"),
        (["VLLM::EngineCore_DP0", "", ""], "VLLM::EngineCore_DP0"),
        ([], ""),
    ],
)
def test_redaction(argv: list[str], title: str) -> None:
    """Values behind the name of a secret are masked; arguments that the budget needs are not."""
    assert redact(argv) == title


def test_a_title_is_bounded() -> None:
    """A command line may be megabytes long."""
    assert len(redact(["x"] * 1_000_000)) == 4096


def test_a_simulated_node_has_the_same_answers(tmp_path: Path) -> None:
    """Listener first, then children in the order of the tree; None for another port."""
    state = tmp_path / "state"
    write_state(
        state,
        NodeState(
            host_processes=(
                HostProcess(pid=1, started_at=10.0, port=8000),
                HostProcess(pid=4, started_at=12.0, parent=3, title="VLLM::Worker_TP0"),
                HostProcess(pid=3, started_at=11.0, parent=1, title="VLLM::EngineCore"),
                HostProcess(pid=9, started_at=11.0, parent=8, title="a stranger's child"),
            )
        ),
    )
    table: ProcessTable = SimulatedProcesses(state, clock=lambda: 5.0)

    assert table.tree(8001) is None
    assert table.tree(8000) == ProcessTree(
        at=5.0,
        processes=(
            ServerProcess(pid=1, started_at=10.0, title=""),
            ServerProcess(pid=3, started_at=11.0, title="VLLM::EngineCore"),
            ServerProcess(pid=4, started_at=12.0, title="VLLM::Worker_TP0"),
        ),
    )


@pytest.mark.parametrize("content", [None, "listener x y z\n", "listener 1\n"])
def test_a_simulated_node_without_a_usable_state_file(tmp_path: Path, content: str | None) -> None:
    """Missing or malformed, it is one sentence."""
    state = tmp_path / "state"
    if content is not None:
        state.write_text(content, encoding="utf-8")

    with pytest.raises(
        Unreadable, match=r"state: can't read the simulated node's state: .*; is the simulation running\?"
    ):
        SimulatedProcesses(state).tree(8000)
