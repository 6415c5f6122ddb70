"""Weights of each rank: the checkpoint's own tensor bytes first, arithmetic on the config second.

A rank's share of a part is ``checkpoint bytes x arithmetic of the share / arithmetic of the whole``; parts are each
decoder layer, embedding, head and final norm where tensor headers tell them apart, else the whole model. Evidence is
``computed`` where the checkpoint's bytes are known and one rank holds them all, or the arithmetic agrees with them
within 0.5 %; else ``predicted``, with the reason as a warning.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from agent.memory.checkpoint import DTYPE_BYTES, Checkpoint, loaded
from agent.memory.layers import Layer
from agent.memory.model_config import Decoder, ModelShape
from agent.memory.parameters import Matrix, Shard, count_parameters, embedding, final_norm, layer_matrices
from agent.memory.quantization import WeightFormat, named_format
from agent.memory.units import ceil_div
from collectors.readings import ModelFiles

AGREEMENT = 0.005


class Weights(Struct, frozen=True, kw_only=True):
    """Bytes of one tensor-parallel rank per pipeline stage; None where not known, which ``unknown`` explains."""

    stages: tuple[int | None, ...]
    evidence: Literal["computed", "predicted"] | None
    parameters: int | None
    checkpoint_bytes: int | None = None  # as held, where known
    whole_bytes: int | None = None  # by arithmetic on the config
    warnings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class Share(Struct, frozen=True, kw_only=True):
    """Arithmetic bytes of one part of the model: the whole part, and what one rank keeps of it."""

    whole: int
    rank: int

    def of(self, checkpoint_bytes: int) -> int:
        return checkpoint_bytes * self.rank // self.whole


class Account(Struct, frozen=True, kw_only=True):
    """Arithmetic for all parts of a decoder."""

    layers: tuple[Share, ...]
    embedding: Share
    head: Share
    norm: Share
    tied: bool

    @property
    def whole(self) -> int:
        head = 0 if self.tied else self.head.whole
        return sum(layer.whole for layer in self.layers) + self.embedding.whole + head + self.norm.whole

    def stages(self, layers: Sequence[int], checkpoint: Checkpoint | None = None, *, tp: int = 1) -> list[int]:
        """Bytes per stage of ``layers`` layers; of the checkpoint's parts when it has them, else by arithmetic."""
        if checkpoint is None or checkpoint.layers is None:
            sizes = [share.rank for share in self.layers]
            table, head, norm, other = self.embedding.rank, self.head.rank, self.norm.rank, 0
        else:
            sizes = [share.of(size) for share, size in zip(self.layers, checkpoint.layers, strict=True)]
            table, norm = self.embedding.of(checkpoint.embedding), self.norm.of(checkpoint.norm)
            head, other = self.head.of(checkpoint.head), ceil_div(checkpoint.other, tp)
        return _by_stage(
            sizes,
            layers,
            first=table + other,
            last=(table if self.tied else head) + norm,
            shared=table if self.tied else 0,
        )


def weigh(
    shape: ModelShape, model: ModelFiles, *, shard: Shard, stages: Sequence[int], dtype: str, quantization: str | None
) -> Weights:
    """Weights of one tensor-parallel rank for each pipeline stage (``stages``: layers of each).

    Args:
        dtype: of weights that are not quantised, as the engine holds them.
        quantization: a method given to the engine; it counts where the checkpoint isn't quantised itself.
    """
    counted = shape.decoder is not None and shape.decoder.counted
    parameters = count_parameters(shape.decoder, shape.layers) if shape.decoder and counted else None
    layout, problem = _layout(shape, quantization)
    checkpoint, notes = loaded(shape, model, dtype=dtype)
    if quantization is not None and shape.quantization is None and checkpoint is not None:
        checkpoint, notes = (
            None,
            (*notes, f"weights are quantised to {quantization!r} while loading, so they are predicted"),
        )
    if shape.decoder is None or not counted or problem:
        unknown = "its architecture is not known" if shape.decoder is None else "its config does not tell them all"
        return _without_arithmetic(checkpoint, shard, stages, parameters, notes, problem or unknown)
    account = _account(shape.decoder, shape.layers, DTYPE_BYTES[dtype], layout, shard)
    return _with_arithmetic(account, checkpoint, shard, stages, parameters, (*notes, *_unmodelled(shape)))


