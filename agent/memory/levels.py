"""One level out of many looks: up at once, down one step at a time and late, so that it does not flap."""

import math
from typing import Literal

from msgspec import Struct

Level = Literal["ok", "watch", "at_risk", "critical"]
LEVELS: tuple[Level, ...] = ("ok", "watch", "at_risk", "critical")


class Holding(Struct, frozen=True, kw_only=True):
    """How long a level stays after the last look that asked for it.

    ``seconds``: while looks are only a little better; ``calm_seconds``: while they are calm, which counts sooner.
    ``lingering_seconds``: how much longer while looks still ask for more than ok, for it is likely to be back at once.
    """

    seconds: float
    calm_seconds: float
    lingering_seconds: float = 0.0


class Levels:
    """The level of one thing that is looked at again and again."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self.clear()

    def clear(self) -> None:
        """Begin anew at ok: what was looked at is gone."""
        self.level: Level = "ok"
        self._asked_at = dict.fromkeys(LEVELS, -math.inf)
        self._uneasy_at = -math.inf
        self._looked_at = -math.inf

    @property
    def held_seconds(self) -> float | None:
        """At the newest look, how long ago one asked for the level last; None where the newest does."""
        asked_at = self._asked_at[self.level]
        return self._looked_at - asked_at if asked_at < self._looked_at else None

    def look(self, at: float, wanted: Level, *, calm: bool) -> Level:
        """Take a look that asks for a level; ``calm``: it is far from asking for more than ok."""
        current, asked = LEVELS.index(self.level), LEVELS.index(wanted)
        self._looked_at = at
        for level in LEVELS[: asked + 1]:
            self._asked_at[level] = at
        if not calm:
            self._uneasy_at = at
        if asked >= current:
            self.level = wanted
        elif self._is_over(at, since=self._asked_at[self.level], lingers=asked > 0):
            self.level = LEVELS[current - 1]
        return self.level

    def _is_over(self, at: float, *, since: float, lingers: bool) -> bool:
        calm_since = max(since, self._uneasy_at)
        longest = self._holding.seconds + (self._holding.lingering_seconds if lingers else 0.0)
        return at - since >= longest or at - calm_since >= self._holding.calm_seconds
