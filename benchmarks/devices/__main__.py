"""``python -m benchmarks.devices [SEEDS]``: play every story; leaves ``docs/devices.json`` for docs/architecture.md."""

import sys
from pathlib import Path
from random import Random
from statistics import median

import msgspec
from msgspec import Struct

from benchmarks.devices.scene import LOOK_SECONDS, Scene
from benchmarks.devices.stories import STORIES, Story

RESULT = Path("docs/devices.json")
SEEDS = 20


class Told(Struct, frozen=True, kw_only=True):
    """One story with one seed: after how many minutes what must be told was, and what else was told."""

    minutes: float | None
    else_told: tuple[str, ...]


class Row(Struct, frozen=True, kw_only=True):
    """A story over all seeds. ``told`` of ``seeds`` as it must be, half of them by ``middle_minutes``."""

    says: str
    reason: str | None
    seeds: int
    told: int
    middle_minutes: float | None
    else_told: dict[str, int] = {}


def play(story: Story, name: str, seed: int) -> Told:
    """Minutes are from the beginning of the story."""
    scene = Scene(Random(f"{name}:{seed}"), devices=story.devices)
    minutes: float | None = None
    others: set[str] = set()
    for passed, _ in enumerate(story.play(scene), start=1):
        for who, reasons in scene.look().items():
            for reason in reasons:
                if reason != story.reason or (who != story.who and not _is_shared(story, reason)):
                    others.add(f"{who}: {reason}")
                elif minutes is None and who == story.who:
                    minutes = passed * LOOK_SECONDS / 60
    return Told(minutes=minutes, else_told=tuple(sorted(others)))


def _is_shared(story: Story, reason: str) -> bool:
    """Room for temporaries is told of the server and of its device."""
    return reason == story.reason == "no_transient_room"


def row(name: str, seeds: int) -> Row:
    """One story with so many seeds."""
    story = STORIES[name]
    told = [play(story, name, seed) for seed in range(seeds)]
    minutes = [one.minutes for one in told if one.minutes is not None]
    others = [other for one in told for other in one.else_told]
    return Row(
        says=story.says,
        reason=story.reason,
        seeds=seeds,
        told=len(minutes),
        middle_minutes=median(minutes) if minutes else None,
        else_told={other: others.count(other) for other in sorted(set(others))},
    )


def main(arguments: list[str]) -> int:
    seeds = int(arguments[0]) if arguments else SEEDS
    found = {name: row(name, seeds) for name in STORIES}
    for name, one in found.items():
        print(f"{name}: {one.reason} {one.told}/{one.seeds} after {one.middle_minutes} min; else {one.else_told}")
    if not arguments:
        RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
