"""What a server's log adds to what its endpoints and its model say. Pure."""

from collections.abc import Iterator

from msgspec.structs import replace

from agent.memory.runtime import Calibration
from collectors.readings import LogReading, PoolReading, ServerReading


def of_this_run(log: LogReading, reading: ServerReading | None) -> bool:
    """Whether a log may be that of the run which answers now: it does not name another version."""
    versions = {version.partition("+")[0] for version in (log.version, reading and reading.version) if version}
    return len(versions) < 2


def calibration_of(log: LogReading | None, reading: ServerReading | None) -> Calibration | None:
    """What the log of this run takes the place of in the budget: of several ranks, the one that needs most."""
    if log is None or not log.ready or not of_this_run(log, reading):
        return None
    parts = {
        "activations": [rank.activation_peak_bytes for rank in log.ranks],
        "cuda_graphs": [rank.cuda_graphs_bytes for rank in log.ranks],
        "non_torch": [rank.non_torch_bytes for rank in log.ranks],
    }
    known = {name: max(size for size in sizes if size is not None) for name, sizes in parts.items() if any(sizes)}
    if not known:
        return None
    return Calibration(source=f"the start-up log of {log.engine} {log.version or ''}".strip(), **known)


def tokens_of(log: LogReading | None) -> dict[str, int]:
    """The capacity of each replica's pool in tokens, as the engine counted them when it started."""
    if log is None or log.several_models:
        return {}
    known = [(one.rank.replica, one.kv_tokens) for one in log.ranks if one.rank is not None and one.kv_tokens]
    return {replica: min(tokens for other, tokens in known if other == replica) for replica, _ in known}


def completed(reading: ServerReading, log: LogReading | None) -> ServerReading:
    """A reading whose pools have the capacity of the log, where the engine does not export it in tokens."""
    if log is None or not of_this_run(log, reading):
        return reading
    return replace(reading, pools=tuple(_completed(reading.pools, tokens_of(log))))


def _completed(pools: tuple[PoolReading, ...], tokens: dict[str, int]) -> Iterator[PoolReading]:
    only = next(iter(tokens.values())) if len(tokens) == len({pool.replica for pool in pools}) == 1 else None
    for pool in pools:
        capacity = tokens.get(pool.replica, only)
        wanted = pool.kind == "full" and (pool.capacity_tokens is None or pool.capacity_is_estimate)
        if not wanted or capacity is None:
            yield pool
            continue
        used = None
        if pool.used_blocks is not None and pool.blocks:
            used = pool.used_blocks * capacity // pool.blocks
        elif pool.used_ratio is not None:
            used = round(pool.used_ratio * capacity)
        yield replace(
            pool,
            capacity_tokens=capacity,
            used_tokens=used,
            available_tokens=None if used is None else capacity - used,
            capacity_is_estimate=False,
        )
