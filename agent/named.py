"""What of a rank is known in bytes apart from what its processes hold: by whom, from where, since when. Pure."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.allocator import Allocator
from agent.memory.breakdown import Part
from agent.memory.budget import RankBudget
from agent.seating import Seat, ServerView, budget_at, log_of, pool_bytes, pools_of
from collectors.readings import Evidence, LogReading, PoolReading, RankLog, RankReport, RankTitle, ServerReading


def named_parts(server: ServerView, seat: Seat, allocator: Allocator | None = None) -> tuple[Part, ...]:
    """The parts of a rank whose bytes are known apart from what its processes hold; none unless it serves.

    What the server told its probe comes first, then what the engine reports in its log, then what is computed. The
    activation peak of its log is no part: it is what a trial run needed, not what is held now.
    """
    if server.state != "serving":
        return ()
    return tuple(_named_parts(server, seat, allocator))


def _named_parts(server: ServerView, seat: Seat, allocator: Allocator | None) -> Iterator[Part]:
    budget = budget_at(server, seat)
    log = log_of(server, seat) or RankLog()
    report = _report(server, seat.rank) or RankReport()
    pools = pools_of(server, seat.rank)
    ages = _Ages(
        log=server.log.at if server.log else None,
        endpoint=_figures_at(server.reading) if server.reading else None,
        probe=allocator.at if allocator else None,
    )

    def part(component: str, size: _Size, source: str = "") -> Iterator[Part]:
        if size.bytes is not None:
            yield Part(
                component=component,
                server=server.name,
                bytes=size.bytes,
                evidence=size.evidence,
                source=size.source + source,
                at=getattr(ages, size.source.partition(":")[0], None),
            )

    yield from part("weights", _weights(server.log, log, budget, report, allocator))
    for pool in pools:
        if pool.kind == "full":
            only = len(pools) == 1
            size = _pool_size(pool, budget, log if only else RankLog(), allocator if only else None)
            for component, count in _filled(pool, size.bytes).items():
                yield from part(component, replace(size, bytes=count), _FILLED)
    apart = sum(_apart_bytes(pool, budget) for pool in pools)
    yield from part("state", _Size(bytes=apart, evidence="computed", source=_APART) if apart else _log(log.state_bytes))
    graphs = report.cuda_graphs_bytes if log.cuda_graphs_bytes is None else None
    yield from part("cuda_graphs", _log(log.cuda_graphs_bytes) if graphs is None else _endpoint(graphs))
    yield from part("activations", _log(log.activations_bytes))


_APART = "endpoint: blocks of caches beside the pool, times bytes of a block by the model's layout"
_FILLED = ", split by the endpoint's usage"


class _Ages(Struct, frozen=True, kw_only=True):
    """When each source was read."""

    log: float | None
    endpoint: float | None
    probe: float | None


class _Size(Struct, frozen=True, kw_only=True):
    """Bytes of a part and how they are known; the first word of ``source`` says what was read."""

    bytes: int | None
    evidence: Evidence = "reported"
    source: str


def _log(count: int | None) -> _Size:
    return _Size(bytes=count, source="log")


def _endpoint(count: int | None) -> _Size:
    return _Size(bytes=count, source="endpoint: the engine's own figure")


def _figures_at(reading: ServerReading) -> float:
    return reading.at if reading.figures_at is None else reading.figures_at


def _weights(
    log: LogReading | None,
    rank: RankLog,
    budget: RankBudget | None,
    report: RankReport,
    allocator: Allocator | None,
) -> _Size:
    """What its tensors were counted to; what the engine's own allocator counted, else the checkpoint's bytes; then what
    the device had less free.
    """
    if allocator is not None and allocator.parameters_bytes and allocator.is_whole:
        return _Size(bytes=allocator.parameters_bytes, evidence="measured", source="probe: parameters")
    if rank.weights_bytes is not None and log is not None and not log.from_free_memory:
        return _log(rank.weights_bytes)
    if budget and budget.weights_bytes is not None and budget.weights_evidence == "computed":
        source = "checkpoint: bytes of its tensors as this rank holds them"
        return _Size(bytes=budget.weights_bytes, evidence="computed", source=source)
    return _endpoint(report.weights_bytes) if report.weights_bytes else _log(rank.weights_bytes)


def _apart_bytes(pool: PoolReading, budget: RankBudget | None) -> int:
    """Bytes of caches beside the full pool: of another pool, or allocated whole with as many blocks of the full one."""
    if budget is None:
        return 0
    if pool.kind != "full":
        return pool_bytes(pool, budget) or 0
    return budget.kv.apart_bytes if pool.blocks == budget.kv.blocks else 0


def _report(server: ServerView, rank: RankTitle | None) -> RankReport | None:
    """What the engine's endpoints say of a rank; where they leave numbers out its ranks are alike."""
    for report in server.reading.ranks if server.reading else ():
        if rank is None or (
            report.replica == rank.replica
            and report.tp_rank in (None, rank.tp_rank)
            and report.pp_rank in (None, rank.pp_rank)
        ):
            return report
    return None


def _pool_size(pool: PoolReading, budget: RankBudget | None, log: RankLog, allocator: Allocator | None) -> _Size:
    """As counted inside it, else as the engine says now, else blocks times their exact bytes; else as its log says."""
    if allocator is not None and allocator.kv_tensors_bytes and allocator.is_whole:
        return _Size(bytes=allocator.kv_tensors_bytes, evidence="measured", source="probe: kv_tensors")
    if pool.pool_bytes is not None:
        return _endpoint(pool.pool_bytes)
    exact = pool_bytes(pool, budget)
    if exact is None:
        return _log(log.kv_pool_bytes)
    return _Size(
        bytes=exact, evidence="computed", source="endpoint: blocks times bytes of a block by the model's layout"
    )


def _filled(pool: PoolReading, whole: int | None) -> dict[str, int]:
    """Bytes of a pool by what fills it, none where that is not known. Blocks the engine keeps for itself are free."""
    if whole is None:
        return {}
    if not pool.blocks or pool.used_blocks is None:
        used = None if pool.used_ratio is None else min(whole, round(whole * pool.used_ratio))
        return {} if used is None else {"kv_used": used, "kv_available": whole - used}
    size = pool.block_size_tokens
    if pool.cached_tokens is None or pool.free_tokens is None or pool.capacity_tokens is None or not size:
        used = whole * pool.used_blocks // pool.blocks
        return {"kv_used": used, "kv_available": whole - used}
    spare = pool.blocks - pool.capacity_tokens // size
    cached = min(pool.cached_tokens // size, pool.blocks - spare)
    free = min(pool.free_tokens // size, pool.blocks - spare - cached) + spare
    used = whole * (pool.blocks - cached - free) // pool.blocks
    kept = whole * cached // pool.blocks
    return {"kv_used": used, "kv_cached": kept, "kv_free": whole - used - kept}
