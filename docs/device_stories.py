"""The table of docs/architecture.md that ``python -m benchmarks.devices`` leaves in docs/devices.json."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.devices.__main__ import Row
from docs.backtested import table

RESULT = Path(__file__).parent / "devices.json"


def stories() -> Iterator[str]:
    """A row for each story."""
    found = msgspec.json.decode(RESULT.read_bytes(), type=dict[str, Row])
    heads = ("story", "what happens", "told", "in", "half of them by, min", "anything else")
    yield from table(heads, (_line(name, one) for name, one in found.items()))


def _line(name: str, row: Row) -> tuple[str, ...]:
    reason = "nothing" if row.reason is None else f"`{row.reason}`"
    others = ", ".join(f"{other} in {count}" for other, count in row.else_told.items()) or "no"
    told = "-" if row.reason is None else f"{row.told} of {row.seeds}"
    return name, row.says, reason, told, "-" if row.middle_minutes is None else f"{row.middle_minutes:.0f}", others


TABLES = {"stories": stories}
