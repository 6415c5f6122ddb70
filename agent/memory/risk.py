"""How near a server or a device is to running out: one level, why, and the numbers that it comes from.

Signs say what is wrong now; the gravest gives the level. That of each reason rises at once and stays for 180 s after
the last look that asked for it, then falls by one level with each look; what was restarted or sleeps begins anew. While
nothing is read all levels stand, and one is never ok.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from msgspec import Struct

from agent.memory.levels import LEVELS, Holding, Level, Levels

Reason = Literal[
    "pool_exhaustion",
    "preemption_storm",
    "no_transient_room",
    "low_headroom",
    "device_creep",
    "budget_mismatch",
    "foreign_process",
    "hidden_memory",
    "fragmentation",
    "sleep_residue",
    "restart_loop",
    "host_memory",
    "hardware",
    "blind",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""Of signs that are as grave the first one here is the reason."""

MIB, GIB, HOUR = 2**20, 2**30, 3600.0
HOLD_SECONDS = 180.0
STORM_RATIO = 0.01  # of the running requests, preempted each second: above it work is thrown away for ever
HEADROOM_RATIO = 0.10  # unless the settings say otherwise; the field's rule is 10 to 15 %
LEAST_HEADROOM_RATIO = 0.03
CREEP_WATCH_SECONDS, CREEP_RISK_SECONDS, CREEP_CRITICAL_SECONDS = 72 * HOUR, 6 * HOUR, HOUR
DEVIATION_RATIO = 0.03  # of the device: more than the range of a runtime's budget explains
GUEST_BYTES = 256 * MIB  # a desktop or a monitor, or the driver's own bookkeeping, stays below
FRAGMENTATION_RATIO = 0.25
RESIDUE_BYTES = 4 * GIB  # context, libraries and graphs of a sleeping server stay below
LOOP_SECONDS, LOOP_RESTARTS = 1800.0, 3
STALL_RATIO = 0.10  # of ten seconds in which every task waits for memory: such a host hangs soon
HOST_WATCH_RATIO, HOST_RISK_RATIO = 0.10, 0.05
GRAVE_XIDS = frozenset({48, 64, 79, 94, 95, 119, 120, 140})


class Sign(Struct, frozen=True, kw_only=True):
    """Something wrong, with the numbers that say so.

    ``held``: its level falls late already; ``held_seconds``: how long ago that was asked for last, None while it is.
    """

    level: Level
    reason: Reason
    numbers: Mapping[str, float] = {}
    held: bool = False
    held_seconds: float | None = None


class Risk(Struct, frozen=True, kw_only=True):
    """The gravest level, with its reason: None while all is well. ``numbers`` are those of that reason's newest sign.

    ``held_seconds``: how long ago a sign asked for the level last, None while one does; ``numbers_age_seconds`` is 0
    while there is such a sign. ``also``: the other reasons that are not ok, with their levels;
    ``also_held_seconds``: of those whose level no sign asks for now, since when.
    """

    level: Level
    reason: Reason | None = None
    numbers: Mapping[str, float] = {}
    also: Mapping[Reason, Level] = {}
    also_held_seconds: Mapping[Reason, float] = {}
    held_seconds: float | None = None
    numbers_age_seconds: float = 0.0

    @property
    def levels(self) -> Mapping[Reason, Level]:
        """Of each reason that is not ok."""
        return {} if self.reason is None else {self.reason: self.level, **self.also}


OK = Risk(level="ok")


