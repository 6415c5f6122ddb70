"""What goes wrong in a soak, in three decks: the driver, the servers, who comes and goes. Each ends with its block."""

import contextlib
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import psutil

from collectors.nvml import faults
from collectors.simulated.state import DeviceState, GpuProcess, InstanceState
from tests.collectors.discovery.servers import free_port, started
from tests.collectors.replay import Script, reply
from tests.node import GIB, MIB
from tests.served import RECORDED, answers, served
from tests.soak.world import World
from tests.test_server_faults import FAULTS as ANSWERS
from tests.test_server_faults import MILD

Fault = Callable[[World], AbstractContextManager[None]]

# The driver


def driver(**changes: object) -> Fault:
    """The driver in another state for a while."""

    @contextlib.contextmanager
    def fault(world: World) -> Iterator[None]:
        world.drive(**changes)
        yield
        world.drive()

    return fault


@contextlib.contextmanager
def driver_is_gone(world: World) -> Iterator[None]:
    world.state_file.unlink()
    yield
    world.drive()


@contextlib.contextmanager
def gpu_is_unplugged(world: World) -> Iterator[None]:
    world.drive(devices=world.state.devices[:1])
    yield
    world.drive()


@contextlib.contextmanager
def other_processes_come_and_go(world: World) -> Iterator[None]:
    """Each time others, and their memory moves."""
    pids = world.chance.sample(range(100_000, 900_000), 40)
    more = tuple(GpuProcess(index=pid % 2, pid=pid, used_bytes=pid * 1024) for pid in pids)
    first = replace_allocated(world.state.devices[0], world.chance.randrange(3, 60) * GIB)
    world.drive(gpu_processes=world.state.gpu_processes + more, devices=(first, world.state.devices[1]))
    yield
    world.drive()


@contextlib.contextmanager
def instances_come_and_go(world: World) -> Iterator[None]:
    """The second GPU is cut into MIG instances that have never been there before."""
    instances = tuple(
        InstanceState(
            index=1,
            instance=number,
            uuid=f"MIG-{world.chance.getrandbits(64):016x}",
            name="NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            total_bytes=9984 * MIB,
            allocated_bytes=world.chance.randrange(12, 9000) * MIB,
        )
        for number in range(7, 11)
    )
    world.drive(instances=instances, mig_mode=(1,))
    yield
    world.drive()


def signalled(number: signal.Signals) -> Fault:
    """The child that calls NVML gets a signal."""

    @contextlib.contextmanager
    def fault(world: World) -> Iterator[None]:
        for child in world.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(number)
        yield

    return fault


def replace_allocated(device: DeviceState, allocated_bytes: int) -> DeviceState:
    return DeviceState(
        **{name: getattr(device, name) for name in device.__struct_fields__ if name != "allocated_bytes"},
        allocated_bytes=allocated_bytes,
    )


LOST = tuple((call, 0, faults.GPU_IS_LOST) for call in ("memory_v2", "memory"))
DRIVER: dict[str, Fault] = {
    "driver gone": driver_is_gone,
    "GPU lost": driver(faults=LOST),
    "memory hangs": driver(hangs=(("memory_v2", 0),)),
    "process list hangs": driver(hangs=(("processes", 1),)),
    "start hangs": driver(hangs=(("init", None),)),
    "library replaced": driver(faults=(("memory_v2", None, faults.VERSION_MISMATCH),)),
    "slow calls": driver(delays=(("memory_v2", 3000), ("processes", 5000))),
    "GPU unplugged": gpu_is_unplugged,
    "processes hidden": driver(gpu_processes=()),
    "Xids": driver(xids=((0, 48), (1, 63), (1, 79))),
    "other processes": other_processes_come_and_go,
    "MIG instances": instances_come_and_go,
    "child killed": signalled(signal.SIGKILL),
    "child stopped": signalled(signal.SIGSTOP),
}

# The servers


@contextlib.contextmanager
def alpha_is_killed(world: World) -> Iterator[None]:
    world.alpha.kill()
    yield
    world.alpha.start()
    world.drive()


@contextlib.contextmanager
def alpha_stands_still(world: World) -> Iterator[None]:
    world.alpha.signal(signal.SIGSTOP)
    yield
    world.alpha.signal(signal.SIGCONT)


