"""The whole program beside the driver-level double and a recorded vLLM: golden, real Prometheus, faults, bad usage."""

import json
import os
import re
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import bcrypt
import httpx
import psutil
import pytest

from collectors.simulated.state import NodeState, write_state
from tests.agent.web import configs as web_config
from tests.collectors.replay import FIXTURES, reply
from tests.node import GIB, LOG, MIB, Node, recorded_node, state
from tests.program import Program, finished, running
from tests.promtool import promtool
from tests.served import served

GOLDEN = Path(__file__).parent / "golden" / "metrics.txt"
UNSTABLE = (
    (r'(build_info\{python=")[^"]+', r"\1*"),
    (r'(url="http://127.0.0.1:)\d+', r"\1*"),
    (r"^(?:# \w+ )?vramscope_server_container_info.*\n", ""),  # where the tests run
    (r"^(vramscope_settings_last_reload_timestamp_seconds) \S+$", r"\1 *"),
    (r"^(process_\w+) \S+$", r"\1 *"),
    (r"^(vramscope_collector_(?:duration|last_success_timestamp)_seconds\{.*\}) \S+$", r"\1 *"),
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with recorded_node(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def program(node: Node) -> Iterator[Program]:
    write_state(node.state_file, state())
    arguments = ("run", "--config", str(node.config), "--listen", "127.0.0.1:0")
    with running(*arguments, environment=node.environment) as program:
        program.until(lambda: 'component="kv_used"' in program.metrics())
        program.until(lambda: 'component="cuda_graphs"' in program.metrics())
        yield program


def components(program: Program) -> dict[str, int]:
    """Bytes by component of the one device, after checking that they close."""
    device = program.snapshot()["devices"][0]
    parts = {part["component"]: part["bytes"] for part in device["components"]}
    assert sum(parts.values()) == device["total_bytes"]
    assert min(parts.values()) >= 0
    return parts


def alone(folder: Path) -> Path:
    """Settings of an agent that looks for no server: others may run on the machine of the tests."""
    path = folder / "alone.yml"
    path.write_text("discovery: false\n")
    return path


def test_every_byte_beside_a_recorded_server(program: Program) -> None:
    """The real binding's readings, the recorded page and the server's log: each component by hand."""
    parts = components(program)
    page = (Path(__file__).parent / "fixtures" / "vllm" / "0.32.0" / "metrics_growing.txt").read_text()
    usage = float(re.search(r"^vllm:kv_cache_usage_perc\{.*\} (\S+)$", page, re.M)[1])  # type: ignore[index] # it is there

    assert parts == {
        "weights": GIB // 4,  # of the log, and so are the graphs
        "kv_used": round(usage * 99) * 32 * 512,
        "kv_available": (100 - round(usage * 99)) * 32 * 512,
        "cuda_graphs": GIB // 2,
        "runtime": 2 * GIB - 3 * GIB // 4 - 100 * 32 * 512,
        "other_processes": 3 * GIB,
        "reserved": 479 * MIB,
        "hidden": 20 * MIB,
        "free": 81559 * MIB - 479 * MIB - 5 * GIB - 20 * MIB,
    }


def test_golden_metrics(program: Program, request: pytest.FixtureRequest) -> None:
    """What operators script against changes only with a reason; the few unstable values are named in one list."""
    text = program.metrics()
    for pattern, replacement in UNSTABLE:
        text = re.sub(pattern, replacement, text, flags=re.M)
    if request.config.getoption("--update-golden"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)

    assert text == GOLDEN.read_text()


def test_promtool_finds_nothing_to_say(program: Program) -> None:
    """Names, types, help and units as Prometheus wants them."""
    promtool("check", "metrics", text=program.metrics())


def test_a_lost_gpu_and_its_return(program: Program, node: Node) -> None:
    """One tick without the device's components, the failure with its reason, and back by itself."""
    device = state().devices[0]
    write_state(node.state_file, NodeState(devices=(device,), faults=(("memory", 0, 15), ("memory_v2", 0, 15))))
    program.until(lambda: "vramscope_memory_bytes" not in program.metrics())
    failed = re.search(
        r'failures_total\{collector="nvml",reason="(\w+)",target="GPU-1[^"]*"\} [1-9]', program.metrics()
    )
    assert failed is not None
    assert failed[1] == "gpu_lost"
    assert 'kv_used_ratio{server="chat"}' in program.metrics()

    write_state(node.state_file, state())
    program.until(lambda: "vramscope_memory_bytes" in program.metrics())
    components(program)


def test_a_server_that_stops_answering_and_returns(program: Program, node: Node) -> None:
    """Its series vanish while its processes live on as loading; then everything is back."""
    answer = node.replay.answers.pop("/metrics")
    program.until(lambda: 'server_state{server="chat",state="loading"} 1' in program.metrics())
    text = program.metrics()
    assert "kv_used_ratio" not in text
    assert "preemptions_total" not in text
    assert components(program)["runtime"] == 2 * GIB

    node.replay.answers["/metrics"] = answer
    program.until(lambda: "kv_used_ratio" in program.metrics())


def test_memory_that_runs_out_is_counted_through_rotation(program: Program, node: Node) -> None:
    """Appended, after renaming, and after ``copytruncate``; nothing of the text shows up."""
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}.00 GiB. canary-4711\n"
    for number in range(1, 4):
        if number == 2:
            node.log.rename(node.log.with_suffix(".1"))
        if number == 3:
            os.truncate(node.log, 0)
        with node.log.open("a") as log:
            log.write("another line\n" * (100 if number == 2 else 0) + line.format(number))
        counted = f'server_oom_events_total{{kind="cuda_oom",server="chat"}} {number}\n'
        program.until(lambda counted=counted: counted in program.metrics())  # type: ignore[misc] # bound now

    log = program.snapshot()["servers"][0]["log"]
    assert log["last_failure"]["figures"] == {"requested_bytes": 3 * GIB}
    assert log["ranks"][0]["weights_bytes"] == GIB // 4
    assert "canary" not in program.metrics() + program.get("/api/v1/snapshot").text + "".join(program.errors)
    node.log.write_text(LOG)


def test_reload_by_post(program: Program) -> None:
    """From this host, without a restart; a page of another origin can't."""
    assert program.client.post("/-/reload", headers={"origin": "http://evil.example"}).status_code == 403
    answer = program.client.post("/-/reload")

    assert (answer.status_code, answer.text) == (200, "reloaded\n")
    assert "settings_last_reload_success 1" in program.metrics()


def test_print_settings_and_json_log(node: Node, tmp_path: Path) -> None:
    """What is in force, and a log that machines read."""
    printed = finished("run", "--config", str(node.config), "--print-settings")
    arguments = ("run", "--config", str(alone(tmp_path)), "--listen", "127.0.0.1:0", "--log-format", "json")
    with running(*arguments, environment={"PATH": "/usr/bin:/bin"}) as program:
        program.until(lambda: program.errors)
        event = json.loads(program.errors[0])

    assert (printed.returncode, f"url: {node.replay.url}" in printed.stdout) == (0, True)
    assert event["level"] == "warning"
    assert "nvml failed" in event["message"]


def test_tls_and_basic_auth_by_web_config(node: Node, tmp_path: Path) -> None:
    """The announced URL is https, and without the password there is no answer, nor once the file is emptied."""
    tls = Path(__file__).parent / "fixtures" / "tls"
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yml").write_text(
        f"tls_server_config: {{cert_file: '{tls / 'server.pem'}', key_file: '{tls / 'server.key'}'}}\n"
        f"basic_auth_users: {{prometheus: '{hashed}'}}\n"
    )
    config = tmp_path / "vramscope.yml"
    config.write_text(f"discovery: false\nweb_config_file: '{tmp_path / 'web.yml'}'\n")
    with running("run", "--config", str(config), "--listen", "127.0.0.1:0", environment=node.environment) as program:
        verify = ssl.create_default_context(cafile=str(tls / "ca.pem"))
        url = program.base.replace("127.0.0.1", "localhost") + "/metrics"
        refused = httpx.get(url, verify=verify)
        answered = httpx.get(url, verify=verify, auth=("prometheus", "secret"))
        (tmp_path / "web.yml").write_text("")
        kept_out = "vramscope_web_config_current 0"
        program.until(lambda: kept_out in httpx.get(url, verify=verify, auth=("prometheus", "secret")).text)
        still = httpx.get(url, verify=verify)

    assert program.base.startswith("https://")
    assert (refused.status_code, answered.status_code, still.status_code) == (401, 200, 401)


