"""The record of one server in a snapshot: state, pools, requests, ranks, and what is known of it from inside. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, get_args

from agent.inside import Inside
from agent.memory.budget import Budget, RankBudget
from agent.memory.comparison import (
    kv_block_fragmentation,
)
from agent.seating import (
    Seat,
    ServerView,
    block_bytes,
    budget_at,
    pool_bytes,
    pools_of,
)
from agent.snapshot import (
    AllocatorFigures,
    Counters,
    Failure,
    Fragmentation,
    Log,
    Pool,
    Rank,
    Replica,
    Requests,
    Server,
)
from collectors.readings import (
    FailureKind,
    LogReading,
    PoolReading,
    ReplicaReading,
    ServerReading,
)

Number = TypeVar("Number", int, float)


def server_record(
    server: ServerView,
    *,
    seated: Sequence[Seat],
    gpus: Mapping[str, str],
    now: float,
    inside: Mapping[str, Inside],
) -> Server:
    """One server of the snapshot. A server that is down keeps its name and state only.

    ``inside``: by device, what is known of its rank there from inside.
    """
    reading = server.reading
    here = [seat for seat in seated if seat.server == server.name and seat.uuid in gpus]
    serving = reading if reading and server.state != "down" else None
    budget = server.budget if serving else None
    replicas = tuple(_replica(replica) for replica in serving.replicas) if serving else ()
    one = budget.ranks[0].kv if budget and budget.ranks else None
    return Server(
        name=server.name,
        engine=server.engine,
        version=serving.version if serving else None,
        url=server.url,
        model=serving.model if serving else None,
        state=server.state,
        age_seconds=_age(reading, now) if reading else None,
        started_at=serving.started_at if serving else None,
        restarts=server.restarts,
        configured=server.configured,
        model_path=server.model_path,
        arguments=dict(server.arguments) if server.state != "down" else {},
        pids=tuple(process.pid for process in server.tree.processes) if server.tree else (),
        devices=tuple(dict.fromkeys(seat.uuid for seat in here)),
        ranks=tuple(_rank(server, seat, gpus[seat.uuid], inside.get(seat.uuid), now) for seat in here),
        pools=tuple(_pool(server, pool) for pool in serving.pools) if serving else (),
        replicas=replicas,
        requests=Requests(
            running=_sum(replica.requests.running for replica in replicas),
            waiting=_sum(replica.requests.waiting for replica in replicas),
        ),
        counters=_total(replicas),
        fragmentation=(*_allocators(here, gpus, inside), *_fragmentation(server)),
        offload=serving.offload if serving else (),
        adapters=serving.adapters if serving else (),
        log=_log(server.log, now) if server.log else None,
        host_oom_kills=server.host_oom_kills,
        container=server.container,
        budget_fits=budget.fits if budget else None,
        max_request_tokens=_max_model_len(budget),
        max_request_bytes=one.request_bytes if one else None,
        notes=(
            *(serving.notes if serving else ()),
            *_beside(serving),
            *(budget.unknown if budget else ()),
            *server.notes,
        ),
    )


def _beside(reading: ServerReading | None) -> Iterator[str]:
    if reading is not None and reading.loaded_beside:
        what = " and ".join(reading.loaded_beside)
        yield f"beside its model it loaded {what}, of which it says no bytes: they are in its runtime"


def _age(reading: ServerReading, now: float) -> float:
    """Of its figures, which an engine may renew more seldom than they are read."""
    return max(0.0, now - (reading.at if reading.figures_at is None else reading.figures_at))


def _log(log: LogReading, now: float) -> Log:
    """Failures of every kind, also those that never happened."""
    last = log.last_failure
    return Log(
        version=log.version,
        ready=log.ready,
        age_seconds=max(0.0, now - log.at),
        ranks=log.ranks,
        failures=dict.fromkeys(get_args(FailureKind), 0) | log.failures,
        last_failure=Failure(kind=last.kind, age_seconds=max(0.0, now - last.at), figures=last.figures)
        if last
        else None,
    )


def _total(replicas: Sequence[Replica]) -> Counters:
    if len(replicas) == 1:
        return replicas[0].counters
    return Counters(
        **{field: _sum(getattr(one.counters, field) for one in replicas) for field in Counters.__struct_fields__}
    )


def _sum(values: Iterable[Number | None]) -> Number | None:
    given = list(values)
    known = [value for value in given if value is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(given) else None


def _max_model_len(budget: Budget | None) -> int | None:
    resolved = budget.arguments.get("max_model_len") if budget else None
    return resolved.value if resolved and isinstance(resolved.value, int) else None


def _rank(server: ServerView, seat: Seat, gpu: str, inside: Inside | None, now: float) -> Rank:
    budget = budget_at(server, seat)
    sizes = {pool.kind: pool_bytes(pool, budget) for pool in pools_of(server, seat.rank)}
    return Rank(
        gpu=gpu,
        uuid=seat.uuid,
        tp_rank=seat.rank.tp_rank if seat.rank else None,
        pp_rank=seat.rank.pp_rank if seat.rank else None,
        replica=seat.rank.replica if seat.rank else "0",
        pool_bytes={kind: size for kind, size in sizes.items() if size is not None and server.state == "serving"},
        allocator=_figures(inside, now) if inside else None,
    )


def _figures(inside: Inside, now: float) -> AllocatorFigures:
    allocator = inside.allocator
    same = {name: getattr(allocator, name) for name in AllocatorFigures.__struct_fields__ if hasattr(allocator, name)}
    return AllocatorFigures(
        age_seconds=max(0.0, now - allocator.at), active_lowest_bytes=inside.lowest_active_bytes, **same
    )


def _allocators(
    seated: Sequence[Seat], gpus: Mapping[str, str], inside: Mapping[str, Inside]
) -> Iterator[Fragmentation]:
    for seat in seated:
        ratio = inside[seat.uuid].allocator.fragmentation_ratio if seat.uuid in inside else None
        if ratio is not None:
            yield Fragmentation(
                kind="allocator",
                gpu=gpus[seat.uuid],
                server=seat.server,
                replica=seat.rank.replica if seat.rank else "0",
                low=ratio,
                likely=ratio,
                high=ratio,
            )


def _replica(reading: ReplicaReading) -> Replica:
    return Replica(
        replica=reading.replica,
        requests=Requests(running=reading.running_requests, waiting=reading.waiting_requests),
        counters=Counters(**{field: getattr(reading, field) for field in Counters.__struct_fields__}),
        multimodal_queries=reading.multimodal_queries,
        multimodal_hits=reading.multimodal_hits,
    )


def _pool(server: ServerView, pool: PoolReading) -> Pool:
    budgets = server.budget.ranks if server.budget else ()
    counted = not (pool.capacity_is_estimate and _shared(server))
    sizes = [size for budget in (budgets or (None,)) if (size := pool_bytes(pool, budget)) is not None]
    return Pool(
        replica=pool.replica,
        kind=pool.kind,
        capacity_tokens=pool.capacity_tokens if counted else None,
        used_tokens=pool.used_tokens if counted else None,
        cached_tokens=pool.cached_tokens if counted else None,
        free_tokens=pool.free_tokens if counted else None,
        available_tokens=pool.available_tokens if counted else None,
        reserved_tokens=pool.reserved_tokens,
        used_ratio=pool.used_ratio,
        pool_bytes=min(sizes, default=None),
        bytes_per_token=max(_slopes(pool, budgets), default=None),
        block_size=pool.block_size_tokens,
        growth_tokens_per_second=server.growth_tokens_per_second.get((pool.replica, pool.kind)) if counted else None,
    )


def _shared(server: ServerView) -> bool:
    """Whether a token takes blocks of several groups of layers, so that blocks x block size are not tokens."""
    return server.budget is not None and any(len(rank.kv.groups) > 1 for rank in server.budget.ranks)


def _slopes(pool: PoolReading, budgets: Sequence[RankBudget]) -> Iterator[int | float]:
    """Bytes of a further token in this pool, by rank."""
    for budget in budgets:
        slope: int | float | None = budget.kv.bytes_per_token
        if pool.kind != "full":
            block = block_bytes(pool, budget)
            slope = block // pool.block_size_tokens if block and pool.block_size_tokens else None
        if slope is not None:
            yield slope


def _fragmentation(server: ServerView) -> Iterator[Fragmentation]:
    if server.reading is None or server.state != "serving" or _shared(server):
        return
    running = {replica.replica: replica.running_requests for replica in server.reading.replicas}
    for pool in server.reading.pools:
        requests = running.get(pool.replica)
        if pool.used_blocks is None or pool.block_size_tokens is None or requests is None:
            continue
        bounds = kv_block_fragmentation(
            used_blocks=pool.used_blocks, block_size_tokens=pool.block_size_tokens, running_requests=requests
        )
        if bounds is not None:
            yield Fragmentation(
                kind="kv_block",
                server=server.name,
                replica=pool.replica,
                low=bounds.low,
                likely=bounds.likely,
                high=bounds.high,
            )
