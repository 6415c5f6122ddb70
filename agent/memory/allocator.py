"""What PyTorch's allocator says of a rank from inside, and how it refines the rank's share of a device.

With A = active, R = reserved, G = kept apart for CUDA graphs, N = weights + KV pool + state as they are named, and H =
what the driver says the rank's processes hold:

``activations = A - N``, ``allocator_slack = R - A - G``, ``context = H - R``, so that N + G + these three are H. Graphs
may hold live tensors (A + G > R): these are G's, not activations. Where less is active than is named, by more than 2 %,
the engine keeps weights or pool outside this allocator (sleep modes do): its activations and context then can't be told
apart and stay in ``runtime``. Names of statistics: torch.cuda.memory_stats.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from agent.memory.breakdown import Part
from collectors.readings import AllocatorBackend, ProbeReading

NAMED = ("weights", "kv_used", "kv_cached", "kv_free", "kv_available", "state")
OUTSIDE_RATIO = 0.02
MANY = 1 << 62
_SIZES = (
    *("allocated_bytes", "active_bytes", "active_peak_bytes", "reserved_bytes", "reserved_peak_bytes"),
    *("requested_bytes", "inactive_split_bytes", "private_pools_bytes", "parameters_bytes", "kv_tensors_bytes"),
    "free_in_segments_bytes",
)
_COUNTS = ("alloc_retries", "ooms", "device_allocs")


class Allocator(Struct, frozen=True, kw_only=True):
    """The allocators of all processes of a rank on one device, in sum; None where one of them does not tell.

    ``at`` is the oldest of their times. ``is_whole``: each process of the rank on this device is among them.
    ``active_bytes`` is what is allocated where the allocator does not tell active from that. Split segments mean
    nothing where segments expand, so there ``inactive_split_bytes`` is None.
    """

    at: float
    files: tuple[str, ...]
    is_whole: bool
    torch_version: str | None = None
    backend: AllocatorBackend | None = None
    expandable_segments: bool | None = None
    allocated_bytes: int | None = None
    active_bytes: int | None = None
    active_peak_bytes: int | None = None
    reserved_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    requested_bytes: int | None = None
    inactive_split_bytes: int | None = None
    private_pools_bytes: int | None = None
    parameters_bytes: int | None = None
    kv_tensors_bytes: int | None = None
    largest_free_block_bytes: int | None = None
    free_in_segments_bytes: int | None = None
    alloc_retries: int | None = None
    ooms: int | None = None
    device_allocs: int | None = None

    @property
    def fragmentation_ratio(self) -> float | None:
        """External fragmentation: the share of what is reserved that is not active; 0 where nothing is reserved."""
        if self.reserved_bytes is None or self.active_bytes is None:
            return None
        return 1 - self.active_bytes / self.reserved_bytes if self.reserved_bytes else 0.0


def joined(readings: Sequence[ProbeReading], *, total_bytes: int | None, pids: Collection[int]) -> Allocator | None:
    """The readings of one device as one; what exceeds the device's memory is not believed. None without readings."""
    if not readings:
        return None
    room = MANY if total_bytes is None else total_bytes
    figures = {name: _sum([getattr(one, name) for one in readings], room) for name in _SIZES}
    figures |= {name: _sum([getattr(one, name) for one in readings], MANY) for name in _COUNTS}
    first = readings[0]
    segments = {one.expandable_segments for one in readings}
    expandable = segments.pop() if len(segments) == 1 else None
    blocks = [one.largest_free_block_bytes for one in readings]
    known = [block for block in blocks if block is not None]
    return Allocator(
        at=min(one.at for one in readings),
        files=tuple(one.file for one in readings),
        is_whole=set(pids) <= {one.pid for one in readings},
        torch_version=first.torch_version,
        backend=first.backend,
        expandable_segments=expandable,
        largest_free_block_bytes=max(known) if len(known) == len(blocks) else None,
        **figures
        | {
            "active_bytes": figures["allocated_bytes"] if figures["active_bytes"] is None else figures["active_bytes"],
            "inactive_split_bytes": figures["inactive_split_bytes"] if expandable is False else None,
        },
    )


