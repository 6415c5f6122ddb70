"""The program without a word of configuration: a server found among the processes, believed by its own socket."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collectors.simulated.state import GpuProcess, NodeState, write_state
from tests.collectors.replay import FIXTURES
from tests.double.build import build, environment
from tests.node import GIB, H100, MIB, write_model
from tests.program import finished, running

RECORDED = FIXTURES / "vllm" / "0.32.0"
SERVER = """#!{python}
import http.server, pathlib, sys, time
pages = {{"/metrics": "metrics_growing.txt", "/version": "version.json", "/v1/models": "models.json"}}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        pathlib.Path({asked!r}).open("a").write(self.path + "\\n")
        body = (pathlib.Path({recorded!r}) / pages[self.path]).read_bytes()
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", {port}), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@contextmanager
def started(folder: Path, *arguments: str, port: int = 0) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A process whose command line is that of `vllm serve`; gives it and the port it really listens on."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    program = folder / "bin" / "vllm"
    program.write_text(
        SERVER.format(python=sys.executable, recorded=str(RECORDED), asked=str(folder / "asked"), port=port)
    )
    program.chmod(0o755)
    process = subprocess.Popen([str(program), "serve", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def node(folder: Path, pid: int) -> dict[str, str]:
    """The environment of a program that sees one H100 on which this process holds 2 GiB."""
    device = type(H100)(
        **{name: getattr(H100, name) for name in H100.__struct_fields__ if name != "allocated_bytes"},
        allocated_bytes=2 * GIB + 20 * MIB,
    )
    state_file = folder / "node.state"
    used = GpuProcess(index=0, pid=pid, used_bytes=2 * GIB)
    write_state(state_file, NodeState(devices=(device,), gpu_processes=(used,)))
    return environment(build(folder), state_file)


def test_a_server_is_found_attributed_and_missed(tmp_path: Path) -> None:
    """Name, version, arguments, model and bytes without a settings file; after its end it is down."""
    model = write_model(tmp_path / "tiny-llama")
    port = free_port()
    flags = (str(model), "--port", str(port), "--max-model-len", "2048", "--api-key", "sk-canary-123")
    with started(tmp_path, *flags, port=port) as (process, _):
        with running("run", "--listen", "127.0.0.1:0", environment=node(tmp_path, process.pid)) as program:
            name = f"tiny-llama:{port}"
            program.until(lambda: f'component="kv_used",gpu="0",server="{name}"' in program.metrics())
            server = next(one for one in program.snapshot()["servers"] if one["name"] == name)
            document, page, lines = program.get("/api/v1/snapshot").text, program.metrics(), list(program.errors)

            process.kill()
            program.until(lambda: f'server_state{{server="{name}",state="down"}} 1' in program.metrics())
            assert f'kv_used_ratio{{server="{name}"' not in program.metrics()

    assert (server["version"], server["pids"], server["configured"]) == ("0.32.0", [process.pid], False)
    assert (server["model_path"], server["arguments"]["max_model_len"]) == (str(model), 2048)
    assert "canary" not in document + page + "".join(lines)


def test_snapshot_finds_by_itself(tmp_path: Path) -> None:
    """One command, no agent, nothing in the settings."""
    (tmp_path / "empty.yml").touch()
    model = write_model(tmp_path / "tiny-llama")
    port = free_port()
    with started(tmp_path, str(model), "--port", str(port), port=port):
        done = finished(
            "snapshot",
            "--explain",
            "--config",
            str(tmp_path / "empty.yml"),
            environment={**os.environ, "COLUMNS": "200"},
        )

    assert done.returncode == 0
    assert f"tiny-llama:{port}  vllm 0.32.0  serving  http://127.0.0.1:{port}" in done.stdout
    assert f"model {model}" in done.stdout


def test_a_command_line_alone_is_not_believed(tmp_path: Path) -> None:
    """It names the port of another process: that one is never asked, and neither is its own."""
    with (
        started(tmp_path / "victim", "other/model") as (_, port),
        started(tmp_path / "liar", "some/model", "--port", str(port)),
    ):
        with running("run", "--listen", "127.0.0.1:0", environment={"PATH": os.environ["PATH"]}) as program:
            loading = f'server_state{{server="model:{port}",state="loading"}} 1'
            program.until(lambda: loading in program.metrics())
            time.sleep(2.5)
            assert loading in program.metrics()

    assert not (tmp_path / "liar" / "asked").exists()
    assert not (tmp_path / "victim" / "asked").exists()
