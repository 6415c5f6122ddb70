"""Pools and requests of one Prometheus page of TensorRT-LLM.

Its gauges are written when a request ends, and stand still while one long answer is generated. So what moves (used
blocks, requests) is shown only while it is fresh; sizes and counters always. Of several processes with gauges, by
``pid``, the highest counts. One page is of one executor: its replica is 0.
"""

from collectors.readings import OffloadReading, PoolReading, ReplicaReading
from collectors.series import Facts, Series
from collectors.tensorrt_llm.names import ENDED, NAMES

SERIES = Series(NAMES, others=ENDED)
REPLICA = "0"
OLD = (
    "its figures are of the last request that ended: TensorRT-LLM renews them only then, so what is used, running and "
    "waiting now is not known"
)
NO_POOL = (
    "no trtllm_kv_cache series, so the KV pool is not known: start it with enable_iter_perf_stats: true beside "
    "return_perf_metrics: true (TensorRT-LLM 1.3), and end one request"
)


def pool_of(facts: Facts, *, fresh: bool, replica: str = REPLICA) -> PoolReading | None:
    """The pool; None before the first request has ended."""
    blocks, size = facts.count(replica, "blocks"), facts.count(replica, "block_size")
    used = facts.count(replica, "used_blocks") if fresh else None
    free = facts.count(replica, "free_blocks") if fresh else None
    ratio = facts.ratio(replica, "used_ratio") if fresh else None
    if not blocks:
        return None
    return PoolReading(
        replica=replica,
        used_ratio=ratio if used is None else min(used / blocks, 1.0),
        capacity_tokens=blocks * size if size else None,
        used_tokens=used * size if size and used is not None else None,
        available_tokens=free * size if size and free is not None else None,
        blocks=blocks,
        used_blocks=used,
        block_size_tokens=size or None,
    )


def offload_of(facts: Facts, *, fresh: bool, replica: str = REPLICA) -> tuple[OffloadReading, ...]:
    """The secondary pool in host memory. One that is empty can't be told from one that does not exist."""
    ratio = facts.ratio(replica, "host_ratio") if fresh else None
    if not ratio:
        return ()
    return (OffloadReading(replica=replica, by="secondary blocks", tier="host", used_ratio=ratio),)


def replica_of(facts: Facts, *, fresh: bool) -> ReplicaReading:
    """Requests and counters. Tokens of prompts are counted when a request ends, those found in the cache among them."""
    prompt, cached = facts.count(REPLICA, "prompt_tokens"), facts.count(REPLICA, "cached_tokens")
    return ReplicaReading(
        replica=REPLICA,
        running_requests=facts.count(REPLICA, "running") if fresh else None,
        waiting_requests=facts.count(REPLICA, "waiting") if fresh else None,
        prompt_tokens=prompt,
        generation_tokens=facts.count(REPLICA, "generation_tokens"),
        prefix_hit_tokens=cached,
        prefix_query_tokens=prompt if cached is not None else None,
        first_tokens=facts.count(REPLICA, "first_tokens"),
        first_token_seconds=facts.values.get(REPLICA, {}).get("first_token_seconds"),
    )


def figures_of(facts: Facts) -> object:
    """All that is shown: other figures are newer ones."""
    return {(sample.name, *sorted(sample.labels.items())): sample.value for sample in facts.samples}


def model_of(facts: Facts) -> str | None:
    """Up to 1.2 the label says ``undefined``."""
    name = facts.label("model_name")
    return None if name == "undefined" else name
