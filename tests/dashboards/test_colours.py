"""One colour is one component, in all dashboards as on the agent's own page."""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.model import FILES, load, panels
from tests.page_colours import COLOURS

LEVELS = {"ok": "#5794f2", "watch": "#fade2a", "at risk": "#ff780a", "critical": "#c4162a"}
JUST_NOTICEABLE = 2.3  # difference of CIE L*a*b* (Mahy and others, 1994)
OTHERS = "other_processes"  # a guest is what an operator looks for, so it stands out from all that belongs there
SOURCES = ("endpoint", "nvml", "processes", "log", "model", "probe", "recorder")
PALETTE = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830")  # palette-classic begins so; its fifth is like its first
Matrix = Sequence[Sequence[float]]
EYES: dict[str, Matrix] = {  # linear RGB as the others see it: Machado, Oliveira and Fernandes (2009), full severity
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
XYZ: Matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE = (0.95047, 1.0, 1.08883)
DRAWN = [
    (path.stem, panel)
    for path in FILES
    for panel in panels(load(path))
    if panel["type"] == "timeseries"
    and any(one["legendFormat"].startswith("{{component}}") for one in panel["targets"])
]


def _colour(panel: dict[str, Any], series: str) -> str | None:
    """What Grafana gives a series: of the overrides that match its name the last one counts."""
    colour = None
    for override in panel["fieldConfig"]["overrides"]:
        kind, pattern = override["matcher"]["id"], override["matcher"]["options"]
        if re.search(pattern, series) if kind == "byRegexp" else pattern == series:
            for one in override["properties"]:
                colour = one["value"]["fixedColor"] if one["id"] == "color" else colour
    return colour


@pytest.mark.parametrize(("dashboard", "panel"), DRAWN, ids=[f"{name}: {panel['title']}" for name, panel in DRAWN])
def test_components_have_the_colours_of_the_page(dashboard: str, panel: dict[str, Any]) -> None:
    """With or without a server's name behind them; what is free is nearly no colour on either."""
    assert len(COLOURS) > 15
    for name, colour in COLOURS.items():
        assert (_colour(panel, name), _colour(panel, f"{name} chat")) == (colour, colour), name
    free = panel["fieldConfig"]["overrides"]
    assert {"id": "custom.fillOpacity", "value": 8} in next(
        one["properties"] for one in free if one["matcher"]["options"] == "^free\\b.*"
    )


def test_pools_have_the_colours_of_their_components() -> None:
    """Tokens by state look as the bytes that they are: the same names, the same colours."""
    kv = next(path for path in FILES if path.stem == "vramscope-kv")
    panel = next(panel for panel in panels(load(kv)) if panel["title"] == "KV tokens by state")

    for state in ("used", "cached", "free", "available", "reserved"):
        assert _colour(panel, f"kv_{state} full") == COLOURS[f"kv_{state}"]
    assert all('"kv_$1"' in target["expr"] for target in panel["targets"][:2])


def test_levels_have_the_same_colours_everywhere() -> None:
    """Where a level is a word it has its colour, in tables, time lines and counts."""
    for path in FILES:
        for text, colour in _words(load(path)["panels"]):
            assert LEVELS.get(text, colour) == colour, (path.stem, text)


@pytest.mark.parametrize("eye", EYES.values(), ids=EYES.keys())
def test_levels_and_components_stay_apart_for_every_eye(eye: Matrix) -> None:
    """Levels by far; of components also the shades of one colour, for parts of one thing, by more than is just seen."""
    for (one, a), (other, b) in combinations(LEVELS.items(), 2):
        assert _difference(a, b, eye) > 8 * JUST_NOTICEABLE, (one, other)
    for (one, a), (other, b) in combinations(COLOURS.items(), 2):
        assert a == b or _difference(a, b, eye) > 3 * JUST_NOTICEABLE, (one, other)
    for one in COLOURS:
        assert one == OTHERS or _difference(COLOURS[OTHERS], COLOURS[one], eye) > 10 * JUST_NOTICEABLE, one


@pytest.mark.parametrize("eye", EYES.values(), ids=EYES.keys())
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_lines_of_a_panel_stay_apart_for_every_eye(path: Path, eye: Matrix) -> None:
    """Each query's lines, in the colours that they are told, else in that which Grafana gives to its place."""
    for panel in panels(load(path)):
        if panel["type"] != "timeseries":
            continue
        drawn: set[str] = set()
        for place, target in enumerate(panel["targets"]):
            told = {colour for name in _names(target["legendFormat"]) if (colour := _colour(panel, name))}
            drawn |= told or {PALETTE[place]}
        for one, other in combinations(sorted(drawn - {"text"}), 2):
            assert _difference(one, other, eye) > 3 * JUST_NOTICEABLE, (panel["title"], one, other)


def _names(legend: str) -> set[str]:
    """What the lines of a query can be called."""
    return {re.sub(r"\{\{(component|collector|state)\}\}", name, legend) for name in (*COLOURS, *SOURCES)}


def _words(part: Any) -> Iterator[tuple[str, str]]:
    """Each text with a colour of its own, in mappings and in overrides by name."""
    if isinstance(part, dict):
        if {"text", "color"} <= part.keys():
            yield part["text"], part["color"]
        if "matcher" in part:
            for one in part["properties"]:
                if one["id"] == "color":
                    yield part["matcher"]["options"], one["value"]["fixedColor"]
        for value in part.values():
            yield from _words(value)
    elif isinstance(part, list):
        for value in part:
            yield from _words(value)


def _difference(one: str, other: str, eye: Matrix) -> float:
    return float(sum((a - b) ** 2 for a, b in zip(_lab(one, eye), _lab(other, eye), strict=True)) ** 0.5)


def _lab(colour: str, eye: Matrix) -> tuple[float, float, float]:
    """A colour of sRGB as an eye sees it, in CIE L*a*b* (IEC 61966-2-1, CIE 15)."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    seen = [min(max(value, 0.0), 1.0) for value in _times(eye, linear)]
    x, y, z = (
        ratio ** (1 / 3) if ratio > 0.008856 else 7.787 * ratio + 16 / 116
        for ratio in (value / white for value, white in zip(_times(XYZ, seen), WHITE, strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _times(matrix: Matrix, vector: Sequence[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]
