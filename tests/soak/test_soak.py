"""Hours of faults in fast motion, one of each deck a minute: afterwards nothing is left of them in the program."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.soak.faults import DRIVER, OTHERS, SERVERS, Fault
from tests.soak.world import Figures, World, world

RATE = 72.0
MINUTE, FAULT_SECONDS = 60.0, 40.0
WARM_UP_MINUTES = 20  # until every card has been dealt once
CALM_MINUTES = 11  # until what went is forgotten, and histories are full again
LOOKS = 10
NOISE = 260  # objects of a type: caches hold up to 256
NOISE_SERIES = 10  # what is not known at each moment; a server that stays behind has more
POOL = "asyncio_"  # threads that the event loop keeps for its next need; a few at most


def dealt(deck: dict[str, Fault], seed: int) -> Iterator[Fault]:
    """Each card once in every round, in another order each time."""
    chance = random.Random(seed)
    while True:
        yield from chance.sample(list(deck.values()), len(deck))


def storm(around: World, minutes: int, decks: list[Iterator[Fault]]) -> None:
    """A minute is three faults at once, and then peace."""
    around.discover(on=True)
    around.clock.run_at(RATE)
    end = around.clock.now
    for _ in range(minutes):
        end += MINUTE
        with ExitStack() as stack:
            for deck in decks:
                stack.enter_context(next(deck)(around))
            around.clock.sleep(FAULT_SECONDS)
        around.beta.requests.clear()
        around.clock.sleep(max(0.0, end - around.clock.now))


def calm(around: World) -> Figures:
    """What is alive when everything that happened should be forgotten."""
    around.discover(on=False)
    around.clock.run_at(RATE)
    around.clock.sleep(CALM_MINUTES * MINUTE)
    return around.figures()


def left(around: World, before: Figures, *, room_mib: float) -> dict[str, object]:
    """What there is more of than before, and stays: what merely runs at a moment has ended at one of the next looks."""
    found = {}
    for _ in range(LOOKS):
        found = grown(before, around.figures(), room_mib=room_mib)
        if not found:
            break
        around.clock.sleep(1)
    return found


def grown(before: Figures, after: Figures, *, room_mib: float) -> dict[str, object]:
    """What there is more of than before."""
    more = Counter(after.objects) - Counter(before.objects)
    found: dict[str, object] = {kind: count for kind, count in more.items() if count > NOISE}
    for what in ("tasks", "threads"):
        extra = Counter(name for name in getattr(after, what) if not name.startswith(POOL))
        extra -= Counter(getattr(before, what))
        if extra:
            found[what] = dict(extra)
    for what, room in (
        ("children", 0),
        ("descriptors", 1),
        ("series", NOISE_SERIES),
        ("entries", before.entries // 50),
    ):
        if getattr(after, what) > getattr(before, what) + room:
            found[what] = (getattr(before, what), getattr(after, what))
    if after.resident_mib > before.resident_mib + room_mib:
        found["resident_mib"] = (before.resident_mib, after.resident_mib)
    return found


def soak(folder: Path, *, hours: int, room_mib: float) -> None:
    decks = [dealt(deck, seed) for seed, deck in enumerate((DRIVER, SERVERS, OTHERS))]
    with world(folder) as around:
        around.program.until(around.is_well, seconds=60)
        storm(around, WARM_UP_MINUTES, decks)
        before = calm(around)
        told(0, before)
        for hour in range(1, hours + 1):
            storm(around, 60 - CALM_MINUTES - (WARM_UP_MINUTES + CALM_MINUTES) * (hour == 1), decks)
            told(hour, calm(around))

        assert left(around, before, room_mib=room_mib) == {}


def told(hour: int, figures: Figures) -> None:
    counts = f"{sum(figures.objects.values())} objects, {figures.entries} entries, {len(figures.tasks)} tasks"
    held = f"{len(figures.threads)} threads, {figures.descriptors} descriptors, {figures.children} children"
    print(f"hour {hour}: {figures.resident_mib:.1f} MiB, {counts}, {held}, {figures.series} samples", flush=True)


def test_an_hour_of_faults_leaves_nothing_behind(tmp_path: Path) -> None:
    """Memory, threads, descriptors, children, tasks and every kind of object are as many as before."""
    soak(tmp_path, hours=1, room_mib=4)


@pytest.mark.soak
def test_a_day_of_faults_leaves_nothing_behind(tmp_path: Path) -> None:
    """The same over twenty-four hours."""
    soak(tmp_path, hours=24, room_mib=8)