class RiskWatch:
    """The risk of one server or device over time; each reason rises and falls by itself."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew: it was restarted, sleeps, or is gone."""
        self._held: dict[Reason, Levels] = {}
        self._numbers: dict[Reason, tuple[float, Mapping[str, float]]] = {}
        self._risk = OK

    def look(self, at: float, signs: Iterable[Sign], *, blind: bool = False) -> Risk:
        """Take all signs of one moment. ``blind``: some could not be looked for."""
        told: list[Sign] = []
        if blind:
            told = [Sign(level=level, reason=reason) for reason, level in self._risk.levels.items()]
            told.append(Sign(level="watch", reason="blind"))
        found: dict[Reason, Sign] = {}
        for sign in sorted([*told, *signs], key=lambda one: LEVELS.index(one.level)):
            found[sign.reason] = sign
        levels = {reason: self._level(at, reason, found.get(reason)) for reason in {*found, *self._held}}
        self._numbers |= {reason: (at, sign.numbers) for reason, sign in found.items() if sign.numbers}
        self._risk = self._gravest(at, {reason: level for reason, level in levels.items() if level != "ok"}, found)
        return self._risk

    def _level(self, at: float, reason: Reason, sign: Sign | None) -> Level:
        if sign is not None and sign.held:
            return sign.level
        held = self._held.setdefault(reason, Levels(Holding(seconds=HOLD_SECONDS, calm_seconds=HOLD_SECONDS)))
        level = held.look(at, sign.level if sign is not None else "ok", calm=False)
        if level == "ok":
            del self._held[reason]
        return level

    def _gravest(self, at: float, levels: Mapping[Reason, Level], found: Mapping[Reason, Sign]) -> Risk:
        """Of reasons as grave that which it had, else the first of the closed list."""
        self._numbers = {reason: numbers for reason, numbers in self._numbers.items() if reason in levels}
        if not levels:
            return OK
        had = self._risk.reason
        reason, *others = sorted(levels, key=lambda one: (-LEVELS.index(levels[one]), one != had, REASONS.index(one)))
        seen_at, numbers = self._numbers.get(reason, (at, {}))
        late = {one: seconds for one in levels if (seconds := self._late(one, found.get(one))) is not None}
        return Risk(
            level=levels[reason],
            reason=reason,
            numbers=numbers,
            also={other: levels[other] for other in others},
            also_held_seconds={other: late[other] for other in others if other in late},
            held_seconds=late.get(reason),
            numbers_age_seconds=at - seen_at,
        )

    def _late(self, reason: Reason, sign: Sign | None) -> float | None:
        """How long ago its level was asked for last; None while it is."""
        return sign.held_seconds if sign is not None and sign.held else self._held[reason].held_seconds


def storm(shortages_per_minute: float | None, running: int | None) -> Sign | None:
    """Requests are preempted and computed again at a rate at which the server gets nowhere; known for a minute."""
    if not shortages_per_minute or not running or shortages_per_minute / 60 < STORM_RATIO * running:
        return None
    numbers = {"shortages_per_minute": shortages_per_minute, "running_requests": running}
    return Sign(level="critical", reason="preemption_storm", numbers=numbers, held=True)


def transient_room(peak_bytes: int | None, room_bytes: int | None, *, seen: bool) -> Sign | None:
    """The largest temporary would not find room; graver where such a one was ``seen`` and not only predicted."""
    if peak_bytes is None or room_bytes is None or peak_bytes <= room_bytes:
        return None
    numbers = {"transient_peak_bytes": peak_bytes, "transient_room_bytes": room_bytes}
    return Sign(level="at_risk" if seen else "watch", reason="no_transient_room", numbers=numbers)


def headroom(ratio: float | None, rule: float = HEADROOM_RATIO) -> Sign | None:
    """Less room than the rule; or next to none."""
    if ratio is None or ratio >= rule:
        return None
    level: Level = "at_risk" if ratio < LEAST_HEADROOM_RATIO else "watch"
    return Sign(level=level, reason="low_headroom", numbers={"headroom_ratio": ratio})


def creeping(seconds: float | None, bytes_per_hour: float) -> Sign | None:
    """A device that is full at its present creep within days, hours or the hour."""
    if seconds is None or seconds > CREEP_WATCH_SECONDS:
        return None
    near: Level = "at_risk" if seconds <= CREEP_RISK_SECONDS else "watch"
    numbers = {"exhaustion_seconds": seconds, "bytes_per_hour": bytes_per_hour}
    return Sign(level="critical" if seconds <= CREEP_CRITICAL_SECONDS else near, reason="device_creep", numbers=numbers)