def beta(answer: bytes | Script) -> Fault:
    """What beta says instead of its metrics."""

    @contextlib.contextmanager
    def fault(world: World) -> Iterator[None]:
        world.beta.answers["/metrics"] = answer
        yield
        world.beta.answers |= answers()

    return fault


@contextlib.contextmanager
def beta_is_another(world: World) -> Iterator[None]:
    """Another model, another start, replicas of other names, each time."""
    name = f"{world.chance.getrandbits(32):x}"
    page = RECORDED.replace('engine="0"', f'engine="{int(name, 16) % 1000}"').replace("tiny-llama", f"model-{name}")
    page = re.sub(r"^process_start_time_seconds .*$", f"process_start_time_seconds {time.time()}", page, flags=re.M)
    world.beta.answers["/metrics"] = reply(page)
    yield
    world.beta.answers |= answers()


@contextlib.contextmanager
def beta_moves(world: World) -> Iterator[None]:
    """To another port, and the settings with it."""
    with served({"beta": answers()}) as elsewhere:
        alpha, old = world.servers
        world.configure(servers=[alpha, old | {"url": elsewhere["beta"].url}])
        world.reload()
        yield
        world.configure()
        world.reload()


SERVERS: dict[str, Fault] = {
    "alpha killed": alpha_is_killed,
    "alpha stopped": alpha_stands_still,
    **{f"beta {name}": beta(answer) for name, (answer, _) in ANSWERS.items()},
    **{f"beta {name}": beta(answer) for name, answer in MILD.items()},
    "beta without a page": beta(reply("no", status=404)),
    "beta is another": beta_is_another,
    "beta moves": beta_moves,
}

# All who come and go


@contextlib.contextmanager
def scrapers_come_and_go(world: World) -> Iterator[None]:
    """Some stop in the middle of a request, some go without reading, some stay."""
    with contextlib.ExitStack() as stack:
        for number in range(40):
            client = stack.enter_context(contextlib.closing(world.connect()))
            request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"
            with contextlib.suppress(OSError):  # its patience is over in a blink
                client.sendall(request[: len(request) if number % 3 else number])
            if number % 4 == 0:
                client.close()
        yield


@contextlib.contextmanager
def strange_requests(world: World) -> Iterator[None]:
    """Every page, pages that are none, names of other hosts, reloads that are refused."""
    paths = ("/", "/api/v1/snapshot", "/api/v1/history", "/-/ready", "/static/page.js", "/no/such/page")
    with contextlib.suppress(httpx.TransportError):  # its patience is over in a blink
        for path in (*paths, f"/{world.chance.getrandbits(64):x}"):
            world.program.get(path)
        world.program.client.get("/", headers={"host": f"{world.chance.getrandbits(64):x}.example.com"})
        world.program.client.post("/-/reload", headers={"origin": "http://elsewhere.example.com"})
    yield


@contextlib.contextmanager
def a_server_is_found(world: World) -> Iterator[None]:
    """Each time under another name, at another port."""
    name = f"{world.chance.getrandbits(32):x}"
    with started(world.vllm, "--served-model-name", name, "--model", f"org/{name}", port=free_port()) as server:
        server.tell("fork VLLM::EngineCore")
        yield


def settings(**changes: Any) -> Fault:
    """Other settings for a while."""

    @contextlib.contextmanager
    def fault(world: World) -> Iterator[None]:
        world.configure(**changes)
        world.reload()
        yield
        world.configure()
        world.reload()

    return fault


@contextlib.contextmanager
def servers_are_renamed(world: World) -> Iterator[None]:
    """And one is added that is not there."""
    name = f"{world.chance.getrandbits(32):x}"
    alpha, kept = world.servers
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        absent = {"name": f"absent-{name}", "url": f"http://127.0.0.1:{bound.getsockname()[1]}"}
        world.configure(servers=[alpha | {"name": name}, kept, absent])
        world.reload()
        yield
    world.configure()
    world.reload()


OTHERS: dict[str, Fault] = {
    "scrapers": scrapers_come_and_go,
    "strange requests": strange_requests,
    "a found server": a_server_is_found,
    "renamed servers": servers_are_renamed,
    "other rhythms": settings(intervals={"memory": 0.5, "processes": 2, "endpoints": 0.5}),
    "no discovery": settings(discovery=False),
    "no servers": settings(servers=[]),
    "settings that are no YAML": settings(text="servers: [: :"),
    "settings with a wrong URL": settings(text="servers: [{url: nowhere}]"),
}
