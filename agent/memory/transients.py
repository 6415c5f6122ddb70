"""Room for transients: what the largest step needs for a moment, against what is there for it.

This is what ends engines while their pool is a third full: a long prefill, sampling for many requests at once or a
burst of images needs memory beside weights and pool, once, and gets it or fails.
"""

from collections.abc import Collection, Mapping
from typing import Literal

from msgspec import Struct

from agent.memory.allocator import Allocator

Known = Literal["measured", "reported", "computed", "predicted"]


class Transient(Struct, frozen=True, kw_only=True):
    """The highest activation peak of a rank and the room for one now; None is not known.

    What is ``predicted`` is the budget's: nobody has seen that peak.
    """

    peak_bytes: int | None = None
    peak_evidence: Known | None = None
    room_bytes: int | None = None
    room_evidence: Known | None = None

    @property
    def is_short(self) -> bool:
        """Whether such a peak would not find room."""
        return self.peak_bytes is not None and self.room_bytes is not None and self.peak_bytes > self.room_bytes


def transient(
    allocator: Allocator | None,
    *,
    lowest_active_bytes: int | None,
    reported_peak_bytes: int | None,
    predicted_peak_bytes: int | None,
    free_bytes: int,
    parts: Mapping[str, int],
    headroom_bytes: int | None,
) -> Transient:
    """What is known of it: the larger of what the allocator and the log's trial run have seen, else the budget's.

    Args:
        lowest_active_bytes: the least that was active since the rank has its pool.
        parts: the rank's components.
        headroom_bytes: free, and what of the rank's runtime is room; what stands for the room without statistics.
    """
    seen: list[tuple[int, Known]] = []
    if allocator is not None and allocator.active_peak_bytes is not None and lowest_active_bytes is not None:
        seen.append((max(0, allocator.active_peak_bytes - lowest_active_bytes), "measured"))
    if reported_peak_bytes is not None:
        seen.append((reported_peak_bytes, "reported"))
    peak = max(seen, key=lambda one: one[0], default=None) or (predicted_peak_bytes, "predicted")
    room: tuple[int | None, Known | None] = (None, None)
    if {"allocator_slack", "activations"} <= parts.keys() and allocator is not None:
        room = (free_bytes + parts["allocator_slack"] + parts["activations"], "measured")
    elif headroom_bytes is not None:
        room = (headroom_bytes, "computed")
    size, known = peak
    return Transient(
        peak_bytes=size,
        peak_evidence=None if size is None else known,
        room_bytes=room[0],
        room_evidence=room[1],
    )


class Troughs:
    """The least that was active in the allocator of each rank since it has its pool; names the rank as it likes."""

    def __init__(self) -> None:
        self._lowest: dict[tuple[str, str], tuple[Collection[int], int]] = {}

    def see(self, server: str, uuid: str, *, pids: Collection[int], active_bytes: int) -> None:
        """Take what is active now; other processes than before are another rank."""
        before, lowest = self._lowest.get((server, uuid), (pids, active_bytes))
        self._lowest[server, uuid] = (pids, min(lowest, active_bytes) if before == pids else active_bytes)

    def keep(self, serving: Collection[str]) -> None:
        """Forget ranks of servers that do not serve: what they hold when they do again is another thing."""
        if not self._lowest.keys() or {server for server, _ in self._lowest} <= set(serving):
            return
        self._lowest = {key: value for key, value in self._lowest.items() if key[0] in serving}

    def of(self, server: str, uuid: str) -> int | None:
        """None where its pool and statistics were never seen together."""
        found = self._lowest.get((server, uuid))
        return found[1] if found else None
