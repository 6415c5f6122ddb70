"""The agent beside a real vLLM on CPU: what it says is what the server exposes, to the token and to the byte."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.simulated.state import DeviceState
from tests.engines.beside import CORE_BYTES, NAME, WORKER_RUNTIME_BYTES, Node, View, after, until
from tests.engines.scrape import Scrape
from tests.engines.tiny_models import TinyModel, make_llama
from tests.engines.vllm_server import BLOCK_SIZE, BLOCKS, MAX_MODEL_LEN, SMALL_POOL, Load, VllmServer
from tests.node import H100
from tests.program import Program, running

pytestmark = pytest.mark.engines

POOL_BYTES = BLOCKS * BLOCK_SIZE * 512  # K and V x 2 layers x 2 heads x 32 x 2 bytes = 512 bytes a token
DOWN_SECONDS = 10.0


class Stage:
    """Everything on stage: the model, the real server, the double's device and the agent."""

    def __init__(self, model: TinyModel, server: VllmServer, node: Node, agent: Program) -> None:
        self.model = model
        self.server = server
        self.node = node
        self.agent = agent
        self.held_bytes = 0

    def occupy(self) -> None:
        self.held_bytes = self.node.occupy(self.server, weights_bytes=self.model.tensor_bytes, pool_bytes=POOL_BYTES)


