"""Servers of a simulated node, found as on a real one."""

import asyncio
from pathlib import Path

import pytest

from collectors.errors import Unreadable
from collectors.readings import ProcessTree, ServerProcess
from collectors.registry import ENGINES
from collectors.simulated.node import SimulatedNode
from collectors.simulated.processes import SimulatedDiscovery
from collectors.simulated.scenario import load_scenario
from collectors.simulated.state import HostProcess, NodeState, write_state

COMMANDS = {name: engine.command for name, engine in ENGINES.items()}


def discovery(state: Path) -> SimulatedDiscovery:
    return SimulatedDiscovery(state, COMMANDS, clock=lambda: 5.0)


def test_a_server_from_its_start_until_it_serves(tmp_path: Path) -> None:
    """First without a socket, then with it; flags and model directory are known all the time."""
    node = SimulatedNode(load_scenario("eight"), directory=tmp_path)

    async def scenario() -> None:
        await node.start()
        try:
            node.simulation.advance(5)
            node._show()  # what its clock does
            [loading] = discovery(node.state_path).scan()
            node.simulation.advance(200)
            node._show()
            [serving] = discovery(node.state_path).scan()
        finally:
            await node.stop()

        assert (loading.listening, loading.url, loading.port) == (False, None, serving.port)
        assert (serving.listening, serving.url) == (True, f"http://127.0.0.1:{serving.port}")
        assert loading.arguments == serving.arguments
        assert serving.arguments["tensor-parallel-size"] == 8
        assert (serving.model, serving.served_name) == (str(tmp_path / "models" / "large"), "chat-70b")
        assert len(serving.tree.processes) == 10

    asyncio.run(scenario())


def test_a_node_in_a_given_state(tmp_path: Path) -> None:
    """Only what starts a server is one, with its descendants."""
    state = tmp_path / "node.state"
    write_state(
        state,
        NodeState(
            host_processes=(
                HostProcess(port=8000, pid=7, started_at=1.5, title="vllm serve models/a -tp 2 --api-key sesame"),
                HostProcess(parent=7, pid=8, started_at=2.0, title="VLLM::EngineCore"),
                HostProcess(parent=1, pid=9, started_at=3.0, title="python train.py"),
                HostProcess(port=9000, pid=10, started_at=4.0),
            )
        ),
    )
    [one] = discovery(state).scan()

    assert one.tree == ProcessTree(
        at=5.0,
        processes=(
            ServerProcess(pid=7, started_at=1.5, title="vllm serve models/a -tp 2 --api-key ***"),
            ServerProcess(pid=8, started_at=2.0, title="VLLM::EngineCore"),
        ),
    )
    assert (one.engine, one.started_at, one.url, one.model) == ("vllm", 1.5, "http://127.0.0.1:8000", None)
    assert one.arguments == {"tensor-parallel-size": 2}


@pytest.mark.parametrize("content", [None, "listener x y z\n"])
def test_a_node_without_a_usable_state_file(tmp_path: Path, content: str | None) -> None:
    """One sentence, as for its processes."""
    state = tmp_path / "node.state"
    if content is not None:
        state.write_text(content)

    with pytest.raises(Unreadable, match="can't read the simulated node's state"):
        discovery(state).scan()
