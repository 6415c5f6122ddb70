"""Flags of a command line with typed values, for parsers that take ``--flag value``, ``--flag=value``, ``--no-flag``.

Only flags of an engine's table are read; of a repeated flag the last counts. A value that can't be one of its flag, or
that holds a secret, is left out.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from collectors.discovery.command import Value
from collectors.procfs import redact

Kind = Literal["whole", "number", "text", "switch"]
MAX_TEXT_LENGTH = 4096
_WHOLE = re.compile(r"-?\d{1,18}")


class FlagTable(Struct, frozen=True, kw_only=True):
    """``kinds`` by a flag's name without dashes; ``aliases`` are its other names.

    ``arguments``: what a flag is in the agent's words (``agent.memory.arguments``), for an engine without a planner.
    """

    kinds: Mapping[str, Kind] = {}
    aliases: Mapping[str, str] = {}
    arguments: Mapping[str, str] = {}

    @property
    def meanings(self) -> dict[str, str | None]:
        """By each name of a flag, what it is in the agent's words; None where it has no word for it."""
        names = {**{name: name for name in self.kinds}, **self.aliases}
        return {name: self.arguments.get(full) for name, full in names.items()}


def read_flags(words: Sequence[str], table: FlagTable) -> dict[str, Value]:
    """The known flags among words, by their full name."""
    values: dict[str, Value] = {}
    for place, word in enumerate(words):
        if not word.startswith("-"):
            continue
        head, equals, given = word.partition("=")
        name = head.lstrip("-").replace("_", "-")
        name = table.aliases.get(name, name)
        kind = table.kinds.get(name)
        if kind == "switch":
            values[name] = True
        elif table.kinds.get(name.removeprefix("no-")) == "switch":
            values[name.removeprefix("no-")] = False
        elif kind is not None:
            text = given if equals else words[place + 1] if place + 1 < len(words) else ""
            value = _READERS[kind](text)
            if value is not None:
                values[name] = value
    return values


def whole(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None


def finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def plain_text(text: str) -> str | None:
    """As it is, unless redaction would have to change it."""
    is_plain = 0 < len(text) <= MAX_TEXT_LENGTH and text.isprintable()
    return text if is_plain and redact([text]) == " ".join(text.split()) else None


_READERS: dict[Kind, Callable[[str], Value | None]] = {"whole": whole, "number": finite, "text": plain_text}