@pytest.fixture(scope="module")
def stage(vllm_command: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("beside")
    model = make_llama(folder / "tiny-llama")
    server = VllmServer(
        command=vllm_command, model=model.path, name="tiny-llama", log=folder / "vllm.log", arguments=SMALL_POOL
    )
    node = Node(folder, server, model.path)
    with server:
        server.complete("warm up", max_tokens=8)
        arguments = ("run", "--config", str(node.config), "--listen", "127.0.0.1:0")
        with running(*arguments, environment=node.environment) as agent:
            stage = Stage(model, server, node, agent)
            stage.occupy()
            until(agent, _attributed)
            yield stage


def test_idle_server_is_attributed_to_the_byte(stage: Stage) -> None:
    """Beside an idle server the agent says what the server exposes, and the closed sum names all its processes hold."""
    with stage.server.held(lambda scrape: scrape.value("vllm:num_requests_running") == 0) as exposed:
        said = _says_what_is_exposed(stage, exposed)

    assert said.pool["used_tokens"] == 0


def test_growing_pool_is_followed_exactly(stage: Stage) -> None:
    """While requests grow, used tokens, requests and counters are the server's own at that moment."""
    with Load(stage.server, clients=2, until_left=True), stage.server.held(_growing) as exposed:
        said = _says_what_is_exposed(stage, exposed)

    assert 0 < said.pool["used_tokens"] < said.pool["capacity_tokens"]


def test_preemptions_are_those_the_server_counts(stage: Stage) -> None:
    """With the pool nearly full and requests put back, preemptions and waiting requests are the server's own."""
    with Load(stage.server, until_left=True), stage.server.held(_preempted) as exposed:
        said = _says_what_is_exposed(stage, exposed)

    assert said.server["counters"]["preemptions"] > 0


def test_killed_server_leaves_only_its_state_and_comes_back(stage: Stage) -> None:
    """After SIGKILL nothing of the server stays but ``down``; when it serves again it is a restart, from zero."""
    assert View(stage.agent).metric("server_restarts_total", server=NAME) == 0

    stage.server.kill()
    stage.node.release()
    gone = until(stage.agent, lambda view: view.server["state"] == "down", seconds=DOWN_SECONDS)
    assert gone.series_of_server() == {"vramscope_server_state"}
    assert gone.metric("server_state", server=NAME, state="down") == 1
    until(stage.agent, lambda view: view.components().get(("", "free")) == _free(H100, 0), seconds=DOWN_SECONDS)

    stage.server.start()
    stage.occupy()
    until(stage.agent, _attributed)
    with stage.server.held(lambda scrape: True) as exposed:
        back = _says_what_is_exposed(stage, exposed)
    assert back.metric("server_restarts_total", server=NAME) == 1
    assert back.server["counters"]["generation_tokens"] == 0


def _says_what_is_exposed(stage: Stage, exposed: Scrape) -> View:
    """All figures of the agent against a server that stands still; the server is asked again at the end."""
    said = after(stage.agent, time.time())
    for check in (_pool_is_exposed, _requests_are_exposed, _pool_bytes_are_budgeted, _sum_is_closed):
        check(stage, exposed, said)
    assert stage.server.scrape().of_engine() == exposed.of_engine()
    return said


def _pool_is_exposed(stage: Stage, exposed: Scrape, said: View) -> None:
    config = exposed.labels("vllm:cache_config_info")
    usage = exposed.value("vllm:kv_cache_usage_perc")
    used_blocks = round(usage * (BLOCKS - 1))  # one block is the engine's placeholder
    assert used_blocks / (BLOCKS - 1) == pytest.approx(usage, abs=1e-12)
    assert int(config["num_gpu_blocks"]) == BLOCKS

    assert said.pool["used_tokens"] == used_blocks * BLOCK_SIZE
    assert said.pool["capacity_tokens"] == int(config["kv_cache_size_tokens"])
    assert said.pool["used_ratio"] == usage
    assert said.pool["block_size"] == BLOCK_SIZE
    assert said.metric("kv_tokens", server=NAME, state="used") == used_blocks * BLOCK_SIZE
    assert said.metric("kv_capacity_tokens", server=NAME) == int(config["kv_cache_size_tokens"])
    assert said.metric("kv_used_ratio", server=NAME) == usage


def _requests_are_exposed(stage: Stage, exposed: Scrape, said: View) -> None:
    requests = {"running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting"}
    for state, name in requests.items():
        assert said.server["requests"][state] == exposed.value(name)
        assert said.metric("server_requests", server=NAME, state=state) == exposed.value(name)
    for field in ("preemptions", "prompt_tokens", "generation_tokens"):
        theirs = exposed.value(f"vllm:{_vllm_counter(field)}_total")
        assert said.server["counters"][field] == theirs
        assert said.metric(f"server_{field}_total", server=NAME) == theirs


def _vllm_counter(field: str) -> str:
    return "num_preemptions" if field == "preemptions" else field


def _pool_bytes_are_budgeted(stage: Stage, exposed: Scrape, said: View) -> None:
    per_token = said.metric("kv_bytes_per_token", server=NAME)
    assert per_token == stage.model.kv_bytes_per_token
    assert said.metric("kv_pool_bytes", server=NAME, gpu="0") / (BLOCKS * BLOCK_SIZE) == per_token
    assert said.pool["pool_bytes"] == POOL_BYTES
    assert said.metric("kv_max_request_tokens", server=NAME) == MAX_MODEL_LEN


def _sum_is_closed(stage: Stage, exposed: Scrape, said: View) -> None:
    parts = said.components()
    used = said.pool["used_tokens"] * stage.model.kv_bytes_per_token
    assert sum(parts.values()) == H100.total_bytes == said.device["total_bytes"]
    assert parts == {
        ("", "reserved"): H100.reserved_bytes,
        (NAME, "weights"): stage.model.tensor_bytes,
        (NAME, "kv_used"): used,
        (NAME, "kv_available"): POOL_BYTES - used,
        (NAME, "runtime"): CORE_BYTES + WORKER_RUNTIME_BYTES,
        ("", "other_processes"): 0,
        ("", "hidden"): 0,
        ("", "free"): _free(H100, stage.held_bytes),
    }
    exported = {
        (labels["server"], labels["component"]): value for labels, value in said.scrape.all("vramscope_memory_bytes")
    }
    assert exported == parts


def _free(device: DeviceState, held_bytes: int) -> int:
    return device.total_bytes - device.reserved_bytes - held_bytes


def _growing(scrape: Scrape) -> bool:
    usage = scrape.value("vllm:kv_cache_usage_perc")
    return 0.1 <= usage <= 0.9 and scrape.value("vllm:num_requests_running") > 0


def _preempted(scrape: Scrape) -> bool:
    counted = ("num_preemptions_total", "num_requests_running", "num_requests_waiting")
    return scrape.value("vllm:kv_cache_usage_perc") > 0.8 and all(scrape.value(f"vllm:{name}") for name in counted)


def _attributed(view: View) -> bool:
    """Whether the agent has fresh readings of device, processes, server and model."""
    return {(NAME, "kv_used"), (NAME, "runtime")} <= view.components().keys()