def _with_arithmetic(
    account: Account,
    checkpoint: Checkpoint | None,
    shard: Shard,
    stages: Sequence[int],
    parameters: int | None,
    notes: tuple[str, ...],
) -> Weights:
    whole = account.whole
    if checkpoint is None:
        return Weights(
            stages=tuple(account.stages(stages)),
            evidence="predicted",
            parameters=parameters,
            whole_bytes=whole,
            warnings=notes,
        )
    text = checkpoint.total - checkpoint.other
    agrees = abs(text - whole) <= AGREEMENT * whole
    told_apart = checkpoint.layers is not None
    held = account.stages(stages, checkpoint, tp=shard.tp)
    if not told_apart:
        held = [part * checkpoint.total // whole for part in held]
    one_rank = shard.tp == shard.experts == 1 and (told_apart or len(stages) == 1)
    if not agrees:
        notes += (f"the checkpoint holds {text:,} bytes where the config's arithmetic gives {whole:,}",)
    return Weights(
        stages=tuple(held),
        evidence="computed" if one_rank or agrees else "predicted",
        parameters=parameters,
        checkpoint_bytes=checkpoint.total,
        whole_bytes=whole,
        warnings=notes,
    )


def _without_arithmetic(
    checkpoint: Checkpoint | None,
    shard: Shard,
    stages: Sequence[int],
    parameters: int | None,
    notes: tuple[str, ...],
    reason: str,
) -> Weights:
    """One rank that holds everything needs no arithmetic; any other share of an unknown layout is unknown."""
    if checkpoint is not None and shard.tp == shard.experts == len(stages) == 1:
        return Weights(
            stages=(checkpoint.total,),
            evidence="computed",
            parameters=parameters,
            checkpoint_bytes=checkpoint.total,
            warnings=notes,
        )
    missing = "its tensor bytes are not known either" if checkpoint is None else "it is spread over several ranks"
    return Weights(
        stages=(None,) * len(stages),
        evidence=None,
        parameters=parameters,
        checkpoint_bytes=checkpoint.total if checkpoint else None,
        warnings=notes,
        unknown=(f"weights: {reason}, and {missing}",),
    )


def _account(
    decoder: Decoder, layers: Sequence[Layer], element_bytes: int, layout: WeightFormat | None, shard: Shard
) -> Account:
    def share(whole: Iterable[Matrix], rank: Iterable[Matrix]) -> Share:
        return Share(whole=_held(whole, element_bytes, layout), rank=_held(rank, element_bytes, layout))

    kinds = {
        layer: share(layer_matrices(decoder, layer), layer_matrices(decoder, layer, shard)) for layer in set(layers)
    }
    table = share([embedding(decoder)], [embedding(decoder, shard)])
    norm = share([final_norm(decoder)], [final_norm(decoder)])
    return Account(
        layers=tuple(kinds[layer] for layer in layers), embedding=table, head=table, norm=norm, tied=decoder.tied
    )


def _held(matrices: Iterable[Matrix], element_bytes: int, layout: WeightFormat | None) -> int:
    return sum(
        matrix.elements * element_bytes
        if matrix.plain or layout is None
        else layout.matrix_bytes(matrix.rows, matrix.columns) * matrix.count
        for matrix in matrices
    )


def _by_stage(sizes: Sequence[int], layers: Sequence[int], *, first: int, last: int, shared: int) -> list[int]:
    """Layers go to their stage, the embedding to the first, head and norm to the last; one stage has one table."""
    held, start = [], 0
    for count in layers:
        held.append(sum(sizes[start : start + count]))
        start += count
    held[0] += first
    held[-1] += last - (shared if len(layers) == 1 else 0)
    return held


def _layout(shape: ModelShape, quantization: str | None) -> tuple[WeightFormat | None, str]:
    """The layout of quantised weights, None when they aren't; and why it is not known, empty when it is."""
    if shape.quantization is not None:
        return shape.quantization.format, shape.quantization.why
    if quantization is None:
        return None, ""
    layout = named_format(quantization)
    return layout, "" if layout else f"the bytes of weights quantised by {quantization!r} are not known from a config"


def _unmodelled(shape: ModelShape) -> tuple[str, ...]:
    notes = []
    if shape.quantization is not None and shape.quantization.plain_modules:
        names = shape.quantization.plain_modules
        notes.append(
            f"arithmetic takes {len(names)} module(s) left unquantised as quantised, such as {names[0][:60]!r}"
        )
    if shape.other_modules:
        notes.append(f"arithmetic on the config leaves out what {', '.join(shape.other_modules)} describes")
    return tuple(notes)
