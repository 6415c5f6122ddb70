"""One colour is one component, in all dashboards as on the agent's own page."""

import re
from typing import Any

import pytest

from tests.dashboards.model import FILES, ROOT, load, panels

STYLE = (ROOT / "agent" / "web" / "style.css").read_text(encoding="utf-8")
PAGE = {
    name: colour
    for rule, colour in re.findall(r"^((?:\[data-component=[^{]+)+)\{ --c: (#\w+);", STYLE, re.MULTILINE)
    for name in re.findall(r'"(\w+)"', rule)
}
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
    assert len(PAGE) > 15
    for name, colour in PAGE.items():
        assert (_colour(panel, name), _colour(panel, f"{name} chat")) == (colour, colour), name
    assert str(_colour(panel, "free")).startswith("rgba(")


def test_pools_have_the_colours_of_their_components() -> None:
    """Tokens by state look as the bytes that they are: the same names, the same colours."""
    kv = next(path for path in FILES if path.stem == "vramscope-kv")
    panel = next(panel for panel in panels(load(kv)) if panel["title"] == "KV tokens by state")

    for state in ("used", "cached", "free", "available", "reserved"):
        assert _colour(panel, f"kv_{state} full") == PAGE[f"kv_{state}"]
    assert all('"kv_$1"' in target["expr"] for target in panel["targets"][:2])
