"""What SGLang's pools hold: tokens in use, tokens kept for their prefix (evictable) and free ones.

    used + cached + free <= capacity; the rest is held for sessions

Up to 0.5.10 only tokens in use are reported: what is cached and what is free is not told apart. Beside the pool of full
attention a model may have one of windows and one of recurrent states. One page of a pool is never handed out. Source:
SGLang ``srt/observability/metrics_collector.py``, ``srt/mem_cache/memory_pool.py``.
"""

from collections.abc import Iterator

from collectors.readings import PoolKind, PoolReading
from collectors.sglang.names import Field
from collectors.sglang.page import Page

GIB = 1 << 30
_APART: tuple[tuple[PoolKind, Field | None, Field, Field, Field], ...] = (
    ("window", "window_capacity", "window_used", "window_cached", "window_free"),
    ("state", None, "state_used", "state_cached", "state_free"),
)


def pools_of(
    page: Page, capacity_tokens: int | None, *, page_size: int | None = None, alike: bool = True
) -> tuple[PoolReading, ...]:
    """The pools of all replicas.

    Args:
        capacity_tokens: of a full one, for versions that do not export it; ``page_size`` likewise.
        alike: whether the rank that reports its pool's bytes speaks for all, as it does without pipeline stages.
    """
    return tuple(
        pool
        for replica in page.replicas
        for pool in (*_full(page, replica, capacity_tokens, page_size, alike=alike), *_apart(page, replica))
    )


def _full(
    page: Page, replica: str, known_capacity: int | None, known_page_size: int | None, *, alike: bool
) -> Iterator[PoolReading]:
    capacity = page.count(replica, "capacity") or _paged(page, replica) or known_capacity
    used, cached, free = (page.count(replica, field) for field in ("used", "cached", "free"))
    ratio = page.values[replica].get("used_ratio")
    if used is None and ratio is None:
        return
    if capacity and used is not None:
        ratio = min(used / capacity, 1.0)
    page_size = page.count(replica, "page_size") or known_page_size
    is_only = alike and not any(True for _ in _apart(page, replica))
    gib = page.values[replica].get("pool_gib", 0.0)
    yield PoolReading(
        replica=replica,
        used_ratio=ratio if ratio is not None and ratio <= 1 else None,
        capacity_tokens=capacity or None,
        used_tokens=used,
        cached_tokens=cached,
        free_tokens=free,
        available_tokens=max(0, capacity - used) if capacity and used is not None and cached is None else None,
        blocks=capacity // page_size + 1 if capacity and page_size else None,
        used_blocks=-(-used // page_size) if used is not None and page_size else None,
        block_size_tokens=page_size,
        pool_bytes=round(gib * GIB) if gib and is_only else None,
    )


def _apart(page: Page, replica: str) -> Iterator[PoolReading]:
    """Pools that a model does not have are all 0."""
    for kind, field, *fields in _APART:
        used, cached, free = (page.count(replica, one) for one in fields)
        if used is None or cached is None or free is None:
            continue
        capacity = (page.count(replica, field) if field else None) or used + cached + free
        if capacity:
            size = 1 if kind == "state" else page.count(replica, "page_size") or None
            yield PoolReading(
                replica=replica,
                kind=kind,
                used_ratio=min(used / capacity, 1.0),
                capacity_tokens=capacity,
                used_tokens=used,
                cached_tokens=cached,
                free_tokens=free,
                blocks=capacity // size + 1 if size else None,
                used_blocks=-(-used // size) if size else None,
                block_size_tokens=size,
            )


def _paged(page: Page, replica: str) -> int:
    return (page.count(replica, "pages") or 0) * (page.count(replica, "page_size") or 0)
