"""Creep against steps, in simulated hours: noise that remembers, spikes, and steps of up to a GiB."""

import random
from collections.abc import Sequence

import pytest

from agent.memory.creep import CreepWatch, creep_of, slope_of

MIB = 2**20
NOISE_BYTES = 7 * MIB
MEMORY = 0.75  # of a minute's noise, what the next one keeps


def watched(seed: int, *, hours: float, mib_per_hour: float, steps: int) -> CreepWatch:
    """A minute's lowest each minute: creep, noise of 7 MiB, in 15 % of minutes a spike, steps at random times."""
    chance = random.Random(seed)
    minutes = int(60 * hours)
    jumps = [
        (chance.uniform(5, minutes - 5), chance.choice((1, 1, 1, -1)) * chance.uniform(64, 1024) * MIB)
        for _ in range(steps)
    ]
    watch = CreepWatch()
    noise = chance.gauss(0, NOISE_BYTES)
    for minute in range(minutes + 1):
        noise = MEMORY * noise + chance.gauss(0, NOISE_BYTES) * (1 - MEMORY**2) ** 0.5
        used = 8 * 1024 * MIB + mib_per_hour * MIB * minute / 60 + noise
        used += sum(size for at, size in jumps if at <= minute)
        if chance.random() < 0.15:
            used += chance.uniform(32, 512) * MIB
        watch.add(60.0 * minute, int(used))
    return watch


def found(seeds: Sequence[int], *, hours: float, mib_per_hour: float, steps: int) -> list[float]:
    """MiB per hour where creep is stated at the end."""
    ends = (watched(seed, hours=hours, mib_per_hour=mib_per_hour, steps=steps).creep for seed in seeds)
    return [creep.bytes_per_hour / MIB for creep in ends if creep is not None]


@pytest.mark.parametrize(("hours", "slope"), [(2, 40), (6, 10), (12, 2)])
def test_creep_without_steps_is_told(hours: float, slope: float) -> None:
    """40, 10 and 2 MiB an hour within 2, 6 and 12 hours, and about how much."""
    told = found(range(6), hours=hours, mib_per_hour=slope, steps=0)

    assert len(told) == 6
    assert sum(told) / len(told) == pytest.approx(slope, rel=0.25)


@pytest.mark.parametrize(("hours", "slope", "least"), [(2, 40, 10), (6, 10, 11), (12, 2, 6)])
def test_creep_is_told_apart_from_steps(hours: float, slope: float, least: int) -> None:
    """With three steps between, most of twelve: every step costs what lies across it."""
    assert len(found(range(12), hours=hours, mib_per_hour=slope, steps=3)) >= least


@pytest.mark.parametrize("hours", [2, 6, 12])
def test_steps_alone_are_no_creep(hours: float) -> None:
    """Twelve devices with three steps each: none is said to grow."""
    assert found(range(100, 112), hours=hours, mib_per_hour=0, steps=3) == []


def flat(level: float, minutes: range, watch: CreepWatch) -> None:
    for minute in minutes:
        watch.add(60.0 * minute, int(level))


def test_a_step_is_remembered_with_its_size() -> None:
    """A gibibyte more, then half of it back: both, and the envelope where it is now."""
    watch = CreepWatch()
    flat(1024 * MIB, range(30), watch)
    flat(2048 * MIB, range(30, 60), watch)
    flat(1536 * MIB, range(60, 91), watch)

    assert [step.bytes for step in watch.steps] == [1024 * MIB, -512 * MIB]
    assert watch.envelope == 1536 * MIB


def test_a_step_is_no_transient_and_a_spike_is_one() -> None:
    """What comes and goes within minutes is a transient of its height over the level before and after."""
    watch = CreepWatch()
    flat(1024 * MIB, range(30), watch)
    watch.add(60.0 * 30, 1024 * MIB, 1324 * MIB)
    flat(1024 * MIB, range(31, 60), watch)
    flat(3072 * MIB, range(60, 120), watch)

    assert watch.transient_bytes == 300 * MIB


def test_a_fast_leak_is_creep_and_no_chain_of_steps() -> None:
    """33 MiB each minute: above what a step differs, and steady."""
    watch = CreepWatch()
    for minute in range(130):
        watch.add(60.0 * minute, 33 * MIB * minute)

    assert watch.creep is not None
    assert watch.creep.bytes_per_hour == pytest.approx(33 * 60 * MIB, rel=0.05)
    assert len(watch.steps) <= 6


def test_a_warm_up_that_gets_slower_is_no_creep() -> None:
    """New maxima that get rarer: half an hour's growth, then nothing for hours."""
    watch = CreepWatch()
    for minute in range(300):
        watch.add(60.0 * minute, int(100 * MIB * (1 - 0.97**minute)))

    assert watch.creep is None


def test_a_warm_up_over_hours_is_no_creep() -> None:
    """1.5 GiB, each half hour half of the rest: whenever one looks."""
    watch = CreepWatch()
    for minute in range(300):
        watch.add(60.0 * minute, int(8 * 1024 * MIB + 1536 * MIB * (1 - 0.5 ** (minute / 30))))
        assert watch.creep is None


def test_nothing_is_said_in_the_first_two_hours() -> None:
    """However steep it is."""
    watch = CreepWatch()
    for minute in range(110):
        watch.add(60.0 * minute, 2 * MIB * minute)

    assert watch.creep is None


def test_a_blind_time_is_no_slope() -> None:
    """What changed while nothing was read belongs to no segment."""
    watch = CreepWatch()
    flat(1024 * MIB, range(90), watch)
    flat(4096 * MIB, range(150, 240), watch)

    assert (watch.creep, list(watch.steps)) == (None, [])


def test_memory_is_bounded_over_weeks() -> None:
    """Points are thinned: two days take no more room than three hours, and creep is still known."""
    watch = CreepWatch()
    for minute in range(3_000):
        watch.add(60.0 * minute, MIB * minute // 60)

    assert len(watch._points) <= 96
    assert watch.creep is not None
    assert watch.creep.bytes_per_hour == pytest.approx(MIB, rel=0.1)


def test_slope_by_hand() -> None:
    """Two segments of slope 2 at different levels: the level between them is no slope; too few pairs are none."""
    segments = [
        [(0.0, 0.0), (1.0, 2.0), (2.0, 4.0), (3.0, 6.0)],
        [(4.0, 100.0), (5.0, 102.0), (6.0, 104.0), (7.0, 106.0)],
    ]

    assert slope_of(segments) == 2.0
    assert slope_of(segments[:1]) is None
    assert creep_of(segments[:1]) is None
