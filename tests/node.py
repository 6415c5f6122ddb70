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


LOG = """\
(APIServer pid=1) INFO 11-29 16:47:32 [api_utils.py:286] non-default args: {'model_tag': './tiny-llama'}
(EngineCore pid=2) INFO 11-29 16:47:44 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='m'
(EngineCore pid=2) INFO 11-29 16:47:50 [gpu_model_runner.py:5150] Model loading took 0.25 GiB memory and 1.5 seconds
(EngineCore pid=2) INFO 11-29 16:47:51 [gpu_worker.py:760] Available KV cache memory: 69.5 GiB
(EngineCore pid=2) INFO 11-29 16:47:51 [kv_cache_utils.py:2327] GPU KV cache size: 3,200 tokens, \
Maximum concurrency for 2,048 tokens per request: 1.56x
(EngineCore pid=2) INFO 11-29 16:47:55 [gpu_model_runner.py:6582] Graph capturing finished in 4 secs, took 0.50 GiB
(EngineCore pid=2) INFO 11-29 16:47:55 [gpu_worker.py:1034] Free memory on device (78.5/79.18 GiB) on startup. \
Desired GPU memory utilization is (0.92, 72.84 GiB). Actual usage is 0.5 GiB for consumed memory (weights + \
non-torch), 0.125 GiB for peak activation, and 0.5 GiB for CUDAGraph memory.
(APIServer pid=1) INFO:     Application startup complete.
"""


class Node:
    """Files and environment of the node; ``replay`` answers as the recorded server."""

    def __init__(self, folder: Path, replay: Replay) -> None:
        self.folder = folder
        self.replay = replay
        self.state_file = folder / "node.state"
        write_state(self.state_file, state())
        self.environment = environment(build(folder), self.state_file)
        self.model = write_model(folder / "tiny-llama")
        self.log = folder / "server.log"
        self.log.write_text(LOG)
        self.config = folder / "vramscope.yml"
        server = f"{{url: '{replay.url}', name: chat, model: '{self.model}', log: '{self.log}'}}"
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
