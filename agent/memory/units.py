"""Bytes and counts as people write them, and the two values an account is made of."""

import math
import re

from msgspec import Struct

MIB = 1 << 20
GIB = 1 << 30

_SUFFIXES = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000, "K": 1 << 10, "M": MIB, "G": GIB}


class Range(Struct, frozen=True, kw_only=True):
    """Bytes that can't be predicted exactly: low and high bound, the likely value, and what they rest on."""

    low: int
    likely: int
    high: int
    source: str


class Term(Struct, frozen=True, kw_only=True):
    """One line of ``--explain``: what, the formula with its numbers filled in, and where the formula is from."""

    name: str
    value: int | float | str
    formula: str
    source: str


def ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def size_text(count: int) -> str:
    """Bytes for a person: GiB from half a GiB on, MiB and KiB below, plain bytes below 1 KiB."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if abs(count) >= unit // 2:
            return f"{count / unit:,.2f} {name}"
    return f"{count} B"


def duration_text(seconds: float) -> str:
    """Seconds for a person, in the one unit that says enough."""
    for unit, name, least in ((86400.0, "d", 2.0), (3600.0, "h", 2.0), (60.0, "min", 2.0)):
        if seconds >= unit * least:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def parse_count(text: str) -> int:
    """An integer as vLLM's command line reads it: 32k is 32,000 and 32K is 32,768; fractions before a suffix count.

    Raises:
        ValueError: it is not such a number.
    """
    match = re.fullmatch(r"(\d{1,18})(?:\.(\d{1,6}))?([kmgKMG])?", text, re.ASCII)
    if match is None or (match[2] and not match[3]):
        raise ValueError(f"expected an integer, got {text!r}")
    return (
        int(float(f"{match[1]}.{match[2]}") * _SUFFIXES[match[3]])
        if match[2]
        else int(match[1]) * _SUFFIXES.get(match[3] or "", 1)
    )


MAX_SHOWN = 800
"""Of a value's repr; 60 characters of text never have more."""


def shown(value: object) -> str:
    """A value in a message: short, whatever it is."""
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, float) and not math.isfinite(value):
        return "what is no number" if math.isnan(value) else "a number beyond all bounds"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)} entries"
    if isinstance(value, str) and len(value) > 60:
        return f"{value[:60]!r}..."
    written = repr(value)
    return written if len(written) <= MAX_SHOWN else f"{written[:MAX_SHOWN]}..."