def test_no_descriptor_left_for_a_connection(node: Node) -> None:
    """It is said, nothing ends, and connections are taken again once there are descriptors."""
    arguments = ("run", "--config", str(node.config), "--listen", "127.0.0.1:0")
    with running(*arguments, environment=node.environment) as program:
        process = psutil.Process(program.process.pid)
        limits = process.rlimit(psutil.RLIMIT_NOFILE)
        taken = {int(number.name) for number in Path(f"/proc/{process.pid}/fd").iterdir()}
        process.rlimit(psutil.RLIMIT_NOFILE, (min(set(range(len(taken) + 1)) - taken), limits[1]))
        with ExitStack() as held:
            for _ in range(8):  # more than what it may have had open only just then
                held.enter_context(socket.create_connection(("127.0.0.1", httpx.URL(program.base).port or 0)))
            program.until(lambda: any("can't accept connections" in line for line in program.errors))
        process.rlimit(psutil.RLIMIT_NOFILE, limits)

        assert program.get("/-/healthy").status_code == 200


def test_clean_stop(node: Node) -> None:
    """SIGTERM ends it with 0 and without a word."""
    with running(
        "run", "--config", str(node.config), "--listen", "127.0.0.1:0", environment=node.environment
    ) as program:
        code = program.end()

    assert (code, program.errors) == (0, [])


