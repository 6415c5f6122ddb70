"""A node for the agent's look ahead: devices with what lies on them, and servers, moved on a minute at a time."""

from random import Random

from msgspec import Struct

from agent.memory.transients import Transient
from agent.outlook import Outlook
from agent.seating import ServerView
from agent.snapshot import Component, Counters, Device, GpuHealth, Log, Requests, Server
from collectors.readings import FailureKind, ServerReading, ServerState

MIB, GIB = 2**20, 2**30
TOTAL_BYTES = 80 * GIB
LOOK_SECONDS = 60.0
NOISE_BYTES = 7 * MIB
MEMORY = 0.75  # of a minute's noise, what the next one keeps


class Card(Struct, kw_only=True):
    """What lies on one device, in bytes; the rest is free. ``spike_bytes``: the most a temporary takes."""

    weights: int = 30 * GIB
    pool: int = 32 * GIB
    runtime: float = 2.0 * GIB
    others: float = 0.0
    hidden: float = 0.0
    spike_bytes: float = 256.0 * MIB
    peak_bytes: int | None = None  # of a temporary that was measured
    lost: bool = False


class Scene:
    """One server over some devices. Stories change ``cards``, ``state``, ``restarts``, ``failed`` and ``is_read``."""

    def __init__(self, random: Random, *, devices: int = 1) -> None:
        self.random = random
        self.cards = [Card() for _ in range(devices)]
        self.state: ServerState = "serving"
        self.restarts = 0
        self.failed = 0
        self.is_read = True
        self.now = 0.0
        self._noise = [0.0] * devices
        self._outlook = Outlook()

    def look(self) -> dict[str, list[str]]:
        """Go on by a minute; the reasons of risk that are not ok, by server and device."""
        self.now += LOOK_SECONDS
        devices = [self._device(index, card) for index, card in enumerate(self.cards)]
        server = self._server()
        reading = ServerReading(at=self.now, engine="vllm", state=self.state) if self.is_read else None
        view = ServerView(name="chat", engine="vllm", url="", state=self.state, reading=reading)
        self._outlook.look({"chat": view}, {"chat": server}, devices, {"chat": {}}, None, self.now)
        told = self._outlook.server(server).risk
        found: dict[str, list[str]] = {"server": [*told.levels] if told is not None else []}
        for device in devices:
            risk = self._outlook.device(device).risk
            found[f"gpu {device.gpu}"] = [*risk.levels] if risk is not None else []
        return found

    def _server(self) -> Server:
        failures: dict[FailureKind, int] = {"cuda_oom": self.failed}
        return Server(
            name="chat",
            engine="vllm",
            version=None,
            url="",
            model=None,
            state=self.state,
            age_seconds=0.0,
            started_at=float(self.restarts),
            restarts=self.restarts,
            devices=tuple(f"GPU-{index}" for index in range(len(self.cards))),
            pids=tuple(range(100, 100 + len(self.cards))),
            requests=Requests(running=10, waiting=0),
            counters=Counters(preemptions=0, prompt_tokens=None, generation_tokens=None),
            log=Log(version=None, ready=True, age_seconds=0.0, failures=failures),
        )

    def _device(self, index: int, card: Card) -> Device:
        noise = self._noise[index]
        self._noise[index] = MEMORY * noise + self.random.gauss(0, NOISE_BYTES) * (1 - MEMORY**2) ** 0.5
        awake = self.state != "sleeping"
        sizes = {
            ("chat", "weights"): card.weights if awake else 0,
            ("chat", "kv_available"): card.pool if awake else 0,
            ("chat", "runtime"): max(0.0, card.runtime + noise),
            ("", "other_processes"): card.others,
            ("", "reserved"): GIB // 2,
            ("", "hidden"): card.hidden,
        }
        parts = [_part(server, name, size) for (server, name), size in sizes.items()]
        free = TOTAL_BYTES - sum(part.bytes for part in parts)
        spike = self.random.uniform(0.1, 1) * card.spike_bytes if self.random.random() < 0.15 else 0.0
        room = Transient(
            peak_bytes=card.peak_bytes, peak_evidence="measured", room_bytes=free, room_evidence="measured"
        )
        return Device(
            uuid=f"GPU-{index}",
            gpu=str(index),
            index=index,
            name=None,
            driver=None,
            memory_kind="device",
            total_bytes=TOTAL_BYTES,
            free_bytes=free,
            headroom_ratio=free / TOTAL_BYTES,
            used_max_bytes={"60s": TOTAL_BYTES - free + int(spike)},
            components=(*parts, _part("", "free", free)),
            transients={} if card.peak_bytes is None else {"chat": room},
            health=GpuHealth(gpu=str(index), lost=card.lost),
        )


def _part(server: str, component: str, size: float) -> Component:
    return Component(component=component, server=server, bytes=int(size), evidence="measured", age_seconds=0.0)
