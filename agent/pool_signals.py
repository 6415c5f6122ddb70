"""A server's reading as what its pools' forecasts are made from."""

from collections.abc import Iterator

from agent.memory.arguments import Arguments
from agent.memory.signals import PoolFacts, PoolSignal
from collectors.readings import PoolKind, PoolReading, ReplicaReading, ServerReading

Key = tuple[str, PoolKind]  # replica and kind


def signals_of(reading: ServerReading) -> Iterator[tuple[Key, PoolSignal]]:
    """One for each pool whose use is told; at the time from which its figures are."""
    replicas = {replica.replica: replica for replica in reading.replicas}
    at = reading.at if reading.figures_at is None else reading.figures_at
    for pool in reading.pools:
        yield (pool.replica, pool.kind), _signal(at, pool, replicas.get(pool.replica))


def facts_of(engine: str, kind: PoolKind, arguments: Arguments) -> PoolFacts:
    """What the forecast of a pool takes from the engine's arguments."""
    limit = arguments.parallel if engine == "llama_cpp" else arguments.max_num_seqs
    return PoolFacts(engine=engine, kind=kind, max_sequences=limit, max_model_len=arguments.max_model_len)


def _signal(at: float, pool: PoolReading, replica: ReplicaReading | None) -> PoolSignal:
    capacity = pool.capacity_tokens
    ratio = pool.used_tokens / capacity if pool.used_tokens is not None and capacity else pool.used_ratio
    if replica is None:
        return PoolSignal(at=at, used_ratio=ratio, capacity_tokens=capacity)
    short = [count for count in (replica.preemptions, replica.refusals) if count is not None]
    return PoolSignal(
        at=at,
        used_ratio=None if ratio is None else min(1.0, ratio),
        capacity_tokens=capacity,
        running=replica.running_requests,
        waiting=replica.waiting_requests,
        shortages=sum(short) if short else None,
        prompt_tokens=replica.prompt_tokens,
        prompt_hits=replica.prefix_hit_tokens,
        generation_tokens=replica.generation_tokens,
        finished=replica.finished,
        finished_prompt_tokens=replica.finished_prompt_tokens,
        finished_generation_tokens=replica.finished_generation_tokens,
        lengths=replica.sequence_tokens,
    )
