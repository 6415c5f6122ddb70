"""The stories: what happens on a node over hours, minute by minute, and the one reason that must be told, if any."""

from collections.abc import Callable, Iterator

from msgspec import Struct

from agent.memory.risk import Reason
from benchmarks.devices.scene import GIB, MIB, Card, Scene

Play = Callable[[Scene], Iterator[None]]


class Story(Struct, frozen=True, kw_only=True):
    """``play`` gives up control once a minute; ``who`` must be at risk for ``reason``, and nobody for another."""

    says: str
    play: Play
    reason: Reason | None = None
    who: str = "gpu 0"
    devices: int = 1


def _slow_leak(scene: Scene) -> Iterator[None]:
    rate = scene.random.uniform(230, 330) * MIB / 60
    for _ in range(4 * 60):
        scene.cards[0].runtime += rate
        yield


def _warm_up(scene: Scene, minutes: float) -> Iterator[None]:
    for _ in range(5 * 60):
        scene.cards[0].runtime += (3.5 * GIB - scene.cards[0].runtime) / minutes
        yield


def _adapters(scene: Scene) -> Iterator[None]:
    for _ in range(scene.random.randint(3, 6)):
        yield from _wait(scene, 10, 80)
        scene.cards[0].runtime += scene.random.uniform(80, 500) * MIB
    yield from _wait(scene, 120, 180)


def _another_process(scene: Scene) -> Iterator[None]:
    yield from _wait(scene, 30, 120)
    scene.cards[0].others = scene.random.uniform(0.5, 5) * GIB
    yield from _wait(scene, 60, 300)


def _left_behind(scene: Scene) -> Iterator[None]:
    yield from _wait(scene, 30, 120)
    scene.cards[0].hidden = scene.random.uniform(0.5, 5) * GIB
    yield from _wait(scene, 60, 300)


def _sleep(scene: Scene, residue: Callable[[int], float]) -> Iterator[None]:
    for cycle in range(scene.random.randint(3, 5)):
        awake = scene.cards[0].runtime
        yield from _wait(scene, 20, 60)
        scene.state, scene.cards[0].runtime = "sleeping", residue(cycle)
        yield from _wait(scene, 10, 60)
        scene.state, scene.cards[0].runtime = "serving", awake


def _sleep_with_residue(scene: Scene) -> Iterator[None]:
    more = scene.random.uniform(0.8, 3) * GIB
    yield from _sleep(scene, lambda cycle: 3.5 * GIB + cycle * more)


def _sleep_clean(scene: Scene) -> Iterator[None]:
    yield from _sleep(scene, lambda cycle: 2.5 * GIB)


def _larger_batch(scene: Scene) -> Iterator[None]:
    card = scene.cards[0]
    card.peak_bytes = 2 * GIB
    yield from _wait(scene, 60, 120)
    card.peak_bytes, card.spike_bytes = 4 * GIB, 4.0 * GIB
    card.runtime += scene.random.uniform(0.5, 1.5) * GIB
    yield from _wait(scene, 180, 360)


def _too_large_batch(scene: Scene) -> Iterator[None]:
    yield from _wait(scene, 60, 120)
    scene.cards[0].peak_bytes = int(scene.random.uniform(18, 24) * GIB)
    yield from _wait(scene, 30, 120)


def _restarts(scene: Scene) -> Iterator[None]:
    yield from _wait(scene, 20, 60)
    for _ in range(scene.random.randint(4, 8)):
        scene.restarts += 1
        scene.failed += 1
        yield from _wait(scene, 2, 6)


def _blind(scene: Scene) -> Iterator[None]:
    yield from _wait(scene, 60, 180)
    scene.is_read = False
    yield from _wait(scene, 5, 30)
    scene.is_read = True
    yield from _wait(scene, 120, 180)


def _pause(scene: Scene) -> Iterator[None]:
    for _ in range(3):
        yield from _wait(scene, 60, 150)
        scene.now += scene.random.uniform(600, 6 * 3600)
        scene.cards[0].runtime += scene.random.uniform(0, 300) * MIB
    yield from _wait(scene, 120, 180)


def _smaller_rank(scene: Scene) -> Iterator[None]:
    scene.cards[1] = Card(pool=26 * GIB, others=scene.random.uniform(0.5, 6) * GIB)
    yield from _wait(scene, 120, 240)


def _lost(scene: Scene) -> Iterator[None]:
    yield from _wait(scene, 30, 90)
    scene.cards[1].lost = True
    yield from _wait(scene, 10, 30)


def _leak_beside_steps(scene: Scene) -> Iterator[None]:
    rate = scene.random.uniform(230, 300) * MIB / 60
    at = [scene.random.randrange(30, 450) for _ in range(3)]
    for minute in range(8 * 60):
        scene.cards[0].runtime += rate + (scene.random.uniform(64, 512) * MIB if minute in at else 0)
        yield


def _wait(scene: Scene, least: int, most: int) -> Iterator[None]:
    yield from (None for _ in range(scene.random.randint(least, most)))


STORIES: dict[str, Story] = {
    "slow leak": Story(says="230-330 MiB an hour in the engine", play=_slow_leak, reason="device_creep"),
    "leak beside steps": Story(
        says="230-300 MiB an hour and three steps of up to 512 MiB", play=_leak_beside_steps, reason="device_creep"
    ),
    "warm-up": Story(
        says="1.5 GiB more, half of it within 3-8 min, then ever less",
        play=lambda scene: _warm_up(scene, scene.random.uniform(4, 12)),
    ),
    "slow warm-up": Story(
        says="1.5 GiB more, half of it within 28-55 min, then ever less",
        play=lambda scene: _warm_up(scene, scene.random.uniform(40, 80)),
    ),
    "adapters": Story(says="3-6 LoRA adapters of 80-500 MiB, loaded over hours", play=_adapters),
    "another process": Story(says="0.5-5 GiB at once, of no server", play=_another_process, reason="foreign_process"),
    "left behind": Story(says="0.5-5 GiB in no visible process", play=_left_behind, reason="hidden_memory"),
    "sleep with residue": Story(
        says="0.8-3 GiB more held with each sleep", play=_sleep_with_residue, reason="sleep_residue", who="server"
    ),
    "sleep and wake": Story(says="2.5 GiB held in each sleep", play=_sleep_clean),
    "larger batch": Story(says="a temporary of 4 GiB and its workspaces, with room", play=_larger_batch),
    "too large a batch": Story(
        says="a temporary of 18-24 GiB was seen, beside 15", play=_too_large_batch, reason="no_transient_room"
    ),
    "restart loop": Story(
        says="4-8 starts, 2-6 min apart, each out of memory", play=_restarts, reason="restart_loop", who="server"
    ),
    "blind time": Story(says="the server is not read for 5-30 min", play=_blind, reason="blind", who="server"),
    "stopped clock": Story(says="the host sleeps for 10 min to 6 h, three times", play=_pause),
    "smaller rank": Story(
        says="one of two ranks has 6 GiB less for its pool, beside a guest",
        play=_smaller_rank,
        reason="foreign_process",
        who="gpu 1",
        devices=2,
    ),
    "lost GPU": Story(says="one of two falls off the bus", play=_lost, reason="hardware", who="gpu 1", devices=2),
}
