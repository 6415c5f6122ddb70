"""What Grafana puts in the place of a dashboard's variables, and the requests that it makes of a panel's queries."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from tests.prometheus import Prometheus

POINTS = 1000  # as wide as a panel
SCRAPE_INTERVALS = 4  # of which $__rate_interval is at least made
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
STEPS = (10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600)
LABEL_VALUES = re.compile(r"label_values\((?P<series>.+), (?P<label>\w+)\)")
VARIABLE = re.compile(r"\$\{?([a-zA-Z_]\w*)\}?")


class View(Struct, frozen=True, kw_only=True):
    """A dashboard opened at its own time range: when it ends, its length and the step of its queries in seconds."""

    end: int
    range_seconds: int
    step: int
    values: dict[str, str]

    @property
    def start(self) -> int:
        return self.end - self.range_seconds

    def filled_in(self, expression: str) -> str:
        """The expression as it is sent."""
        return VARIABLE.sub(lambda found: self.values[found[1]], expression)


def opened(document: Mapping[str, Any], server: Prometheus, *, end: int, scrape_seconds: int, everything: bool) -> View:
    """A dashboard as it is opened at ``end``, with each variable at "All" or with all of its values chosen by hand.

    Raises:
        AssertionError: a variable has no value.
    """
    number, unit = re.fullmatch(r"now-(\d+)([smhd])", document["time"]["from"]).groups()  # type: ignore[union-attr]
    seconds = int(number) * UNITS[unit]
    step = max(scrape_seconds, next(step for step in STEPS if step * POINTS >= seconds))
    values = {
        "__interval": f"{step}s",
        "__rate_interval": f"{max(step + scrape_seconds, SCRAPE_INTERVALS * scrape_seconds)}s",
        "__range": f"{seconds}s",
        "__range_s": str(seconds),
    }
    view = View(end=end, range_seconds=seconds, step=step, values=values)
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            found = label_values(view.filled_in(variable["query"]), server, view)
            assert found, f"no value of {variable['name']}"
            values[variable["name"]] = _chosen(variable, found, everything=everything)
    return view


def label_values(query: str, server: Prometheus, view: View) -> list[str]:
    """What a variable's query finds within the time range."""
    asked = LABEL_VALUES.fullmatch(query)
    assert asked is not None, query
    found: list[str] = server.get(
        f"label/{asked['label']}/values",
        **{"match[]": asked["series"], "start": str(view.start), "end": str(view.end)},
    )
    return found


def _chosen(variable: Mapping[str, Any], found: Sequence[str], *, everything: bool) -> str:
    if everything and variable.get("allValue"):
        return str(variable["allValue"])
    escaped = [re.sub(r"[\\^$*+?.()|\[\]{}]", r"\\\\\g<0>", value) for value in found]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"
