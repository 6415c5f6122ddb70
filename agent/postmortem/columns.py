"""Numbers over time in columns, for recordings of many hours: 8 bytes for a number and tick."""

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key")
_ABSENT = float("nan")


class Columns(Generic[Key]):
    """A column for each key; what a tick lacks is absent there."""

    def __init__(self) -> None:
        self.times = array("d")
        self._columns: dict[Key, array[float]] = {}

    def add(self, at: float, values: Mapping[Key, float]) -> None:
        """Append one tick; a time before the last one is taken for that."""
        count = len(self.times)
        self.times.append(max(at, self.times[-1]) if count else at)
        for key in [key for key in values if key not in self._columns]:
            self._columns[key] = array("d", [_ABSENT]) * count
        for key, column in self._columns.items():
            column.append(values.get(key, _ABSENT))

    @property
    def keys(self) -> list[Key]:
        """In the order in which they came."""
        return list(self._columns)

    def at(self, index: int) -> dict[Key, float]:
        """What one tick has."""
        found = ((key, column[index]) for key, column in self._columns.items())
        return {key: value for key, value in found if value == value}

    def column(self, key: Key, indices: Sequence[int]) -> list[float | None]:
        """The values of a key at these ticks."""
        column = self._columns[key]
        return [None if column[index] != column[index] else column[index] for index in indices]

    def index(self, at: float) -> int:
        """The last tick that is not after a time; the first where all are."""
        return max(0, bisect_right(self.times, at) - 1)
