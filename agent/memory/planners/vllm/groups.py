"""How vLLM puts layers into groups that share a block table, and all groups into one pool of blocks.

1. All specs equal: one group. One type with pages of several sizes: one group, a block holds a page of each layer.
2. Types mixed: pages are made one size, by a larger block or by padding; each type is cut into groups of as many layers
   as the rarest type has (or the commonest, when that has fewer than 1.5 times as many). Groups that fall short leave
   room unused in each of their blocks.
3. Compressed attention: layers of one type and block size are one group whatever their pages, and groups are cut so
   that few of them are much smaller than the largest.

A block has the size of the largest group. Source: vLLM 0.33 v1/core/kv_cache_planning.py.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct

from agent.memory.layers import Compressor, Latent, Record, State
from agent.memory.planners.vllm.specs import Load, PagingError, Spec, as_full, blocks_per_request, padded, with_block
from agent.memory.units import ceil_div

K = TypeVar("K")
_LITTLE_MORE = 1.5


class Placed(Struct, frozen=True, kw_only=True):
    """A spec and the pipeline stage that holds it."""

    stage: int
    spec: Spec


class Group(Struct, frozen=True, kw_only=True):
    """Caches with one block table. ``uniform``: of one type, with pages that may differ."""

    members: tuple[Placed, ...]
    uniform: bool = False

    @property
    def spec(self) -> Spec:
        return self.members[0].spec

    def on(self, stage: int) -> tuple[Spec, ...]:
        return tuple(member.spec for member in self.members if member.stage == stage)

    def block_bytes(self, stage: int) -> int:
        """Bytes of a block that the group's caches on a stage use."""
        return sum(spec.page_bytes for spec in self.on(stage))

    def blocks_per_request(self, load: Load) -> int:
        return blocks_per_request(self.longest(load), load)

    def longest(self, load: Load) -> Spec:
        """The spec of which a request holds the most blocks."""
        kinds = dict.fromkeys(member.spec for member in self.members) if self.uniform else (self.spec,)
        return max(kinds, key=lambda spec: blocks_per_request(spec, load))


def group_caches(placed: Sequence[Placed], *, hybrid_manager: bool = True) -> tuple[Group, ...]:
    """All groups of a model.

    Args:
        hybrid_manager: off, windows and chunks are held like full attention.

    Raises:
        PagingError: caches that vLLM can't put into one pool.
    """
    if not hybrid_manager:
        placed = _promoted(placed)
    specs = [item.spec for item in placed]
    if not specs:
        return ()
    if len(set(specs)) == 1:
        return (Group(members=tuple(placed)),)
    if _one_type(specs):
        return (Group(members=tuple(placed), uniform=True),)
    if any(isinstance(spec.cache, Record | Compressor) for spec in specs):
        return _packed(placed)
    return _paged(placed)


def _promoted(placed: Sequence[Placed]) -> Sequence[Placed]:
    specs = [item.spec for item in placed]
    full = {spec.block_size for spec in specs if spec.grows}
    if not full or _one_type(specs):
        return placed
    changed = [
        Placed(stage=item.stage, spec=as_full(item.spec, min(full) if len(full) == 1 else item.spec.block_size))
        for item in placed
    ]
    if not _one_type([item.spec for item in changed]):
        raise PagingError("vLLM can't hold this model's caches as one kind: it needs its hybrid KV cache manager")
    return changed


def _one_type(specs: Iterable[Spec]) -> bool:
    return len({(spec.type, spec.block_size, spec.sharded) for spec in specs}) == 1


def _paged(placed: Sequence[Placed]) -> tuple[Group, ...]:
    """Pages of one size, and groups of as many layers."""
    largest = max(item.spec.page_bytes for item in placed)
    try:
        items = [Placed(stage=item.stage, spec=_with_page(item.spec, largest)) for item in placed]
    except PagingError:
        promoted = _promoted(placed)
        return (Group(members=tuple(promoted), uniform=True),)
    kinds = sorted(_gathered(items, lambda item: item.spec).values(), key=lambda members: not members[0].spec.grows)
    counts = [len(members) for members in kinds]
    size = max(counts) if max(counts) < min(counts) * _LITTLE_MORE else min(counts)
    return tuple(
        Group(members=tuple(members[first::pieces]))
        for members in kinds
        for pieces in (ceil_div(len(members), size),)
        for first in range(pieces)
    )


def _with_page(spec: Spec, page_bytes: int) -> Spec:
    if spec.page_bytes == page_bytes:
        return spec
    if isinstance(spec.cache, State):
        return padded(spec, page_bytes)
    if page_bytes % spec.page_bytes == 0:
        return with_block(spec, spec.block_size * (page_bytes // spec.page_bytes))
    if isinstance(spec.cache, Latent):
        raise PagingError("the page of a latent can't be padded")
    return padded(spec, page_bytes)


def _packed(placed: Sequence[Placed]) -> tuple[Group, ...]:
    """Groups by type and block size, each cut into as many as bring its layers near the others'."""
    buckets = list(_gathered(placed, lambda item: (item.spec.type, item.spec.block_size, item.spec.sharded)).values())
    shapes = [list(_gathered(bucket, lambda item: item.spec.page_bytes).values()) for bucket in buckets]
    even = [shape for shape in shapes if len(set(map(len, shape))) == 1]
    size = _least_padding([len(shape[0]) for shape in even], max((len(s[0]) for s in even if len(s) > 1), default=0))
    pieces = [ceil_div(len(shape[0]), size) if size and shape in even else 1 for shape in shapes]
    pieces = _fitting(buckets, shapes, pieces, cut=size is None)
    cut = zip(buckets, shapes, pieces, strict=True)
    return tuple(group for bucket, shape, count in cut for group in _cut(bucket, shape, count))


def _fitting(
    buckets: Sequence[Sequence[Placed]], shapes: Sequence[Sequence[Sequence[Placed]]], pieces: list[int], *, cut: bool
) -> list[int]:
    """More groups of states and rings (and of windows that nothing else cuts) than would make the block larger."""
    free = [bucket[0].spec.kind in ("state", "ring") or (cut and bucket[0].spec.kind == "window") for bucket in buckets]
    block = max(
        sum(ceil_div(len(members), len(bucket) if loose else count) * members[0].spec.page_bytes for members in shape)
        for bucket, shape, count, loose in zip(buckets, shapes, pieces, free, strict=True)
    )
    return [
        max(count, ceil_div(len(bucket), max(1, block // bucket[0].spec.page_bytes))) if loose else count
        for bucket, count, loose in zip(buckets, pieces, free, strict=True)
    ]


def _cut(bucket: Sequence[Placed], shape: Sequence[Sequence[Placed]], pieces: int) -> Iterable[Group]:
    if pieces == 1:
        yield Group(members=tuple(bucket), uniform=True)
        return
    repeats = list(zip(*shape, strict=True))
    for first in range(pieces):
        yield Group(members=tuple(item for repeat in repeats[first::pieces] for item in repeat), uniform=True)


def _least_padding(counts: Sequence[int], least: int) -> int | None:
    """The group size from ``least`` on that fills up all counts with the fewest layers, the largest of such."""
    if not least:
        return None
    return min(range(least, max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))


def _gathered(items: Iterable[Placed], key: Callable[[Placed], K]) -> dict[K, list[Placed]]:
    found: dict[K, list[Placed]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
