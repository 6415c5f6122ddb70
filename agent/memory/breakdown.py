"""The breakdown: one reading of a device, attributed to components that are >= 0 and sum to its total.

``total = reserved + weights + KV + ... + runtime + other_processes + hidden + free``; where the device shares the
host's memory ``host`` stands for ``reserved`` and ``hidden``: what the host's own processes and caches keep. Order of
trust: the total, free and reserved; then what processes are said to hold; then what is computed. What does not fit is
cut from the least trusted end and returned as over-attribution, so that an error is seen. What absorbs what is missing:

| missing                                  | absorbed by                                                     |
|------------------------------------------|-----------------------------------------------------------------|
| v2 reading (``reserved_bytes`` None)     | ``reserved`` is absent, its bytes are in ``hidden``              |
| process list, or the server's pids in it | servers keep their computed parts, the rest is ``hidden``        |
| bytes of a process (None)                | if a server's: as invisible pids; if another's: in ``hidden``    |
| model or pool figures of a server        | all its processes hold is ``runtime``                            |
| the device's memory reading              | no component at all                                              |
| memory of its own (unified)              | as above, with ``host`` for ``hidden``                           |
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from collectors.readings import Evidence, MemoryKind, MemoryReading, ProcessesReading

NAMED_ORDER = (
    "weights",
    "kv_used",
    "kv_cached",
    "kv_free",
    "kv_available",
    "state",
    "cuda_graphs",
    "activations",
    "allocator_slack",
    "context",
)
_RANKS = {name: rank for rank, name in enumerate(NAMED_ORDER)}
INVISIBLE_ABOVE_BYTES = 256 * 2**20
"""An empty process list on a device with more than this allocated means that the processes are hidden from us."""


class Part(Struct, frozen=True, kw_only=True):
    """A share of a device; ``server`` is empty for the device's own.

    ``source`` names what it is from, ``at`` is when that was read; None: when the device's memory was.
    """

    component: str
    bytes: int
    evidence: Evidence
    server: str = ""
    source: str = ""
    at: float | None = None


class Share(Struct, frozen=True, kw_only=True):
    """One server on one device: its pids as far as known, and the parts whose size is known from elsewhere."""

    server: str
    pids: frozenset[int] = frozenset()
    named: tuple[Part, ...] = ()


class Breakdown(Struct, frozen=True, kw_only=True):
    """``parts`` sum to the device's total. ``overattributed_bytes``: by server, what was cut to make them fit.

    The key "" stands for the device's own shares; it is there only where processes are visible.
    """

    parts: tuple[Part, ...]
    overattributed_bytes: dict[str, int] = {}


def attribute(
    memory: MemoryReading,
    processes: ProcessesReading | None,
    shares: Sequence[Share],
    *,
    kind: MemoryKind = "device",
) -> Breakdown:
    """Attribute a device's memory to components.

    Args:
        memory: one reading with ``0 <= free`` and ``reserved + free <= total``.
        processes: the process list of the same moment, None when there is none.
        shares: the servers on this device, names unique.
        kind: whose memory it is.
    """
    allocated = memory.total_bytes - memory.free_bytes - (memory.reserved_bytes or 0)
    shared = kind == "unified"
    visible = _visible(processes, 0 if shared else allocated)
    wanted, cuts = _claims(visible, shares, processes.at if processes else None)
    parts = _fill(wanted, allocated, cuts)
    rest = allocated - sum(part.bytes for part in parts)
    whose, totals = ("host", "/proc/meminfo") if shared else ("hidden", "driver: memory")
    device = [
        Part(component=whose, bytes=rest, evidence="measured", source=f"{totals}, total - all other components"),
        Part(component="free", bytes=memory.free_bytes, evidence="measured", source=f"{totals}, free"),
    ]
    if memory.reserved_bytes is not None:
        source = "driver: memory (v2), reserved"
        device.insert(0, Part(component="reserved", bytes=memory.reserved_bytes, evidence="measured", source=source))
    return Breakdown(parts=(*parts, *device), overattributed_bytes=cuts)


def _visible(processes: ProcessesReading | None, allocated_bytes: int) -> dict[int, int | None] | None:
    """Bytes by pid, or None when the driver shows no processes although somebody holds memory."""
    if processes is None or (not processes.processes and allocated_bytes > INVISIBLE_ABOVE_BYTES):
        return None
    return {process.pid: process.used_bytes for process in processes.processes}


def _claims(
    visible: dict[int, int | None] | None, shares: Sequence[Share], at: float | None
) -> tuple[list[Part], dict[str, int]]:
    """All parts but the device's own, most trusted first, each server already cut to what its processes hold.

    Where the driver does not show these, what is measured is a probe's word: it displaces no neighbour.
    """
    cuts = {share.server: 0 for share in shares}
    held = {share.server: _held(share, visible) for share in shares}
    seen: list[Part] = []
    unseen: list[Part] = []
    for share in shares:
        room = held[share.server]
        if room is None:
            unseen += share.named
            continue
        kept = _fill(_ordered(share.named), room, cuts)
        seen += kept
        rest = room - sum(part.bytes for part in kept)
        source = "driver: processes, less the server's other components"
        seen.append(
            Part(component="runtime", server=share.server, bytes=rest, evidence="measured", source=source, at=at)
        )
    claims = _ordered(seen)
    if visible is not None:
        owned = frozenset[int]().union(*(share.pids for share in shares))
        others = sum(used or 0 for pid, used in visible.items() if pid not in owned)
        source = "driver: processes of no known server"
        claims.append(Part(component="other_processes", bytes=others, evidence="measured", source=source, at=at))
        cuts.setdefault("", 0)
    return claims + sorted(_ordered(unseen), key=lambda part: part.evidence == "measured"), cuts


def held_bytes(processes: ProcessesReading | None, pids: frozenset[int]) -> int | None:
    """Bytes that these processes hold on a device; None when the driver does not show them."""
    return _held(Share(server="", pids=pids), _visible(processes, 0))


def _held(share: Share, visible: dict[int, int | None] | None) -> int | None:
    """Bytes the server's processes hold on this device; None when the driver does not show them."""
    if visible is None:
        return None
    listed = [visible[pid] for pid in share.pids if pid in visible]
    if not listed or None in listed:
        return None
    return sum(used for used in listed if used is not None)


def _ordered(parts: Iterable[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: (_RANKS.get(part.component, len(_RANKS)), part.server))


def _fill(parts: Iterable[Part], room: int, cuts: dict[str, int]) -> list[Part]:
    """Lay parts into ``room`` bytes in the order given; what does not fit is cut and added to ``cuts`` by server."""
    kept = []
    for part in parts:
        size = min(part.bytes, room)
        cuts[part.server] += part.bytes - size
        room -= size
        kept.append(part if size == part.bytes else replace(part, bytes=size))
    return kept