def test_reload_on_sighup(node: Node, tmp_path: Path) -> None:
    """New settings are taken; wrong ones are told and the old stay in force; both are exported."""
    config = tmp_path / "vramscope.yml"
    config.write_text(node.config.read_text())
    with running("run", "--config", str(config), "--listen", "127.0.0.1:0", environment=node.environment) as program:
        program.until(lambda: 'component="kv_used"' in program.metrics())

        config.write_text(config.read_text().replace("name: chat", "name: renamed"))
        program.process.send_signal(signal.SIGHUP)
        program.until(lambda: 'kv_used_ratio{server="renamed"}' in program.metrics())
        assert '"chat"' not in program.metrics()

        config.write_text("servers: [{url: nowhere}]")
        program.process.send_signal(signal.SIGHUP)
        program.until(lambda: "settings_last_reload_success 0" in program.metrics())
        assert 'kv_used_ratio{server="renamed"}' in program.metrics()
        assert any("servers[0].url: 'nowhere' is not the URL of a server" in line for line in program.errors)


def test_reload_with_a_url_that_can_not_be_parsed(node: Node, tmp_path: Path) -> None:
    """All or nothing: a sentence for who asked and for the log, the metric at 0, and the old server alone."""
    config = tmp_path / "vramscope.yml"
    config.write_text(node.config.read_text())
    with running("run", "--config", str(config), "--listen", "127.0.0.1:0", environment=node.environment) as program:
        program.until(lambda: 'component="kv_used"' in program.metrics())
        renamed = config.read_text().replace("name: chat", "name: renamed")
        config.write_text(renamed.replace("}]", "}, {url: 'http://é☃.x'}]"))

        answer = program.client.post("/-/reload")
        program.until(lambda: "settings_last_reload_success 0" in program.metrics())

        assert answer.status_code == 500
        assert "servers[1].url: the server's URL can't be parsed" in answer.text
        assert 'server="renamed"' not in program.metrics()
        assert 'component="kv_used",gpu="0",server="chat"' in program.metrics()
        assert sum("not reloaded" in line for line in program.errors) == 1
        assert not any("Traceback" in line for line in program.errors)
    once = finished("snapshot", "--server-url", "http://é☃.x", environment=node.environment)
    assert (once.returncode, len(once.stderr.splitlines())) == (2, 1)


def test_no_driver_is_no_reason_to_stop(tmp_path: Path) -> None:
    """Without a GPU the agent serves, says what is missing, and is not ready while nothing at all is collected."""
    arguments = ("run", "--config", str(alone(tmp_path)), "--listen", "127.0.0.1:0")
    with running(*arguments, environment={"PATH": "/usr/bin:/bin"}) as program:
        program.until(lambda: 'collector_success{collector="nvml",target=""} 0' in program.metrics())
        ready = program.get("/-/ready")
        healthy = program.get("/-/healthy")

    assert (ready.status_code, healthy.status_code) == (503, 200)
    assert "install the NVIDIA driver" in ready.text


