"""A node for the whole program: 8 GPUs by the driver-level double, 8 servers in their own processes, 64 in all."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from collectors.simulated.state import CALLS, DeviceState, GpuProcess, NodeState, write_state
from tests.double.build import build, environment
from tests.node import GIB, MIB, write_model

COUNT = 8


class BusyNode(Struct, frozen=True, kw_only=True):
    """``environment`` makes the double the driver of a process; ``config`` names the servers."""

    environment: dict[str, str]
    config: Path
    state_file: Path
    state: NodeState

    @contextmanager
    def slow_driver(self, microseconds: int) -> Iterator[None]:
        """Every call of the driver takes this much longer inside."""
        write_state(self.state_file, replace(self.state, delays=tuple((call, microseconds) for call in CALLS)))
        try:
            yield
        finally:
            write_state(self.state_file, self.state)


class Replica(Struct, frozen=True):
    """What a replica process says of itself."""

    port: int
    pids: tuple[int, ...]


@contextmanager
def busy_node(folder: Path) -> Iterator[BusyNode]:
    """The node until the block ends: server n and its children hold memory on GPU n."""
    with ExitStack() as stack:
        replicas = [stack.enter_context(_replica()) for _ in range(COUNT)]
        model = write_model(folder / "tiny-llama")
        config = folder / "vramscope.yml"
        servers = [
            {"name": f"server-{n}", "url": f"http://127.0.0.1:{replica.port}", "model": str(model)}
            for n, replica in enumerate(replicas)
        ]
        config.write_text(json.dumps({"servers": servers}))
        state = NodeState(
            driver_version="590.48.01",
            devices=tuple(map(_device, range(COUNT))),
            gpu_processes=tuple(
                GpuProcess(index=index, pid=pid, used_bytes=8 * GIB)
                for index, replica in enumerate(replicas)
                for pid in replica.pids
            ),
        )
        state_file = folder / "node.state"
        write_state(state_file, state)
        library = build(folder)
        yield BusyNode(environment=environment(library, state_file), config=config, state_file=state_file, state=state)


@contextmanager
def _replica() -> Iterator[Replica]:
    command = [sys.executable, "-m", "benchmarks.replica", str(COUNT - 1)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = json.loads(process.stdout.readline())
        yield Replica(said["port"], tuple(said["pids"]))
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(timeout=20)


def _device(index: int) -> DeviceState:
    return DeviceState(
        index=index,
        uuid=f"GPU-{index:08d}-0000-0000-0000-000000000000",
        bus_id=f"00000000:{index + 1:02X}:00.0",
        name="NVIDIA H100 80GB HBM3",
        total_bytes=81559 * MIB,
        reserved_bytes=479 * MIB,
        allocated_bytes=65 * GIB,
    )