def _sum(values: Sequence[int | None], at_most: int) -> int | None:
    count = 0
    for value in values:
        if value is None:
            return None
        count += value
    return count if count <= at_most else None


class Refined(Struct, frozen=True, kw_only=True):
    """The named parts of a rank with what its allocator adds; ``note`` says what can't be told."""

    parts: tuple[Part, ...]
    note: str | None = None


class _Account(Struct, frozen=True, kw_only=True):
    """What the allocator of a rank holds, split; ``named`` is N, ``context`` None where it is not known."""

    named: int
    reserved: int
    live: int
    graphs: int | None
    inside: int
    context: int | None


def refined(named: Sequence[Part], allocator: Allocator, *, server: str, held_bytes: int | None) -> Refined:
    """Tell the parts of a rank's runtime apart, as far as its allocator allows.

    Args:
        named: what is known already; graphs among it are those of the log.
        held_bytes: what the driver says the rank's processes hold, None where it does not.
    """
    logged = next((part for part in named if part.component == "cuda_graphs"), None)
    account = _account(named, allocator, logged, held_bytes)
    if account is None:
        return Refined(parts=tuple(named))
    kept = [part for part in named if part.component in NAMED]

    def measured(component: str, count: int, source: str) -> Part:
        return Part(
            component=component, server=server, bytes=count, evidence="measured", source=source, at=allocator.at
        )

    if account.graphs is not None:
        kept.append(measured("cuda_graphs", account.graphs, "probe: private_pools"))
    elif logged is not None:
        kept.append(logged)
    without = " - private_pools" if account.graphs is not None else " - graphs of the log" if logged else ""
    slack = account.reserved - account.inside - account.live
    kept.append(measured("allocator_slack", slack, f"probe: reserved - active{without}"))
    if _is_complete(kept):
        if account.live < account.named * (1 - OUTSIDE_RATIO):
            return Refined(parts=tuple(kept), note=_OUTSIDE)
        activations = max(0, account.live - account.named)
        kept.append(measured("activations", activations, "probe: active - weights - KV pool - state"))
    if account.context is not None:
        kept.append(measured("context", account.context, "driver: processes - the probe's reserved"))
    return Refined(parts=tuple(kept))


_OUTSIDE = (
    "less is active in PyTorch's allocator than weights and KV pool need: the engine keeps some of them outside it, so "
    "its activations and its context are not told apart and stay in its runtime"
)


def _account(
    named: Sequence[Part], allocator: Allocator, logged: Part | None, held_bytes: int | None
) -> _Account | None:
    """None where the allocator does not tell what it holds.

    Graphs that only the log knows are a difference of the device's free memory: what of them can't lie in the allocator
    is outside, in what would be context.
    """
    reserved, active = allocator.reserved_bytes, allocator.active_bytes
    if reserved is None or active is None:
        return None
    context = held_bytes - reserved if held_bytes is not None and allocator.is_whole else None
    if context is not None and context < 0:  # the driver's list is older than what was allocated since
        reserved, context = reserved + context, None
        active = min(active, reserved)
    known = sum(part.bytes for part in named if part.component in NAMED)
    graphs = _graphs(allocator, reserved, active, known)
    inside, outside = graphs, 0
    if inside is None:
        told = logged.bytes if logged is not None else 0
        inside = min(told, reserved - active)
        outside = told - inside
    return _Account(
        named=known,
        reserved=reserved,
        live=min(active, reserved - inside),
        graphs=graphs,
        inside=inside,
        context=None if context is None else max(0, context - outside),
    )


def _is_complete(parts: Sequence[Part]) -> bool:
    return {"weights", "kv_used"} <= {part.component for part in parts}


def _graphs(allocator: Allocator, reserved: int, active: int, known: int) -> int | None:
    """What is kept apart for graphs; None where it is not told, or where weights or pool lie in there too.

    Engines that can sleep have these in a private pool of their own: then what is left holds less than they need.
    """
    private = allocator.private_pools_bytes
    if private is None or private > reserved:
        return None
    holds_named = active >= known * (1 - OUTSIDE_RATIO) and reserved - private < known * (1 - OUTSIDE_RATIO)
    return None if holds_named else private