def unlike_budget(*, fits: bool | None, unexplained_bytes: int, total_bytes: int | None) -> Sign | None:
    """The budget does not fit, or the server holds much more than its budget's high bound."""
    if fits is False:
        return Sign(level="watch", reason="budget_mismatch", numbers={"budget_fits": 0})
    if total_bytes and unexplained_bytes > DEVIATION_RATIO * total_bytes:
        return Sign(level="watch", reason="budget_mismatch", numbers={"unexplained_bytes": unexplained_bytes})
    return None


def cannot_start(*, needed_bytes: int | None, room_bytes: int | None) -> Sign | None:
    """A server that is to start needs more, for weights and one request, than is free and its own."""
    if needed_bytes is None or room_bytes is None or needed_bytes <= room_bytes:
        return None
    numbers = {"needed_bytes": needed_bytes, "room_bytes": room_bytes}
    return Sign(level="at_risk", reason="budget_mismatch", numbers=numbers)


def guests(parts: Mapping[str, int], *, hidden_is_known: bool) -> Iterable[Sign]:
    """Processes of no server beside one, or memory in no visible process where that is no gap in what is seen."""
    foreign, hidden = parts.get("other_processes", 0), parts.get("hidden", 0)
    if foreign > GUEST_BYTES:
        yield Sign(level="watch", reason="foreign_process", numbers={"other_processes_bytes": foreign})
    if hidden > GUEST_BYTES and hidden_is_known:
        yield Sign(level="watch", reason="hidden_memory", numbers={"hidden_bytes": hidden})


def fragmented(ratio: float | None) -> Sign | None:
    """Much of what a server's allocator holds is not in use."""
    if ratio is None or ratio <= FRAGMENTATION_RATIO:
        return None
    return Sign(level="watch", reason="fragmentation", numbers={"fragmentation_ratio": ratio})


def residue(held_bytes: int | None, first_bytes: int | None) -> Sign | None:
    """A sleeping server holds much; graver where it holds more with every sleep than with the ``first`` one seen."""
    if held_bytes is None or held_bytes <= RESIDUE_BYTES:
        return None
    grown = held_bytes - (held_bytes if first_bytes is None else first_bytes)
    numbers = {"held_bytes": held_bytes, "grown_bytes": grown}
    return Sign(level="at_risk" if grown > GIB else "watch", reason="sleep_residue", numbers=numbers)


def restarting(restarts: int, out_of_memory: int) -> Sign | None:
    """Started anew again and again within half an hour; graver where memory ran out in it."""
    if restarts < LOOP_RESTARTS:
        return None
    numbers = {"restarts": restarts, "out_of_memory": out_of_memory}
    return Sign(level="critical" if out_of_memory else "at_risk", reason="restart_loop", numbers=numbers)


def host(*, available_ratio: float, stalls: Iterable[float]) -> Sign | None:
    """A device that lives in the host's memory: how little is left, and how long all tasks waited in two looks."""
    waited = list(stalls)
    numbers = {"available_ratio": available_ratio, **({"stalled_ratio": waited[-1]} if waited else {})}
    if len(waited) == 2 and min(waited) >= STALL_RATIO:
        return Sign(level="critical", reason="host_memory", numbers=numbers)
    if available_ratio >= HOST_WATCH_RATIO:
        return None
    return Sign(
        level="at_risk" if available_ratio < HOST_RISK_RATIO else "watch", reason="host_memory", numbers=numbers
    )


def broken(
    *, lost: bool, remap_failure: bool | None, remap_pending: bool | None, ecc: int | None, xids: Mapping[int, int]
) -> Sign | None:
    """What the GPU says of its memory cells; errors of applications are none of it."""
    grave = sum(count for xid, count in xids.items() if xid in GRAVE_XIDS)
    if lost:
        return Sign(level="critical", reason="hardware", numbers={"lost": 1})
    if remap_failure or grave:
        numbers = {"row_remap_failure": int(bool(remap_failure)), "xid_errors": grave}
        return Sign(level="at_risk", reason="hardware", numbers=numbers)
    if remap_pending or ecc:
        numbers = {"row_remap_pending": int(bool(remap_pending)), "ecc_uncorrected": ecc or 0}
        return Sign(level="watch", reason="hardware", numbers=numbers)
    return None
