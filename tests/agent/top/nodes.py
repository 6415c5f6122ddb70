"""Eight GPUs with a server each, in all kinds of trouble, and how a screen of it is looked at."""

from msgspec.structs import replace

from agent.memory.risk import OK, Risk
from agent.snapshot import Device, ExhaustionSeconds, Server, Snapshot
from agent.top.screen import Choice, Screen, screen
from agent.top.seen import Shown
from tests.agent.web import sample
from tests.agent.web.sample import MIB, START, device, server

H100_BYTES = 81_559 * MIB
RISKS = (
    OK,
    Risk(level="critical", reason="pool_exhaustion", numbers={"used_ratio": 0.97}),
    OK,
    Risk(level="watch", reason="low_headroom", numbers={"headroom_ratio": 0.08}),
    Risk(level="at_risk", reason="no_transient_room", numbers={}),
    OK,
    Risk(level="critical", reason="preemption_storm", numbers={}),
    None,
)


def eight(tick: int = 0) -> Snapshot:
    """The node at a second."""
    numbers = range(8)
    return Snapshot(
        time=START + tick,
        version="0.1.0",
        devices=tuple(_gpu(number) for number in numbers),
        servers=tuple(_server(number, tick) for number in numbers),
        collectors=(sample.collector("nvml", "", 0.4),),
    )


def shown(snapshot: Snapshot | None, *, problem: str | None = None) -> Shown:
    return Shown(source="http://127.0.0.1:10175", snapshot=snapshot, problem=problem)


def drawn(
    snapshot: Snapshot | None,
    choice: Choice | None = None,
    *,
    width: int = 80,
    height: int = 24,
    colours: bool = False,
    problem: str | None = None,
) -> Screen:
    """A screen of it."""
    choice = choice or Choice()
    return screen(shown(snapshot, problem=problem), choice, width=width, height=height, colours=colours)


def text_of(screen_of_it: Screen) -> str:
    return "\n".join(line.plain for line in screen_of_it.lines)


def _name(number: int) -> str:
    return f"chat-{number}"


def _gpu(number: int) -> Device:
    name = _name(number)
    used = (4 + 4 * number) * 1024 * MIB
    one = device(
        number,
        f"GPU-{number}",
        "NVIDIA H100 80GB HBM3",
        H100_BYTES,
        {
            ("reserved", ""): (479 * MIB, None, "measured"),
            ("weights", name): (15_316 * MIB, 15_316 * MIB, "computed"),
            ("kv_used", name): (used, None, "reported"),
            ("kv_available", name): (40 * 1024 * MIB - used, None, "reported"),
            ("cuda_graphs", name): (600 * MIB, None, "measured"),
            ("activations", name): (1_900 * MIB, None, "measured"),
            ("allocator_slack", name): (800 * MIB, None, "measured"),
            ("context", name): (520 * MIB, None, "measured"),
            ("other_processes", ""): (3_000 * MIB * (number == 5), None, "measured"),
            ("hidden", ""): (2_000 * MIB * (number == 6), None, "measured"),
        },
        headroom=0.25 - number / 40,
    )
    return replace(one, risk=RISKS[-1 - number])


def _server(number: int, tick: int) -> Server:
    likely = None if number in (0, 5) else 60.0 * number * number
    pool = replace(
        sample.pool(26_000 * (number + 1) + 300 * tick, 262_144, growth=10.0**number / 8 - 1),
        forecast=replace(sample.filling(), exhaustion_seconds=ExhaustionSeconds(likely=likely, early=likely)),
    )
    one = server(
        _name(number),
        "meta-llama/Llama-3.1-8B-Instruct",
        (pool,),
        running=3 * 4**number,
        waiting=number**3,
        preemptions=10**number,
        port=8000 + number,
        gpus={str(number): f"GPU-{number}"},
    )
    return replace(one, risk=RISKS[number])
