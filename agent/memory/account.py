"""Bytes of a model by arithmetic: each part whole and what one rank keeps of it, and the parts put onto stages."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from agent.memory.checkpoint import Checkpoint, Loads
from agent.memory.matrices import Matrix, Shard, padded, share
from agent.memory.parameters import Blueprint
from agent.memory.quantization import Quantization
from agent.memory.units import ceil_div

_WIDE_BYTES = 4


class Share(Struct, frozen=True, kw_only=True):
    """Bytes of one part of the model: the whole part, and what one rank keeps of it."""

    whole: int
    rank: int

    def of(self, checkpoint_bytes: int) -> int:
        return checkpoint_bytes * self.rank // self.whole if checkpoint_bytes else 0


class Account(Struct, frozen=True, kw_only=True):
    """All parts of a decoder: ``first`` is beside the embedding, ``last`` between the layers and the head."""

    layers: tuple[Share, ...]
    table: Share  # the embedding, and the head
    last: Share
    tied: bool
    first: Share
    mtp: Share | None = None  # where it is loaded
    embedded: bool = True  # whether an embedding that is no head is held too

    @property
    def whole(self) -> int:
        tables = self.table.whole * (2 if self.embedded and not self.tied else 1)
        return sum(layer.whole for layer in self.layers) + tables + self.first.whole + self.last.whole

    def stages(self, layers: Sequence[int], checkpoint: Checkpoint | None = None, *, tp: int = 1) -> list[int]:
        """Bytes per stage of ``layers`` layers; of the checkpoint's parts when it has them, else by arithmetic."""
        if checkpoint is None or checkpoint.layers is None:
            sizes = [part.rank for part in self.layers]
            table = self.table.rank if self.embedded or self.tied else 0
            head = self.table.rank
            last, mtp = self.last.rank, self.mtp.rank if self.mtp else 0
            first = self.first.rank
        else:
            sizes = [part.of(size) for part, size in zip(self.layers, checkpoint.layers, strict=True)]
            table, head = self.table.of(checkpoint.embedding), self.table.of(checkpoint.head)
            last, mtp = self.last.of(checkpoint.last), ceil_div(checkpoint.mtp, tp)
            first = self.first.of(checkpoint.first) + ceil_div(checkpoint.other, tp)
        return _by_stage(
            sizes,
            layers,
            first=table + first,
            last=(table if self.tied else head) + last + mtp,
            shared=table if self.tied else 0,
        )


@lru_cache(maxsize=64)  # a plan weighs a model in the same few ways for each of its budgets
def account_for(
    blueprint: Blueprint,
    *,
    element_bytes: int,
    quantization: Quantization | None,
    shard: Shard,
    loads: Loads = Loads(),  # noqa: B008 a frozen value
) -> Account:
    """The account of a model whose unquantised weights have ``element_bytes`` each, for one rank of ``shard``.

    ``loads``: whether with its multi-token-prediction layers, and with an embedding that is no head.
    """
    scale = _Scale(element_bytes, quantization)
    by_layer = quantization is not None and quantization.plain.by_layer
    kinds: dict[tuple[tuple[Matrix, ...], int], Share] = {}
    keys = [(matrices, index if by_layer else 0) for index, matrices in enumerate(blueprint.layers)]
    for key in keys:
        if key not in kinds:
            kinds[key] = scale.share(*key, shard)
    table = padded(blueprint.embedding, shard)
    return Account(
        layers=tuple(kinds[key] for key in keys),
        table=Share(whole=scale.of([blueprint.embedding], 0), rank=scale.of([share(table, shard)], 0)),
        first=scale.share(blueprint.first, 0, shard),
        last=scale.share(blueprint.last, 0, shard),
        tied=blueprint.tied,
        mtp=scale.share(blueprint.mtp, len(blueprint.layers), shard) if loads.mtp and blueprint.mtp else None,
        embedded=loads.embedding,
    )


class _Scale:
    """Weighs matrices of layers."""

    def __init__(self, element_bytes: int, quantization: Quantization | None) -> None:
        self._element_bytes = element_bytes
        self._quantization = quantization

    def share(self, matrices: Sequence[Matrix], index: int, shard: Shard) -> Share:
        kept = [share(matrix, shard) for matrix in matrices]
        return Share(whole=self.of(matrices, index), rank=self.of(kept, index))

    def of(self, matrices: Iterable[Matrix], index: int) -> int:
        return sum(self._bytes(matrix, index) for matrix in matrices)

    def _bytes(self, matrix: Matrix, index: int) -> int:
        quantization = self._quantization
        if quantization is not None and (quantization.everything or matrix.stored == "weights"):
            layout = quantization.of(f"layers.{index}.{matrix.name}")
            if layout is not None:
                return layout.matrix_bytes(matrix.rows, matrix.columns) * matrix.count
        return matrix.elements * (_WIDE_BYTES if matrix.stored == "fp32" else self._element_bytes)


def _by_stage(sizes: Sequence[int], layers: Sequence[int], *, first: int, last: int, shared: int) -> list[int]:
    """Layers go to their stage, the embedding to the first, head and norm to the last; one stage has one table."""
    held, start = [], 0
    for count in layers:
        held.append(sum(sizes[start : start + count]))
        start += count
    held[0] += first
    held[-1] += last - (shared if len(layers) == 1 else 0)
    return held
