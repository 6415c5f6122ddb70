"""The use of pools that the ring holds: what charts show of the minutes before a page was opened."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from agent.recorder.chunks import pack
from agent.recorder.past import MAX_MINUTES, STEP_SECONDS, Past
from agent.recorder.records import Server, Start
from collectors.readings import PoolReading
from tests.agent.recorder.flight import Flight
from tests.agent.test_board import serving


def used(tokens: int) -> tuple[PoolReading, ...]:
    return (PoolReading(replica="0", capacity_tokens=10_000, used_tokens=tokens),)


def past(flight: Flight, segments: Callable[[], list[Path]] | None = None) -> Past:
    return Past(segments or flight.ring.segments, clock=flight.clock, wall=flight.wall, rest=lambda _: None)


def points(made: Past) -> dict[str, list[tuple[float, int]]]:
    document: dict[str, Any] = msgspec.json.decode(made.json())
    assert document["schema"] == "vramscope.history/1"
    return {f"{pool['server']} {pool['replica']} {pool['kind']}": pool["points"] for pool in document["pools"]}


def test_the_highest_of_each_step_on_the_clock_of_the_wall(tmp_path: Path) -> None:
    """Three minutes over several segments come as one line, in order, each step once."""
    flight = Flight(tmp_path)
    flight.lives(150, pools=used(1000))
    flight.lives(1, pools=used(7000))
    flight.lives(29, pools=used(1000))

    found = points(past(flight))

    (line,) = found.values()
    times = [at for at, _ in line]
    assert times == sorted(set(times))
    assert all(at % STEP_SECONDS == 0 for at in times)
    assert 180 - 2 * STEP_SECONDS <= times[-1] - times[0] <= 180
    assert abs(times[-1] - flight.wall()) <= 2 * STEP_SECONDS
    assert sorted({tokens for _, tokens in line}) == [1000, 7000]


def test_who_asks_again_gets_the_same_and_then_only_what_is_new_is_read(tmp_path: Path) -> None:
    """For five seconds nothing is read; after that segments that have not grown are not."""
    flight = Flight(tmp_path)
    flight.lives(130, pools=used(1000))
    looks = 0

    def segments() -> list[Path]:
        nonlocal looks
        looks += 1
        return flight.ring.segments()

    made = past(flight, segments)
    first = made.json()
    flight.lives(2, pools=used(1000))
    assert made.json() is first

    oldest = flight.ring.segments()[0]
    oldest.write_bytes(b"x" * oldest.stat().st_size)  # what is known of it stays known
    flight.lives(10, pools=used(2000))
    (line,) = points(made).values()

    assert looks == 2
    assert line[-1][1] == 2000
    assert line[-1][0] - line[0][0] >= 130


def test_devices_come_with_what_was_used_of_them(tmp_path: Path) -> None:
    """The most of each step, by UUID; nothing is told of parts, which are no readings."""
    flight = Flight(tmp_path)
    flight.lives(20, held=10 << 30)
    flight.lives(1, held=30 << 30)
    flight.lives(19, held=10 << 30)

    (device,) = msgspec.json.decode(past(flight).json())["devices"]

    used = [size for _, size in device["used"]]
    assert sorted(device) == ["used", "uuid"]
    assert 8 <= len(used) <= 9
    assert sorted(set(used)) == [11 << 30, 31 << 30]  # what its processes hold, and the driver's gibibyte


def test_damage_costs_its_segment(tmp_path: Path) -> None:
    """A file that is none is passed over, and one that has gone meanwhile."""
    flight = Flight(tmp_path)
    flight.lives(130, pools=used(1000))
    first, *_ = flight.ring.segments()
    first.write_bytes(b"no segment")

    found = points(past(flight, lambda: [first, *flight.ring.segments()[1:], tmp_path / "gone.vramscope"]))

    (line,) = found.values()
    assert line[-1][0] - line[0][0] < 100


def test_a_slow_disk_gives_the_newest(tmp_path: Path) -> None:
    """What was read by the deadline is what is known; the next look goes on."""
    flight = Flight(tmp_path)
    flight.lives(130, pools=used(1000))

    def slow(_: float) -> None:
        flight.clock.now += 0.5

    made = Past(flight.ring.segments, clock=flight.clock, wall=flight.wall, rest=slow)
    (line,) = points(made).values()

    assert 0 < len(line) < 130 / STEP_SECONDS


def test_without_a_ring_there_is_nothing(tmp_path: Path) -> None:
    """An agent that has just begun."""
    assert points(past(Flight(tmp_path), list)) == {}


def test_many_who_ask_at_once_cost_one_thread(tmp_path: Path) -> None:
    """All get what the one read."""
    flight = Flight(tmp_path)
    flight.lives(10, pools=used(1000))
    made = past(flight)
    begun = 0

    def in_thread(read: Callable[[], bytes]) -> asyncio.Future[bytes]:
        nonlocal begun
        begun += 1
        return asyncio.ensure_future(asyncio.to_thread(read))

    async def ask() -> list[bytes]:
        return await asyncio.gather(*(made.asked(in_thread) for _ in range(20)))

    answers = asyncio.run(ask())

    assert begun == 1
    assert len(set(answers)) == 1


def test_older_than_half_an_hour_is_left_out(tmp_path: Path) -> None:
    """Of a ring that was set to hold more."""
    flight = Flight(tmp_path, minutes=60)
    flight.lives(60, pools=used(1000))
    flight.clock.now += MAX_MINUTES * 60 - 30
    flight.lives(5, pools=used(1000))

    (line,) = points(past(flight)).values()

    assert line[0][0] >= flight.wall() - MAX_MINUTES * 60


def test_a_time_that_is_none_costs_its_segment(tmp_path: Path) -> None:
    """A made-up file in the ring spoils nothing else of the answer."""
    flight = Flight(tmp_path)
    flight.lives(130, pools=used(1000))
    absurd = tmp_path / "absurd.vramscope"
    start = Start(at=0.0, wall=0.0, run="x", version="1", simulated=False, state=())
    server = Server(at=0.0, name="chat", reading=serving(float("inf")), seconds=0.0)
    absurd.write_bytes(pack([start, server])[0])

    found = points(past(flight, lambda: [*flight.ring.segments(), absurd]))

    (line,) = found.values()
    assert len(line) > 20


def test_nothing_lies_in_the_future(tmp_path: Path) -> None:
    """Where the clock was set back, what was recorded before is not shown at times that are yet to come."""
    flight = Flight(tmp_path)
    flight.lives(70, pools=used(1000))
    flight.wall_offset -= 3600
    flight.lives(70, pools=used(2000))

    (line,) = points(past(flight)).values()

    at, tokens = line[-1]
    assert abs(at - flight.wall()) <= 2 * STEP_SECONDS
    assert tokens == 2000
