"""The chart of ``docs/fragmentation.md``: the memory of one rank over its recorded life, as the breakdown names it."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from agent.memory.allocator import joined, refined
from agent.memory.breakdown import Part
from agent.memory.units import MIB
from collectors.readings import ProbeReading

RECORDED = Path(__file__).parent.parent / "tests" / "fixtures" / "allocator" / "life.csv"
WEIGHTS_MIB, POOL_MIB = 15_360, 49_152
COLOURS = {
    "weights": "#4878b0",
    "KV pool": "#f0a348",
    "CUDA graphs": "#6a4c93",
    "context": "#8f6bb8",
    "runtime": "#b8a9c9",
    "activations": "#d96f6f",
    "allocator slack": "#f3c5c5",
}
WIDTH, HEIGHT, LEFT, TOP, RIGHT = 860, 300, 56, 16, 160
GRID_GIB = 20
BELOW = 110
_TOTAL_MIB = 81_920


class Moment(Struct, frozen=True, kw_only=True):
    """One row: MiB by component, and the share of what is reserved that is not active."""

    seconds: float
    sizes: dict[str, float]
    fragmentation: float


def svg() -> str:
    """The whole picture; the same recording gives the same text."""
    moments = list(_moments())
    end = moments[-1].seconds
    across = [LEFT + moment.seconds / end * (WIDTH - LEFT - RIGHT) for moment in moments]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {TOP + HEIGHT + BELOW + 30}" '
        'font-family="sans-serif" font-size="12">',
        "<title>Memory of one rank over its life, and the fragmentation of its allocator</title>",
        f'<rect width="{WIDTH}" height="{TOP + HEIGHT + BELOW + 30}" fill="#ffffff"/>',
        *_areas(moments, across),
        *_grid(),
        *_fragmentation(moments, across),
        f'<text x="{LEFT}" y="{TOP + HEIGHT + BELOW + 24}">{end:g} s: load, trial run, graphs, serving, mixed lengths,'
        " an emptied cache, a leak</text>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _moments() -> Iterator[Moment]:
    with RECORDED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield _moment(row)


def _moment(row: dict[str, str]) -> Moment:
    active, reserved, private = (int(row[name]) * MIB for name in ("active", "reserved", "private_pools"))
    reading = ProbeReading(
        pid=1,
        at=0.0,
        lasts_seconds=1.0,
        file="",
        number=0,
        active_bytes=active,
        reserved_bytes=reserved,
        private_pools_bytes=private,
    )
    allocator = joined([reading], total_bytes=_TOTAL_MIB * MIB, pids={1})
    if allocator is None:
        raise ValueError(f"{RECORDED}: no figures at {row['seconds']} s")
    named = {"weights": WEIGHTS_MIB, "kv_used": POOL_MIB} if row["named"] == "1" else {}
    known = [Part(component=name, server="", bytes=size * MIB, evidence="computed") for name, size in named.items()]
    parts = refined(known, allocator, server="", held_bytes=int(row["held"]) * MIB).parts
    sizes = {part.component.replace("kv_used", "KV pool"): part.bytes / MIB for part in parts}
    sizes = {name.replace("cuda_graphs", "CUDA graphs").replace("_", " "): size for name, size in sizes.items()}
    sizes["runtime"] = int(row["held"]) - sum(sizes.values())
    ratio = allocator.fragmentation_ratio or 0.0
    return Moment(seconds=float(row["seconds"]), sizes=sizes, fragmentation=ratio)


def _areas(moments: Sequence[Moment], across: Sequence[float]) -> Iterator[str]:
    floor = [0.0] * len(moments)
    for number, (name, colour) in enumerate(COLOURS.items()):
        roof = [low + moment.sizes.get(name, 0.0) for low, moment in zip(floor, moments, strict=True)]
        edge = [*zip(across, roof, strict=True), *reversed(list(zip(across, floor, strict=True)))]
        points = " ".join(f"{x:.1f},{_up(size):.1f}" for x, size in edge)
        yield f'<polygon points="{points}" fill="{colour}"/>'
        y = TOP + HEIGHT - 20 * number
        yield f'<rect x="{WIDTH - RIGHT + 16}" y="{y - 10}" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{WIDTH - RIGHT + 34}" y="{y}">{name}</text>'
        floor = roof


def _up(mib: float) -> float:
    return TOP + HEIGHT * (1 - mib / _TOTAL_MIB)


def _grid() -> Iterator[str]:
    for gib in range(0, _TOTAL_MIB // 1024 + 1, GRID_GIB):
        y = _up(gib * 1024)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#00000022"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{gib} GiB</text>'


def _fragmentation(moments: Sequence[Moment], across: Sequence[float]) -> Iterator[str]:
    """External fragmentation, 0 to 20 %, below the areas."""
    base = TOP + HEIGHT + BELOW
    tall = BELOW - 24
    points = " ".join(
        f"{x:.1f},{base - tall * min(moment.fragmentation / 0.2, 1.0):.1f}"
        for x, moment in zip(across, moments, strict=True)
    )
    for share in (0, 10, 20):
        y = base - tall * share / 20
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#00000022"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share} %</text>'
    yield f'<polyline points="{points}" fill="none" stroke="#a02020" stroke-width="2"/>'
    yield f'<text x="{WIDTH - RIGHT + 16}" y="{base - tall / 2 - 8:.0f}">external</text>'
    yield f'<text x="{WIDTH - RIGHT + 16}" y="{base - tall / 2 + 8:.0f}">fragmentation</text>'
