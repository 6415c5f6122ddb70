"""A node for the whole program: the double as its driver, and a server that replays a recorded vLLM in this process."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collectors.simulated.state import DeviceState, GpuProcess, NodeState, write_state
from tests.collectors.replay import FIXTURES, Replay, replaying, reply
from tests.double.build import build, environment

GIB = 2**30
MIB = 2**20
RECORDED = FIXTURES / "vllm" / "0.32.0"
H100 = DeviceState(
    index=0,
    uuid="GPU-11111111-2222-3333-4444-555555555555",
    bus_id="00000000:1B:00.0",
    name="NVIDIA H100 80GB HBM3",
    total_bytes=81559 * MIB,
    reserved_bytes=479 * MIB,
    allocated_bytes=0,
)
TINY_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
TINY_LLAMA_BYTES = 2 * (2 * 512 * 64 + 64 + 2 * (64 * 128 + 2 * 64 * 64 + 128 * 64 + 3 * 64 * 128 + 2 * 64))
"""embedding and head, final norm, and per layer q, k and v, o, the MLP and two norms; 2 bytes each."""


def state(*, own_bytes: int = 2 * GIB, other_bytes: int = 3 * GIB) -> NodeState:
    """One H100 on which this process and another hold memory."""
    processes = (
        GpuProcess(index=0, pid=os.getpid(), used_bytes=own_bytes),
        GpuProcess(index=0, pid=1, used_bytes=other_bytes, kinds="CG"),
    )
    allocated = own_bytes + other_bytes + 20 * MIB
    device = DeviceState(
        **{name: getattr(H100, name) for name in H100.__struct_fields__ if name != "allocated_bytes"},
        allocated_bytes=allocated,
    )
    return NodeState(driver_version="590.48.01", devices=(device,), gpu_processes=processes)


def write_model(folder: Path) -> Path:
    """A directory with the tiny Llama's config and an index that states its bytes."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TINY_LLAMA))
    index = {"metadata": {"total_size": TINY_LLAMA_BYTES}, "weight_map": {"lm_head.weight": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


class Node:
    """Files and environment of the node; ``replay`` answers as the recorded server."""

    def __init__(self, folder: Path, replay: Replay) -> None:
        self.folder = folder
        self.replay = replay
        self.state_file = folder / "node.state"
        write_state(self.state_file, state())
        self.environment = environment(build(folder), self.state_file)
        self.model = write_model(folder / "tiny-llama")
        self.config = folder / "vramscope.yml"
        server = f"{{url: '{replay.url}', name: chat, model: '{self.model}'}}"
        self.config.write_text(f"discovery: false\nservers: [{server}]\n")


@contextmanager
def recorded_node(folder: Path, page: str = "metrics_growing.txt") -> Iterator[Node]:
    """A node whose vLLM answers with one recorded page until the block ends."""
    answers = {
        "/metrics": reply((RECORDED / page).read_bytes()),
        "/version": reply('{"version":"0.32.0"}', content_type="application/json"),
        "/v1/models": reply(
            '{"data":[{"id":"tiny-llama","root":"./tiny-llama","max_model_len":2048}]}', content_type="application/json"
        ),
    }
    started: list[Replay] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with replaying(answers) as replay:
            started.append(replay)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield Node(folder, started[0])
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
