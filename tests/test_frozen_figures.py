"""A node whose server renews its figures only when a request ends: what the agent says during one long answer."""

import asyncio
from pathlib import Path

import httpx
import msgspec
import pytest

from agent.board import Board
from agent.settings import check_server, parse_settings
from agent.snapshot import Snapshot
from agent.watch import ServerFacts, ServerWatch
from collectors.http_text import Endpoint
from collectors.nvml.passes import Passes
from collectors.readings import ModelFiles, NodeReading, ProcessTree, ServerProcess
from collectors.registry import ENGINES
from collectors.run import Outcome, run
from collectors.simulated.driver import SimulatedDriver
from collectors.simulated.state import NodeState, write_state
from tests.collectors.replay import FIXTURES
from tests.test_nodes import GIB, LLAMA_8B, RESIDUAL, WHOLE, closed, h100, held

PAGES = FIXTURES / "tensorrt_llm" / "1.3"


def snapshots(folder: Path, looks: list[tuple[float, str]]) -> list[Snapshot]:
    """What the agent says after each look at one server, which holds 60 GiB of the only GPU."""
    now, page = 0.0, ""
    node = NodeState(devices=(h100(0, 60 * GIB + RESIDUAL),), gpu_processes=(held(0, 100, 60 * GIB),))
    write_state(folder / "node.state", node)
    driver = SimulatedDriver(folder / "node.state")
    driver.start()
    passes = Passes(driver, announce=lambda _: None, clock=lambda: now, processes_interval_seconds=5.0)
    engine = ENGINES["tensorrt_llm"]
    given = parse_settings(b"servers: [{url: 'http://127.0.0.1:8000', engine: tensorrt_llm}]", where="test").servers[0]
    facts = ServerFacts(name="chat", engine=engine.name, url=given.url, given=check_server(given, "test"))
    watch = ServerWatch(facts, rank_of=engine.rank_of)
    board = Board([watch], memory_interval_seconds=1.0, clock=lambda: now, wall=lambda: 1.7e9)

    def answer(request: httpx.Request) -> httpx.Response:
        text = (PAGES / page).read_text() if request.url.path == "/prometheus/metrics" else '{"version":"1.3.0"}'
        return httpx.Response(200, stream=httpx.ByteStream(text.encode()))

    def done(value: object) -> Outcome:  # type: ignore[type-arg] # of whatever is handed in
        return Outcome(value=value, fault=None, duration_seconds=0.0, at=now)

    endpoint = Endpoint(given.url, paths=engine.paths, deadline_seconds=5, transport=httpx.MockTransport(answer))
    reader = engine.open(endpoint, clock=lambda: now)
    tree = ProcessTree(at=0.0, processes=(ServerProcess(pid=100, started_at=1.0, title="trtllm-serve"),))
    model = ModelFiles(path="/m", config=LLAMA_8B, tensor_bytes=WHOLE, tensor_source="index")

    async def look() -> None:
        board.took_server(watch, await run("endpoint", "chat", reader.read, deadline_seconds=5, clock=lambda: now))

    found = []
    for now, page in looks:  # noqa: B007 - what the closures above see
        board.took_node(msgspec.convert(passes.read(), NodeReading))
        asyncio.run(look())
        board.took_tree(watch, done(tree))
        board.took_model(watch, done(model))
        found.append(board.tick().snapshot)
    return found


def test_during_one_long_answer_the_age_is_shown_and_nothing_frozen_as_fresh(tmp_path: Path) -> None:
    """Capacity and counters stay; what is used, running and growing is not known any more; the sum stays closed."""
    first, second = "metrics.txt", "metrics_next.txt"
    found = snapshots(tmp_path, [(0.0, first), (1.0, second), (8.0, second), (12.0, second), (300.0, second)])

    servers = [snapshot.servers[0] for snapshot in found]
    assert [server.age_seconds for server in servers[1:]] == [0.0, 7.0, 11.0, 299.0]
    assert [server.pools[0].used_tokens for server in servers] == [None, 12800, 12800, None, None]
    assert [server.requests.running for server in servers] == [None, 2, 2, None, None]
    assert {server.pools[0].capacity_tokens for server in servers} == {32000}
    assert servers[-1].counters.generation_tokens == 1600
    assert servers[-1].pools[0].growth_tokens_per_second is None
    assert any("renews them only then" in note for note in servers[-1].notes)
    parts = closed(found[-1].devices[0])
    assert (parts["weights chat"], parts["runtime chat"]) == (WHOLE, 60 * GIB - WHOLE)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_can_be_named_in_the_settings(engine: str) -> None:
    """Also those whose budget is not computed; their flags are for their readers."""
    text = f"servers: [{{url: 'http://127.0.0.1:8000', engine: {engine}}}]"
    (server,) = parse_settings(text.encode(), where="test").servers

    assert check_server(server, "test").engine == engine
