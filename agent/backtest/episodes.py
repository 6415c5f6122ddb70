"""What happened in a recording: episodes that end with the first shortage, or without one.

An episode begins with the recording, with a restart, or when a pool has had no shortage for two minutes. An event is
*foreseeable* when use was 0.6 or more a minute before; *unseen* when it came within a minute of the start or after half
a minute without a reading; else a *jump*, which nobody can see coming.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from agent.memory.pool_state import is_shortage, went_back
from agent.memory.signals import PoolSignal

RISE_FROM = 0.6
AGAIN_SECONDS = 120.0
UNSEEN_SECONDS = 60.0
GAP_SECONDS = 30.0

Kind = Literal["foreseeable", "jump", "unseen"]


class Episode(Struct, frozen=True, kw_only=True):
    """``event``: it ended in a shortage, of that ``kind``, ``rise_seconds`` after use last was below 0.6."""

    begin: float
    end: float
    event: bool = False
    kind: Kind | None = None
    rise_seconds: float = 0.0
    near: tuple[float, ...] = ()  # moments at which use was 0.95 or more


def episodes_of(signals: Sequence[PoolSignal], *, live_gauges: bool = True) -> list[Episode]:
    """All episodes of a recording, in order."""
    found: list[Episode] = []
    walk: list[PoolSignal] = []
    quiet_at: float | None = None  # the last shortage, while less than two minutes ago
    last: PoolSignal | None = None
    for now in signals:
        short = last is not None and is_shortage(last, now, live_gauges=live_gauges)
        began_anew = last is not None and (now.used_ratio is None or went_back(last, now))
        last = now if now.used_ratio is not None else None
        if short and quiet_at is None:
            found.append(_episode(walk, now.at, event=True))
            walk = []
        if short:
            quiet_at = now.at
        elif quiet_at is not None and (began_anew or now.at - quiet_at >= AGAIN_SECONDS):
            quiet_at = None
        if began_anew and walk:
            found.append(_episode(walk, walk[-1].at, event=False))
            walk = []
        if quiet_at is None and now.used_ratio is not None:
            walk.append(now)
    if walk:
        found.append(_episode(walk, walk[-1].at, event=False))
    return found


def _episode(walk: Sequence[PoolSignal], end: float, *, event: bool) -> Episode:
    begin = walk[0].at if walk else end
    near = tuple(one.at for one in walk if (one.used_ratio or 0.0) >= 0.95)
    if not event:
        return Episode(begin=begin, end=end, near=near)
    low = [one.at for one in walk if (one.used_ratio or 0.0) < RISE_FROM]
    before = [one for one in walk if one.at <= end - UNSEEN_SECONDS]
    kind: Kind = "foreseeable" if before and (before[-1].used_ratio or 0.0) >= RISE_FROM else "jump"
    if not before or end - walk[-1].at > GAP_SECONDS:
        kind = "unseen"
    rise = end - (low[-1] if low else begin)
    return Episode(begin=begin, end=end, event=True, kind=kind, rise_seconds=rise, near=near)
