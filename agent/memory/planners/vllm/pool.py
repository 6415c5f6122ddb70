"""The pool of one vLLM server.

    requested   = ceil(CUDA total x gpu_memory_utilization)
    available   = requested - weights - activations - graphs (from 0.20.2) - libraries
    blocks      = min over ranks of available // bytes per block
    concurrency = blocks / blocks of one request, summed over all groups: they draw from one pool

Source: vLLM 0.33 v1/worker/gpu_worker.py, v1/core/kv_cache_planning.py.
"""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from agent.memory import runtime as runtimes
from agent.memory.kv_cache import KvBudget, KvGroup
from agent.memory.layers import Layer
from agent.memory.model_config import Decoder
from agent.memory.planners.planner import Stage
from agent.memory.planners.vllm.groups import Group
from agent.memory.planners.vllm.settings import Settings
from agent.memory.runtime import RuntimeBudget, estimate


def plan(stages: Sequence[Stage], settings: Settings, *, cuda_bytes: int | None) -> list[KvBudget]:
    """The pool of each stage's rank; the stage with the fewest blocks decides for all.

    Fields that need memory figures are None where a stage's weights, runtime or device are not known.
    """
    groups = settings.groups
    sizes = [block_bytes(groups, stage) for stage in range(len(stages))]
    blocks = _blocks(stages, sizes, settings, cuda_bytes)
    needed = [(group, group.blocks_per_request(settings.load)) for group in groups]
    return [_budget(needed, stage, size, blocks, settings) for stage, size in enumerate(sizes)]


def block_bytes(groups: Sequence[Group], stage: int) -> int:
    """Bytes of a block on a stage's rank: those of the largest group."""
    return max((group.block_bytes(stage) for group in groups), default=0)


def runtime(decoder: Decoder, layers: tuple[Layer, ...], settings: Settings) -> RuntimeBudget:
    """What a rank needs beside weights and KV, by the largest step of the settings."""
    load = runtimes.Load(
        batched_tokens=settings.max_num_batched_tokens,
        sequences=settings.max_num_seqs,
        max_model_len=settings.max_model_len,
        block_size=settings.block_size,
    )
    return estimate(
        decoder,
        layers,
        load,
        tp=settings.tp,
        ranks=settings.tp * settings.pp,
        expert_ranks=settings.tp * settings.dp,
        eager=settings.enforce_eager,
        outside=settings.outside,
    )


def requested_bytes(cuda_bytes: int, settings: Settings) -> int:
    """The engine's own share of the device."""
    return math.ceil(cuda_bytes * settings.gpu_memory_utilization)


def _blocks(stages: Sequence[Stage], sizes: Sequence[int], settings: Settings, cuda_bytes: int | None) -> int | None:
    if not any(sizes):
        return 1  # a model that caches nothing still has the block that no request may have
    if settings.num_gpu_blocks is not None:
        return settings.num_gpu_blocks
    rooms = [_available(stage, settings, cuda_bytes) for stage in stages]
    known = [max(0, room) // size for room, size in zip(rooms, sizes, strict=True) if room is not None and size]
    return min(known) if None not in rooms else None


def _available(stage: Stage, settings: Settings, cuda_bytes: int | None) -> int | None:
    """Bytes left for KV on a rank; the arithmetic is skipped where they are given."""
    if settings.kv_pool_bytes is not None:
        return settings.kv_pool_bytes
    if settings.kv_cache_memory_bytes is not None:
        return settings.kv_cache_memory_bytes
    if cuda_bytes is None or stage.loaded_bytes is None or stage.runtime is None:
        return None
    inside = sum(part.likely for part in stage.runtime.inside)
    return requested_bytes(cuda_bytes, settings) - stage.loaded_bytes - inside


def _budget(
    needed: Sequence[tuple[Group, int]], stage: int, size: int, blocks: int | None, settings: Settings
) -> KvBudget:
    groups = settings.groups
    per_request = sum(count for _, count in needed)
    slope = sum(Fraction(size, block_tokens(group, settings)) for group in groups if group.spec.grows)
    concurrency = blocks / per_request if blocks is not None and per_request else None
    return KvBudget(
        bytes_per_token=_number(Fraction(slope)),
        bytes_per_token_logical=_number(_logical_slope(groups, stage, settings)),
        fixed_bytes_per_request=sum(count for group, count in needed if not group.spec.grows) * size,
        groups=tuple(_group(group, stage, count) for group, count in needed),
        bytes_per_block=size,
        blocks=blocks,
        pool_bytes=None if blocks is None else blocks * size,
        pool_tokens=_log_tokens(groups, blocks, concurrency, settings),
        request_bytes=per_request * size,
        max_concurrency=concurrency,
        unusable_bytes=size if settings.rules.null_block else 0,
    )


def _logical_slope(groups: Sequence[Group], stage: int, settings: Settings) -> Fraction:
    """Bytes of a further token without padding, on one of the ranks that share the tokens."""
    growing = Counter(spec for group in groups for spec in group.on(stage) if spec.grows)
    shares = (
        Fraction(count * spec.entry_bytes, spec.ratio * (settings.load.dcp if spec.sharded else 1))
        for spec, count in growing.items()
    )
    return sum(shares, Fraction(0))


def block_tokens(group: Group, settings: Settings) -> int:
    """Tokens of a request that one block covers."""
    return group.spec.block_size * (settings.load.dcp if group.spec.sharded else 1)


def _group(group: Group, stage: int, blocks: int) -> KvGroup:
    """A group whose layers have pages of several sizes tells their sum."""
    here = group.on(stage)
    return KvGroup(
        kind="uniform" if group.uniform else group.spec.kind,
        layers=len(here),
        block_size=group.spec.block_size,
        page_bytes=sum(spec.page_bytes for spec in here) if group.uniform else group.spec.page_bytes,
        blocks_per_request=blocks,
    )


def _log_tokens(
    groups: Sequence[Group], blocks: int | None, concurrency: float | None, settings: Settings
) -> int | None:
    """What the engine's log calls the size of the cache."""
    if blocks is None or concurrency is None:
        return None
    if settings.rules.tokens_by_concurrency:
        return int(concurrency * settings.max_model_len)
    return blocks // len(groups) * min(group.spec.block_size for group in groups) * settings.load.dcp


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)
