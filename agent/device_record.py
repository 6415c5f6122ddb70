"""The record of one device in a snapshot: its closed sum, the budget beside it, room for transients. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct, structs

from agent.inside import Inside
from agent.memory.allocator import refined
from agent.memory.breakdown import INVISIBLE_ABOVE_BYTES, Part, Share, attribute, held_bytes
from agent.memory.budget import RankBudget, RuntimeBudget
from agent.memory.comparison import (
    headroom_ratio,
    room_bytes,
    runtime_bytes,
    unexplained_bytes,
)
from agent.memory.runtime import with_adapters
from agent.memory.transients import Transient, transient
from agent.named import named_parts
from agent.seating import (
    Seat,
    ServerView,
    log_of,
    predicted_at,
)
from agent.snapshot import (
    BOUNDS,
    BudgetLine,
    Component,
    Device,
    DeviceProcess,
    GpuHealth,
)
from collectors.readings import (
    DeviceReading,
    NodeReading,
)


class DeviceExtremes(Struct, frozen=True, kw_only=True):
    """Used (total - free) and free bytes by window."""

    used_max_bytes: dict[str, int]
    free_min_bytes: dict[str, int]


def device_record(
    reading: DeviceReading,
    *,
    gpu: str,
    node: NodeReading,
    servers: Mapping[str, ServerView],
    seated: Sequence[Seat],
    extremes: DeviceExtremes | None,
    health: GpuHealth,
    now: float,
    inside: Mapping[str, Inside],
) -> Device:
    """One device of the snapshot: its closed sum, the budget beside it, deviations, extremes and the hardware.

    ``inside``: by server, what is known of its rank on this device from inside.
    """
    here = [seat for seat in seated if seat.uuid == reading.uuid]
    budgets = {seat.server: predicted_at(servers[seat.server], seat) for seat in here}
    found = [
        _share(servers[seat.server], seat, reading, inside.get(seat.server), alone=len(here) == 1) for seat in here
    ]
    shares = [share for share, _ in found]
    apart = {share.server: {part.component for part in share.named} for share in shares}
    loaded = {share.server for share in shares if _is_as_loaded(share.named)}
    runtimes = {name: _runtime(budget, loaded=name in loaded) for name, budget in budgets.items()}
    lines = tuple(
        line
        for name, budget in budgets.items()
        if budget
        for line in _budget_lines(name, budget, runtimes[name], apart[name], loaded=name in loaded)
    )
    record = Device(
        uuid=reading.uuid or "",
        gpu=gpu,
        index=reading.index,
        name=reading.name,
        driver=node.driver_version,
        memory_kind=reading.memory_kind,
        budget=lines,
        health=health,
        processes=tuple(_processes(reading)),
        notes=(*_notes(reading), *(f"{share.server}: {note}" for share, note in found if note)),
    )
    if reading.memory is None:
        return record
    breakdown = attribute(reading.memory, reading.processes, shares, kind=reading.memory_kind)
    return structs.replace(
        record,
        total_bytes=reading.memory.total_bytes,
        free_bytes=reading.memory.free_bytes,
        age_seconds=max(0.0, now - reading.memory.at),
        headroom_ratio=None
        if _is_lent_out(reading, breakdown.parts)
        else headroom_ratio(breakdown.parts, reading.memory.total_bytes, runtimes),
        components=tuple(_components(breakdown.parts, lines, servers, at=reading.memory.at, now=now)),
        overattributed_bytes=breakdown.overattributed_bytes,
        unexplained_bytes=_unexplained(breakdown.parts, runtimes, servers),
        transients=dict(_transients(here, servers, breakdown.parts, runtimes, inside, reading.memory.free_bytes)),
        used_max_bytes=extremes.used_max_bytes if extremes else {},
        free_min_bytes=extremes.free_min_bytes if extremes else {},
    )


def _processes(reading: DeviceReading) -> Iterator[DeviceProcess]:
    """Those whose names were asked for, as far as their bytes are known."""
    for one in reading.processes.processes if reading.processes else ():
        if one.name is not None and one.used_bytes is not None:
            yield DeviceProcess(pid=one.pid, name=one.name, bytes=one.used_bytes)


def _notes(reading: DeviceReading) -> Iterator[str]:
    if reading.memory_kind == "unified":
        yield "this GPU shares the host's memory: total and free are from /proc/meminfo, what the host uses is `host`"
    if reading.numa_node is not None:
        how = f" ({reading.addressing})" if reading.addressing else ""
        yield (
            f"the operating system uses this memory as NUMA node {reading.numa_node}{how}: what it keeps there is in "
            "`hidden`, and while that is much the headroom is not known, since it may be given back"
        )


def _is_lent_out(reading: DeviceReading, parts: Sequence[Part]) -> bool:
    """Whether the operating system may hold much of the device: little free then says nothing about room."""
    hidden = sum(part.bytes for part in parts if part.component == "hidden")
    return reading.numa_node is not None and hidden > INVISIBLE_ABOVE_BYTES


def _share(
    server: ServerView, seat: Seat, device: DeviceReading, inside: Inside | None, *, alone: bool
) -> tuple[Share, str | None]:
    """What is known of a rank's parts, and a note on it.

    What only its own process says of itself is believed as far as the driver says what that holds; where the driver
    does not, only on a device without a neighbour whose parts it could displace. While it loads both move, and are not
    of the same moment: their difference is no context then.
    """
    allocator = inside.allocator if inside else None
    held = held_bytes(device.processes, seat.pids) if allocator is not None else None
    if allocator is None or server.state == "sleeping" or (held is None and not alone):
        return Share(server=seat.server, pids=seat.pids, named=named_parts(server, seat)), None
    named = named_parts(server, seat, allocator)
    more = refined(named, allocator, server=seat.server, held_bytes=held)
    told = tuple(part for part in more.parts if part.component != "context" or server.state == "serving")
    return Share(server=seat.server, pids=seat.pids, named=told), more.note


def _transients(
    here: Sequence[Seat],
    servers: Mapping[str, ServerView],
    parts: Sequence[Part],
    runtimes: Mapping[str, RuntimeBudget | None],
    inside: Mapping[str, Inside],
    free_bytes: int,
) -> Iterator[tuple[str, Transient]]:
    """By server that serves, its highest peak and the room for one."""
    for seat in here:
        server = servers[seat.server]
        if server.state != "serving":
            continue
        own = [part for part in parts if part.server == seat.server]
        free = [part for part in parts if part.component == "free"]
        log, runtime, of_it = log_of(server, seat), runtimes.get(seat.server), inside.get(seat.server)
        found = transient(
            of_it.allocator if of_it else None,
            lowest_active_bytes=of_it.lowest_active_bytes if of_it else None,
            reported_peak_bytes=log.activation_peak_bytes if log else None,
            predicted_peak_bytes=runtime.activations.likely if runtime else None,
            free_bytes=free_bytes,
            parts={part.component: part.bytes for part in own},
            headroom_bytes=room_bytes([*own, *free], runtimes),
        )
        if found != Transient():
            yield seat.server, found


def _components(
    parts: Sequence[Part], lines: Sequence[BudgetLine], servers: Mapping[str, ServerView], *, at: float, now: float
) -> Iterator[Component]:
    """Beside its budget stands what a server holds while it serves: before and in sleep other things are in a part."""
    likely = {
        (line.server, line.component): line.bytes
        for line in lines
        if line.bound == "likely" and servers[line.server].state == "serving"
    }
    for part in parts:
        yield Component(
            component=part.component,
            server=part.server,
            bytes=part.bytes,
            budget_bytes=likely.get((part.server, part.component)),
            evidence=part.evidence,
            age_seconds=max(0.0, now - (at if part.at is None else part.at)),
            source=part.source,
        )


def _is_as_loaded(named: Sequence[Part]) -> bool:
    """Whether the weights are what the engine says that loading took, slots for adapters and a draft model included."""
    return any(part.component == "weights" and part.evidence == "reported" for part in named)


def _runtime(budget: RankBudget | None, *, loaded: bool) -> RuntimeBudget | None:
    """What is budgeted beside weights and pool; slots for adapters too, where the live weights leave them out."""
    if budget is None or budget.runtime is None:
        return None
    return budget.runtime if loaded else with_adapters(budget.runtime, budget.lora_bytes or 0)


def _budget_lines(
    server: str, budget: RankBudget, runtime: RuntimeBudget | None, apart: Collection[str], *, loaded: bool
) -> Iterator[BudgetLine]:
    """As live: what of the runtime is known apart there, is apart here."""
    weights = budget.weights_bytes
    if weights is not None and loaded:
        weights += budget.lora_bytes or 0
    for component, count in (("weights", weights), ("kv_pool", budget.kv.pool_bytes)):
        if count is not None:
            yield BudgetLine(server=server, component=component, bound="likely", bytes=count)
    if runtime is None:
        return
    named = {name: getattr(runtime, name) for name in ("cuda_graphs", "activations") if name in apart}
    for name, size in named.items():
        yield BudgetLine(server=server, component=name, bound="likely", bytes=size.likely)
    if "context" in apart:  # all that is beside the allocator: libraries too
        named |= {"context": runtime.context, "non_torch": runtime.non_torch}
        both = runtime.context.likely + runtime.non_torch.likely
        yield BudgetLine(server=server, component="context", bound="likely", bytes=both)
    for bound in BOUNDS:
        rest = getattr(runtime, bound) - sum(getattr(size, bound) for size in named.values())
        yield BudgetLine(server=server, component="runtime", bound=bound, bytes=rest)


def _unexplained(
    parts: Sequence[Part], runtimes: Mapping[str, RuntimeBudget | None], servers: Mapping[str, ServerView]
) -> dict[str, int]:
    """By server, runtime above the budget's high bound; only where weights and pool are told apart from it, whole."""
    apart = {name: {part.component for part in parts if part.server == name} for name in runtimes}
    return {
        part.server: unexplained_bytes(runtime_bytes(parts, part.server), budget)
        for part in parts
        if part.component == "runtime"
        and (budget := runtimes.get(part.server)) is not None
        and servers[part.server].state == "serving"
        and {"weights", "kv_used"} <= apart[part.server]
        and not _has_more(servers[part.server], [other for other in parts if other.server == part.server])
    }


def _has_more(server: ServerView, parts: Sequence[Part]) -> bool:
    """Whether it holds what is in no budget of its runtime: slots of adapters, or a model that speculates and its KV.

    vLLM counts such a model with what loading took, and then it is none of the runtime.
    """
    if server.reading is not None and server.reading.loaded_beside:
        return True
    budget = server.budget
    if budget is None or not budget.ranks:
        return False
    if budget.ranks[0].lora_bytes is None:
        return not _is_as_loaded(parts)
    speculates = str(server.arguments.get("speculative")).startswith(("mtp", "draft"))
    return speculates and budget.ranks[0].kv.bytes_per_block is None and not _is_as_loaded(parts)
