"""What the terminal at hand can do, from its environment: whether it can be drawn on, and whether it has colours."""

import curses
from collections.abc import Mapping

UNDRAWABLE = ("", "dumb", "unknown")
TRUE_COLOUR = ("truecolor", "24bit")
ENOUGH = 256
"""With fewer colours parts of a bar would look the same; letters tell them apart."""


def can_be_drawn_on(environment: Mapping[str, str]) -> bool:
    """Whether a cursor can be moved on it."""
    return environment.get("TERM", "") not in UNDRAWABLE


def colour_system(environment: Mapping[str, str]) -> str | None:
    """``truecolor`` or ``256``; None where there are fewer or none are wanted (https://no-color.org)."""
    if environment.get("NO_COLOR"):
        return None
    if environment.get("COLORTERM", "").lower() in TRUE_COLOUR:
        return "truecolor"
    return "256" if _colours(environment.get("TERM", "")) >= ENOUGH else None


def _colours(term: str) -> int:
    """As its description says; none for one that has no description here."""
    try:
        curses.setupterm(term, 1)
        return curses.tigetnum("colors")
    except curses.error:
        return 256 if "256color" in term else 0