def test_snapshot_collects_once_by_itself(node: Node) -> None:
    """Without a running agent: one JSON document on stdout and nothing else."""
    arguments = ("snapshot", "--server-url", node.replay.url, "--model", str(node.model), "--json")
    done = finished(*arguments, environment=node.environment)

    assert (done.returncode, done.stderr) == (0, "")
    assert '"component":"kv_used"' in done.stdout


SGLANG = (FIXTURES / "sglang" / "0.5.9" / "metrics.txt").read_bytes()


def test_snapshot_of_a_server_finds_its_engine(node: Node) -> None:
    """And lists no other server, whatever else is found on this host."""
    with served({"one": {"/metrics": reply(SGLANG)}}) as servers:
        done = finished("snapshot", "--server-url", servers["one"].url, "--json", environment=node.environment)

    document = json.loads(done.stdout)
    port = servers["one"].url.rpartition(":")[2]
    assert (done.returncode, done.stderr) == (0, "")
    assert [(one["name"], one["engine"], one["state"]) for one in document["servers"]] == [
        (f"server:{port}", "sglang", "serving")
    ]
    assert os.getpid() in document["servers"][0]["pids"]


@pytest.mark.parametrize(
    ("engine", "why"), [((), "its engine is not known yet"), (("--engine", "vllm"), "answered 404")]
)
def test_snapshot_of_a_server_that_gives_no_answer_fails(node: Node, engine: tuple[str, ...], why: str) -> None:
    """What is known is shown, and one sentence says what is missing."""
    with served({"one": {}}) as servers:
        url = servers["one"].url
        done = finished("snapshot", "--server-url", url, *engine, "--json", environment=node.environment)

    assert done.returncode == 1
    assert done.stderr.startswith(f"vramscope: --server-url: {url}")
    assert (why in done.stderr, len(done.stderr.splitlines())) == (True, 1)
    (server,) = json.loads(done.stdout)["servers"]
    assert (server["engine"], server["state"]) == (engine[-1] if engine else None, "loading")
    assert any("set engine: of this server" in note for note in server["notes"]) is not bool(engine)


def test_an_engine_that_settings_leave_out_is_looked_for_until_it_is_known(node: Node, tmp_path: Path) -> None:
    """A server that answers with nothing yet is loading; its name stays when its engine is known."""
    config = tmp_path / "vramscope.yml"
    with served({"one": {}}) as servers:
        url = servers["one"].url
        name = f"server:{url.rpartition(':')[2]}"
        config.write_text(f"discovery: false\nservers: [{{url: '{url}'}}]\n")
        with running(
            "run", "--config", str(config), "--listen", "127.0.0.1:0", environment=node.environment
        ) as program:
            program.until(lambda: f'server_state{{server="{name}",state="loading"}} 1' in program.metrics())
            servers["one"].answers["/metrics"] = reply(SGLANG)
            program.until(lambda: f'server_state{{server="{name}",state="serving"}} 1' in program.metrics())
            (server,) = program.snapshot()["servers"]

    assert (server["name"], server["engine"]) == (name, "sglang")


def test_snapshot_as_text_from_a_running_agent(program: Program, node: Node) -> None:
    """The table a person reads."""
    done = finished("snapshot", "--url", program.base, "--explain")

    assert done.returncode == 0
    for word in ("weights", "kv_used", "runtime", "hidden", "headroom", "computed", "chat", "total"):
        assert word in done.stdout


def test_check_says_what_works_and_what_does_not(node: Node, tmp_path: Path) -> None:
    """All well beside the recorded node; a refused server is a failure with what to do."""
    good = finished("check", "--config", str(node.config), environment=node.environment)
    bad = finished("check", "--config", str(alone(tmp_path)), environment={"PATH": "/usr/bin:/bin"})

    assert (good.returncode, "FAIL" in good.stdout) == (0, False)
    assert (bad.returncode, "FAIL  nvml: " in bad.stdout) == (1, True)


