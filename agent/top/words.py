"""What a terminal shows of figures and names: short, ASCII where that does, and of a width that is known."""

import unicodedata
from datetime import UTC, datetime
from typing import Literal

from agent.memory.levels import Level
from agent.memory.risk import Risk
from agent.memory.units import GIB, duration_text
from agent.printable import printable
from agent.risk_words import level_text, short
from agent.snapshot import FULL_RATIO, ExhaustionSeconds

UNKNOWN = "-"
_UNSURE = ("Mn", "Me", "Mc", "So", "Sk", "Cn", "Co")


def name(text: str) -> str:
    """A name of others. What terminals do not agree on the width of (marks, emoji) is escaped too."""
    return "".join(
        char
        if char.isascii() or unicodedata.category(char) not in _UNSURE
        else char.encode("unicode_escape").decode("ascii")
        for char in printable(text)
    )


def moment(at: float, form: str) -> str:
    """Seconds since the epoch as UTC, in the form of ``strftime``; those of no year are not known."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return UNKNOWN


def standing(one: Level | Literal["down"] | None) -> str:
    """A level, or down."""
    return UNKNOWN if one is None else one.replace("_", " ")


def risk(one: Risk | None, *, reason: bool = True) -> str:
    """The level, and its reason where that is wanted; of what is only held that it is."""
    if one is None:
        return UNKNOWN
    if reason:
        return short(one)
    return level_text(one.level) if one.held_seconds is None else "held"


def down(one: Risk | None, *, reason: bool = True) -> str:
    """Of a server that is down, and that it restarts again and again where that is wanted."""
    return "down, restarts" if reason and one is not None and "restart_loop" in one.levels else "down"


def left(seconds: ExhaustionSeconds | None, used_ratio: float | None = None, *, early: bool = False) -> str:
    """Time left, likely or at the soonest; a pool that ran out lately and has room again is not full."""
    value = None if seconds is None else seconds.early if early else seconds.likely
    if value is None:
        return UNKNOWN
    if value > 0:
        return duration_text(value)
    return "ran out" if used_ratio is not None and used_ratio < FULL_RATIO else "full"


def gib(used: int | None, total: int | None) -> str:
    """``66.1/79.6`` GiB."""
    return "/".join(UNKNOWN if count is None else f"{count / GIB:.1f}" for count in (used, total))


def ratio(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1%}"


def count(number: float | None) -> str:
    """A count in at most six characters: ``950``, ``175.9k``, ``1.2M``."""
    if number is None:
        return UNKNOWN
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 0.99995 * unit:
            return f"{number / unit:.1f}{suffix}"
    return f"{number:.0f}"


def growth(tokens_per_second: float | None) -> str:
    """Signed, with a decimal where it is small."""
    if tokens_per_second is None:
        return UNKNOWN
    if abs(tokens_per_second) >= 10_000:
        return ("+" if tokens_per_second > 0 else "") + count(tokens_per_second)
    text = f"{tokens_per_second:+,.0f}" if abs(tokens_per_second) >= 10 else f"{tokens_per_second:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text
