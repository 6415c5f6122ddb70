"""How servers of engines other than vLLM are found: by variables, and with processes that come and go below them."""

from pathlib import Path

from collectors.discovery.host import HostDiscovery
from collectors.readings import FoundServer
from collectors.registry import ENGINES
from tests.collectors.discovery.table_of import ProcFolder

LOOPBACK = "0100007F"


def scan(subject: HostDiscovery) -> dict[str, FoundServer]:
    return {one.engine: one for one in subject.scan()}


def discovery(proc: ProcFolder) -> HostDiscovery:
    commands = {name: engine.command for name, engine in ENGINES.items()}
    return HostDiscovery(commands, proc=proc.folder, clock=lambda: 5.0)


def words(*argv: object) -> bytes:
    return b"".join(f"{word}\0".encode() for word in argv)


def test_an_ollama_has_the_model_that_its_runner_holds(tmp_path: Path) -> None:
    """Runners belong to it, come and go, and are no servers of their own; also where they are a llama.cpp."""
    proc = ProcFolder(tmp_path / "proc")
    first, second = tmp_path / "sha256-a", tmp_path / "sha256-b"
    first.touch()
    second.touch()
    proc.add(100, words("/usr/local/bin/ollama", "serve"))
    (proc.folder / "100" / "environ").write_bytes(b"OLLAMA_HOST=127.0.0.1:12000\0OLLAMA_NUM_PARALLEL=2\0SECRET=x\0")
    proc.listening(100, (LOOPBACK, 12000, 77))
    proc.holds(100, 77)
    subject = discovery(proc)

    idle = scan(subject)
    proc.add(101, words("/usr/local/bin/ollama", "runner", "--model", first, "--port", 41000), parent=100, started=2000)
    one = scan(subject)
    proc.add(102, words("/usr/lib/ollama/llama-server", "--model", second, "--port", 41001), parent=100, started=3000)
    two = scan(subject)
    proc.remove(101)
    other = scan(subject)

    assert all(set(servers) == {"ollama"} for servers in (idle, one, two, other))
    assert [servers["ollama"].model for servers in (idle, one, two, other)] == [None, str(first), None, str(second)]
    assert [len(servers["ollama"].tree.processes) for servers in (idle, one, two, other)] == [1, 2, 3, 2]
    assert idle["ollama"].url == "http://127.0.0.1:12000"
    assert idle["ollama"].arguments == {"num-parallel": 2}


def test_variables_stand_for_flags_of_a_llama_cpp(tmp_path: Path) -> None:
    """As its image is set up; one that nobody started as a part of another is a server of its own."""
    proc = ProcFolder(tmp_path / "proc")
    model = tmp_path / "m.gguf"
    model.touch()
    proc.add(200, words("/app/llama-server", "-c", 4096))
    variables = (f"LLAMA_ARG_MODEL={model}", "LLAMA_ARG_N_PARALLEL=2", "LLAMA_ARG_CTX_SIZE=9", "LLAMA_ARG_PORT=8090")
    (proc.folder / "200" / "environ").write_bytes(words(*variables))
    proc.listening(200, (LOOPBACK, 8090, 5))
    proc.holds(200, 5)

    found = scan(discovery(proc))["llama_cpp"]

    assert (found.model, found.url) == (str(model), "http://127.0.0.1:8090")
    assert found.arguments == {"ctx-size": 4096, "parallel": 2}


def test_an_sglang_with_its_schedulers(tmp_path: Path) -> None:
    """Titles of its processes do not hide it."""
    proc = ProcFolder(tmp_path / "proc")
    proc.add(300, words("python3", "-m", "sglang.launch_server", "--model-path", "/m", "--tp", 2, "--port", 30000))
    proc.add(301, b"sglang::scheduler_TP0", parent=300, started=2000)
    proc.add(302, b"sglang::scheduler_TP1", parent=300, started=2000)
    proc.listening(300, (LOOPBACK, 30000, 6))
    proc.holds(300, 6)

    found = scan(discovery(proc))["sglang"]

    assert found.arguments == {"tp-size": 2}
    titles = [ENGINES["sglang"].rank_of(process.title) for process in found.tree.processes]
    assert [rank.tp_rank if rank else None for rank in titles] == [None, 0, 1]


def test_servers_of_one_node_are_told_apart(tmp_path: Path) -> None:
    """Each by its own command line, its port and the model that it names; a worker by its system port."""
    proc = ProcFolder(tmp_path / "proc")
    model = tmp_path / "m"
    model.mkdir()
    commands = {
        "tensorrt_llm": words("/opt/bin/python3", "/opt/bin/trtllm-serve", model, "--port", 9001),
        "triton": words("/opt/tritonserver/bin/tritonserver", "--model-repository=/r", "--metrics-port=9002"),
        "tgi": words("/usr/local/bin/text-generation-launcher", "--model-id", model, "--port", 9003),
        "lmdeploy": words("/opt/bin/python3", "/opt/bin/lmdeploy", "serve", "api_server", model, "--server-port", 9004),
        "dynamo_trtllm": words("python3", "-m", "dynamo.trtllm", "--model-path", model),
        "vllm": words("python3", "-m", "dynamo.vllm", "--model", model),
    }
    ports = {engine: 9001 + number for number, engine in enumerate(commands)}
    for engine, command in commands.items():
        port = ports[engine]
        proc.add(port, command)
        proc.listening(port, *((LOOPBACK, ports[one], ports[one]) for one in commands))
        proc.holds(port, port)
        (proc.folder / str(port) / "environ").write_bytes(f"DYN_SYSTEM_PORT={port}\0".encode())

    found = scan(discovery(proc))

    assert {engine: one.url for engine, one in found.items()} == {
        engine: f"http://127.0.0.1:{port}" for engine, port in ports.items()
    }
    assert {engine for engine, one in found.items() if one.model is None} == {"triton"}