def test_check_says_that_the_web_config_can_not_be_used(node: Node, tmp_path: Path) -> None:
    """What keeps ``run`` from beginning, the files of its certificate included, is no surprise after a check."""
    path = tmp_path / "settings.yml"
    path.write_text(node.config.read_text() + f"web_config_file: {tmp_path / 'web.yml'}\n")

    missing = finished("check", "--config", str(path), environment=node.environment)
    web_config.write(tmp_path, tls_server_config={**web_config.SERVER, "key_file": "nope.key"})
    half = finished("check", "--config", str(path), environment=node.environment)
    refused = finished("run", "--config", str(path), environment=node.environment)
    web_config.write(tmp_path, tls_server_config=web_config.SERVER, basic_auth_users={"prometheus": web_config.HASH})
    good = finished("check", "--config", str(path), environment=node.environment)

    assert missing.returncode == 1
    assert f"FAIL  web config: {tmp_path / 'web.yml'}: " in missing.stdout
    assert half.returncode == 1
    assert refused.returncode == 2
    sentence = refused.stderr.removeprefix("vramscope: ").strip()
    assert "nope.key" in sentence
    assert f"FAIL  web config: {sentence}\n" in half.stdout
    assert good.returncode == 0
    assert f"ok    web config: {tmp_path / 'web.yml'}: TLS, basic auth (1 known by name)" in good.stdout


BAD_USAGE = {
    ("nope",): "vramscope: No such command 'nope'; see `vramscope --help`",
    ("run", "--listen", "x"): "vramscope: --listen: expected HOST:PORT with a port of 0 to 65535, got 'x'",
    ("run", "--frob"): "vramscope: No such option '--frob'; see `vramscope run --help`",
    ("snapshot", "--url", "x"): (
        "vramscope: --url: 'x' is not the URL of a server; expected the form http://HOST:PORT"
    ),
    ("snapshot", "--url", "http://h", "--server-url", "http://h"): (
        "vramscope: --url, --config and --server-url exclude each other; give one"
    ),
    ("snapshot", "--server-url", "http://h:1/metrics"): (
        "vramscope: --server-url: expected a base URL such as http://127.0.0.1:8000, got 'http://h:1/metrics'"
    ),
    (
        "snapshot",
        "--server-url",
        "http://h:1",
        "--model",
        "",
    ): "vramscope: --model: expected the path of a file, got ''",
    ("snapshot", "--engine", "vllm"): "vramscope: --engine and --model describe --server-url; give that too",
    ("demo", "--scenario", "nope"): (
        "vramscope: unknown scenario 'nope': expected eight, idle, reasoning, upgrade or a path that ends in .yaml"
    ),
}


@pytest.mark.parametrize("arguments", BAD_USAGE, ids=" ".join)
def test_wrong_usage_is_one_sentence(arguments: tuple[str, ...]) -> None:
    """Exit code 2, one line on stderr, no traceback."""
    done = finished(*arguments)

    assert (done.returncode, done.stdout, done.stderr.strip()) == (2, "", BAD_USAGE[arguments])


def test_unreadable_settings_are_one_sentence(tmp_path: Path) -> None:
    """Exit code 2 with the file's name."""
    path = tmp_path / "none.yml"
    done = finished("run", "--config", str(path))

    expected = f"vramscope: {path}: can't read the settings file: No such file or directory; check --config"
    assert (done.returncode, done.stderr.strip()) == (2, expected)


@pytest.mark.parametrize("command", ["run", "demo"])
def test_port_in_use_is_one_sentence(command: str) -> None:
    """Exit code 1: the address, why, and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = finished(command, "--listen", address)

    expected = f"vramscope: can't listen on {address}: Address already in use; choose another address with --listen"
    assert (done.returncode, done.stderr.strip()) == (1, expected)


@pytest.mark.parametrize("command", ["run", "demo"])
def test_address_of_another_host_is_one_sentence(command: str) -> None:
    """Likewise; 192.0.2.0/24 is for documents, so no host has an address of it."""
    done = finished(command, "--listen", "192.0.2.4:0")

    expected = (
        "vramscope: can't listen on 192.0.2.4:0: Cannot assign requested address; choose another address with --listen"
    )
    assert (done.returncode, done.stderr.strip()) == (1, expected)


def test_no_agent_there_is_one_sentence() -> None:
    """Exit code 1 and how to start one."""
    done = finished("snapshot", "--url", "http://127.0.0.1:1")

    assert done.returncode == 1
    assert done.stderr.strip() == (
        "vramscope: no agent answers at http://127.0.0.1:1 (ConnectError); start one with `vramscope run`"
    )
