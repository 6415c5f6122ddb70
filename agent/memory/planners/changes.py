"""What a change of an engine's version does to memory, in words: made from the same rules that the planners follow."""

from collections.abc import Iterator, Mapping

from msgspec import Struct


class Wording(Struct, frozen=True, kw_only=True):
    """What it means for memory that a rule came into force, and that it went again. ``{old}`` and ``{new}`` are values.

    ``ruled_out_by``: an argument; where both runs had the same value of it, the rule made no difference.
    """

    gained: str
    lost: str
    ruled_out_by: str | None = None


class Change(Struct, frozen=True, kw_only=True):
    """One known change between two versions, in words."""

    text: str
    ruled_out_by: str | None = None


def changes_between(before: Struct, after: Struct, words: Mapping[str, Wording]) -> Iterator[Change]:
    """What differs between the rules of two versions; a rule without words moves no memory."""
    for rule, wording in words.items():
        old, new = getattr(before, rule), getattr(after, rule)
        if old != new:
            text = wording.gained if new > old else wording.lost
            yield Change(text=text.format(old=old, new=new), ruled_out_by=wording.ruled_out_by)
