"""Real processes that look and behave like ``vllm serve``: command line, socket, children, title."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PROGRAM = '''
"""Listens at --host and --port unless told to wait, answers every request alike, and does what its input says."""
import ctypes, fcntl, os, socket, struct, subprocess, sys, threading

BODY = b"vllm:num_requests_running 0\\n"
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(BODY), BODY)

def flag(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default

def serve(listener):
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(ANSWER)

def listen(port=None):
    host = flag("--host", "127.0.0.1")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if "PROGRAM_REUSE" in os.environ:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host, int(port or flag("--port", "8000"))))
    listener.listen()
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    return listener

def loopback_up():
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP

def title(text):
    """Overwrite the command line, as setproctitle does."""
    fields = open("/proc/self/stat", "rb").read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = text.encode()[: end - start - 1]
    ctypes.memmove(start, text + bytes(end - start - len(text)), end - start)
    ctypes.CDLL(None).prctl(15, text[:15], 0, 0, 0)  # PR_SET_NAME

def child(name, *work):
    """A forked child: its command line is a copy of ours until it takes a title."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        if name:
            title(name)
        for act in work:
            act()
        os.write(writing, b"x")
        os.close(writing)
        threading.Event().wait()
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    return pid

children = []
if "PROGRAM_LOOPBACK" in os.environ:
    loopback_up()
listener = None if "PROGRAM_WAITS" in os.environ else listen()
print("ready", flush=True)
for line in sys.stdin:
    word, _, rest = line.strip().partition(" ")
    if word == "listen":
        listener = listen(rest)
    elif word == "close":
        listener.close()
    elif word == "title":
        title(rest)
    elif word == "fork":
        children.append(child(rest))
    elif word == "server":  # a child with a title and a port of its own
        name, port = rest.split()
        children.append(child(name, lambda: listen(port)))
    elif word == "sharing":  # children that serve at the socket of their parent
        listener = socket.create_server((flag("--host", "127.0.0.1"), int(flag("--port", "8000"))))
        children += [child(f"VLLM::APIServer_{n}") for n in range(2)]
    elif word == "leave":
        print(*children, flush=True)
        os._exit(0)
    print(*children, "done", flush=True)
for pid in children:
    os.kill(pid, 9)
'''


class Server:
    """One started process; ``tell`` gives it an order and waits until it has obeyed."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.process = process
        self.pid = process.pid
        self.port = port
        self.children: list[int] = []

    def tell(self, order: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()
        self.children = [int(word) for word in self.process.stdout.readline().split() if word != "done"]


def installed(folder: Path) -> Path:
    """An environment with an interpreter, the console script, the module and the metadata of a version."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python3").symlink_to(sys.executable)
    script = folder / "bin" / "vllm"
    script.write_text(f"#!{folder}/bin/python3\n{textwrap.dedent(PROGRAM)}")
    script.chmod(0o755)
    module = folder / "source" / "vllm" / "entrypoints" / "openai" / "api_server.py"
    module.parent.mkdir(parents=True)
    shutil.copy(script, module)
    (folder / "lib" / "python3.11" / "site-packages" / "vllm-0.32.0.dist-info").mkdir(parents=True)
    return folder


@contextlib.contextmanager
def started(
    folder: Path,
    *flags: str,
    command: Sequence[str] = (),
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    waits: bool = False,
    port: int | None = None,
) -> Iterator[Server]:
    """``vllm serve FLAGS --port PORT`` in ``folder``; it ends with the block, as do the children it reports."""
    environment = {"PATH": os.environ["PATH"], **(environment or {})} | ({"PROGRAM_WAITS": "1"} if waits else {})
    port = free_port() if port is None else port
    argv = [*prefix, *(command or (str(folder / "bin" / "vllm"), "serve")), *flags, "--port", str(port)]
    process = subprocess.Popen(
        argv, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    server = Server(process, port)
    try:
        assert process.stdout.readline() == "ready\n"
        yield server
    finally:
        for pid in server.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.kill()
        process.wait(timeout=10)
        process.stdout.close()


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port
