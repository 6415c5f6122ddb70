"""A board as busy as a node gets: 8 devices, 8 servers, 64 processes, readings as a real vLLM gave them."""

import asyncio
from pathlib import Path

import httpx

from agent.board import Board
from agent.memory.arguments import Arguments
from agent.watch import ServerFacts, ServerWatch
from collectors.http_text import Endpoint
from collectors.readings import (
    DeviceReading,
    MemoryReading,
    ModelFiles,
    NodeReading,
    ProcessesReading,
    ProcessMemory,
    ProcessTree,
    ServerProcess,
    ServerReading,
)
from collectors.registry import ENGINES
from collectors.run import Outcome

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures"
PAGE = FIXTURES / "vllm" / "0.32.0" / "metrics_growing.txt"
GIB = 2**30
COUNT = 8


class Clock:
    """Moves a second at each feed."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def busy_board() -> tuple[Board, Clock]:
    """A board with eight servers whose models and processes are known."""
    clock = Clock()
    engine = ENGINES["vllm"]
    watches = [
        ServerWatch(
            ServerFacts(name=f"server-{n}", engine="vllm", url=f"http://127.0.0.1:{8000 + n}", given=Arguments()),
            rank_of=engine.rank_of,
        )
        for n in range(COUNT)
    ]
    board = Board(watches, memory_interval_seconds=1.0, clock=clock, wall=clock)
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 512,
        "max_position_embeddings": 8192,
    }
    for n, watch in enumerate(watches):
        watch.take_model(ModelFiles(path="/models/tiny", config=config, tensor_bytes=328_320, tensor_source="index"))
        processes = tuple(
            ServerProcess(pid=100 * n + k, started_at=0.0, title="VLLM::EngineCore") for k in range(COUNT)
        )
        watch.saw(ProcessTree(at=0.0, processes=processes))
    return board, clock


def feed(board: Board, clock: Clock) -> None:
    """One second: a pass over the devices and an answer of every server."""
    clock.now += 1.0
    board.took_node(NodeReading(at=clock.now, driver_version="590", devices=tuple(map(_device, range(COUNT)))))
    for watch in board.watches:
        board.took_server(watch, Outcome(value=READING, fault=None, duration_seconds=0.001, at=clock.now))


def _device(index: int) -> DeviceReading:
    listed = tuple(ProcessMemory(pid=100 * index + k, used_bytes=GIB) for k in range(COUNT))
    return DeviceReading(
        index=index,
        uuid=f"GPU-{index:08d}-0000-0000-0000-000000000000",
        name="NVIDIA H100 80GB HBM3",
        memory=MemoryReading(at=0.0, total_bytes=80 * GIB, free_bytes=60 * GIB, reserved_bytes=GIB // 2),
        processes=ProcessesReading(at=0.0, processes=listed),
    )


def _reading() -> ServerReading:
    """What the adapter makes of the recorded page."""
    text = PAGE.read_bytes()

    def answer(request: httpx.Request) -> httpx.Response:
        body = text if request.url.path == "/metrics" else b"{}"
        return httpx.Response(200, stream=httpx.ByteStream(body))

    engine = ENGINES["vllm"]
    transport = httpx.MockTransport(answer)
    endpoint = Endpoint("http://127.0.0.1:1", paths=engine.paths, deadline_seconds=5, transport=transport)
    return asyncio.run(engine.open(endpoint, clock=lambda: 0.0).read())


READING = _reading()
