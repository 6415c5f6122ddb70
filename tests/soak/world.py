"""What surrounds the program: a node with two GPUs and two servers, in fast motion, and what can be done to it."""

import contextlib
import json
import os
import random
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from msgspec import Struct
from msgspec.structs import replace

from collectors.simulated.state import DeviceState, GpuProcess, NodeState, write_state
from tests.collectors.discovery.servers import installed
from tests.collectors.replay import Replay
from tests.double.build import build, environment
from tests.node import GIB, MIB, write_model
from tests.program import Program, running
from tests.served import ServerProcess, answers, served
from tests.soak.fast_clock import FastClock

OBSERVED = Path(__file__).with_name("observed.py")
WELL_SECONDS = 180.0  # a pause of the driver's reader may have begun just now, and it is a minute long
LOOK_SECONDS = 30.0
NORMAL = 1.0


class Figures(Struct, frozen=True, kw_only=True):
    """What is alive in the program at one moment, and what the kernel holds for it."""

    tasks: list[str]
    threads: list[str]
    objects: dict[str, int]
    entries: int
    children: int
    descriptors: int
    resident_mib: float
    series: int


class World:
    """The program's surroundings. ``alpha`` is a process, ``beta`` answers what the test wants."""

    def __init__(self, folder: Path, clock: FastClock, alpha: ServerProcess, beta: Replay) -> None:
        self.folder = folder
        self.clock = clock
        self.chance = random.Random(1)
        self.alpha = alpha
        self.beta = beta
        self.vllm = installed(folder / "venv")
        self.state_file = folder / "node.state"
        self.window = folder / "window.json"
        self.config = folder / "vramscope.yml"
        self.program: Program
        model = str(write_model(folder / "tiny-llama"))
        self.servers = [
            {"name": "alpha", "url": alpha.url, "model": model},
            {"name": "beta", "url": beta.url, "model": model},
        ]
        self.discovery = False  # on while there are faults: what else this machine runs is not part of the figures
        self.configure()
        self.drive()

    @property
    def state(self) -> NodeState:
        """Alpha and beta each hold memory on a GPU of their own; beta's process is the test itself."""
        pids = (self.alpha.pid, os.getpid())
        return NodeState(
            driver_version="590.48.01",
            devices=tuple(map(_device, range(2))),
            gpu_processes=tuple(GpuProcess(index=n, pid=pid, used_bytes=2 * GIB) for n, pid in enumerate(pids)),
        )

    def drive(self, **changes: Any) -> None:
        """Put the driver into its healthy state with these fields changed."""
        write_state(self.state_file, replace(self.state, **changes))

    def configure(self, *, text: str | None = None, **changes: Any) -> None:
        """Write the settings, healthy ones with these keys changed, or this text."""
        settings = {"servers": self.servers, "discovery": self.discovery, **changes}
        self.config.write_text(json.dumps(settings) if text is None else text)

    def discover(self, *, on: bool) -> None:
        """Whether servers are looked for from now on."""
        self.discovery = on
        self.configure()
        self.reload()

    def reload(self) -> None:
        self.program.process.send_signal(signal.SIGHUP)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.program.process.pid).children(recursive=True)

    def connect(self) -> socket.socket:
        where = urlsplit(self.program.base)
        return socket.create_connection((where.hostname, where.port), timeout=10)

    def is_well(self) -> bool:
        """Everything is read, and nothing is there that was not at the start."""
        snapshot = self.program.snapshot()
        seen = {server["name"]: server["state"] for server in snapshot["servers"]}
        parts = [part for device in snapshot["devices"] for part in device["components"]]
        pools = {part["server"] for part in parts if part["component"] == "kv_used"}
        fine = all(collector["success"] for collector in snapshot["collectors"])
        return fine and pools == {"alpha", "beta"} and seen == dict.fromkeys(pools, "serving")

    def figures(self) -> Figures:
        """What is alive now, at the normal pace of time, once all is well."""
        self.clock.run_at(NORMAL)
        self.program.until(self.is_well, seconds=WELL_SECONDS)
        self.window.unlink(missing_ok=True)
        self.program.process.send_signal(signal.SIGUSR1)
        self.program.until(self.window.exists, seconds=LOOK_SECONDS)
        process = psutil.Process(self.program.process.pid)
        return Figures(
            **json.loads(self.window.read_text()),
            children=len(self.children()),
            descriptors=process.num_fds(),
            resident_mib=process.memory_info().rss / MIB,
            series=self._series(),
        )

    def _series(self) -> int:
        """Samples, without those of failures: each reason that ever was has one for good, and there are few."""
        lines = self.program.metrics().splitlines()
        return sum(not line.startswith(("#", "vramscope_collector_failures_total")) for line in lines)


@contextlib.contextmanager
def world(folder: Path) -> Iterator[World]:
    """A running program and what surrounds it."""
    clock = FastClock(folder)
    with ServerProcess() as alpha, served({"beta": answers()}) as replays:
        made = World(folder, clock, alpha, replays["beta"])
        variables = environment(build(folder), made.state_file) | clock.environment
        command = (sys.executable, "-I", str(OBSERVED), str(made.window))
        arguments = ("run", "--config", str(made.config), "--listen", "127.0.0.1:0")
        with running(*arguments, command=command, environment=variables) as program:
            made.program = program
            yield made


def _device(index: int) -> DeviceState:
    return DeviceState(
        index=index,
        uuid=f"GPU-{index:08d}-0000-0000-0000-000000000000",
        bus_id=f"00000000:{index + 1:02X}:00.0",
        name="NVIDIA H100 80GB HBM3",
        total_bytes=81559 * MIB,
        reserved_bytes=479 * MIB,
        allocated_bytes=3 * GIB,
    )
