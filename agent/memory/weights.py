"""Weights of each rank: the checkpoint's own tensor bytes first, arithmetic on the config second.

A rank's share of a part is ``checkpoint bytes x arithmetic of the share / arithmetic of the whole``; parts are each
decoder layer, embedding, head and final norm where tensor headers tell them apart, else the whole model. Evidence is
``computed`` where the checkpoint's bytes are known and one rank holds them all, or the arithmetic agrees with them
within 0.5 %; else ``predicted``, with the reason as a warning.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.account import Account, account_for
from agent.memory.checkpoint import DTYPE_BYTES, Checkpoint, Loads, loaded
from agent.memory.matrices import Shard
from agent.memory.model_config import ModelShape
from agent.memory.quantization import Quantization, named_format
from agent.memory.units import shown
from collectors.readings import ModelFiles

AGREEMENT = 0.005

_DTYPES = {*DTYPE_BYTES, "half", "float", "auto", "float8_e4m3fn", "int8"}


class Weights(Struct, frozen=True, kw_only=True):
    """Bytes of one tensor-parallel rank per pipeline stage; None where not known, which ``unknown`` explains."""

    stages: tuple[int | None, ...]
    evidence: Literal["computed", "predicted"] | None
    parameters: int | None
    checkpoint_bytes: int | None = None  # as held, where known
    whole_bytes: int | None = None  # by arithmetic on the config
    warnings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def weigh(
    shape: ModelShape,
    model: ModelFiles,
    *,
    shard: Shard,
    stages: Sequence[int],
    dtype: str,
    quantization: str | None,
    loads: Loads = Loads(),  # noqa: B008 a frozen value
) -> Weights:
    """Weights of one tensor-parallel rank for each pipeline stage (``stages``: layers of each).

    Args:
        dtype: of weights that are not quantised, as the engine holds them.
        quantization: a method given to the engine; it counts where the checkpoint isn't quantised itself.
    """
    parameters = shape.blueprint.parameters if shape.blueprint else None
    held_as, problem = _held_as(shape, quantization)
    checkpoint, notes = loaded(shape, model, dtype=dtype, loads=loads)
    if quantization is not None and shape.quantization is None and checkpoint is not None:
        checkpoint, notes = (
            None,
            (*notes, f"weights are quantised to {quantization!r} while loading, so they are predicted"),
        )
    if shape.dtype is not None and shape.dtype not in _DTYPES:
        notes += (f"config key 'dtype': {shown(shape.dtype)} is not known here, so weights are taken as {dtype}",)
    if shape.blueprint is None or problem:
        return _without_arithmetic(checkpoint, shard, stages, parameters, notes, problem or _no_blueprint(shape))
    account = account_for(
        shape.blueprint, element_bytes=DTYPE_BYTES[dtype], quantization=held_as, shard=shard, loads=loads
    )
    notes += _unmodelled(shape, checkpoint, loads)
    return _with_arithmetic(account, checkpoint, shard, stages, parameters, notes)


def with_draft(weights: Weights, draft: Weights) -> Weights:
    """The last stage holds the model that speculates, too."""
    last, more = weights.stages[-1], draft.stages[0]
    held = None if last is None or more is None else last + more
    return replace(
        weights,
        stages=(*weights.stages[:-1], held),
        evidence=weights.evidence if draft.evidence == "computed" else draft.evidence,
        unknown=(*weights.unknown, *(f"draft: {text}" for text in draft.unknown)),
        warnings=(*weights.warnings, *(f"draft: {text}" for text in draft.warnings)),
    )


def in_part_on_host(weights: Weights, gib: float) -> Weights:
    """Weights of which this many GiB stay off the device: what lies on it is not known."""
    return replace(
        weights,
        stages=(None,) * len(weights.stages),
        unknown=(
            *weights.unknown,
            f"weights: {gib:g} GiB of a rank's are kept in host memory, in whole tensors: how much lies on the device "
            "only the engine's log says",
        ),
    )


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
    text = checkpoint.total - checkpoint.other - checkpoint.mtp
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


def _no_blueprint(shape: ModelShape) -> str:
    if shape.decoder is None:
        return "its architecture is not known"
    return f"not all matrices of model_type {shown(shape.model_type)} are known here"


def _held_as(shape: ModelShape, quantization: str | None) -> tuple[Quantization | None, str]:
    """How quantised weights are held, None when they aren't; and why it is not known, empty when it is."""
    if shape.quantization is not None:
        return shape.quantization, shape.quantization.why
    if quantization is None:
        return None, ""
    layout = named_format(quantization)
    reason = "" if layout else f"the bytes of weights quantised by {quantization!r} are not known from a config"
    return Quantization(method=quantization, format=layout), reason


def _unmodelled(shape: ModelShape, checkpoint: Checkpoint | None, loads: Loads) -> tuple[str, ...]:
    notes = []
    if shape.quantization is not None and shape.quantization.plain.odd:
        names = shape.quantization.plain.odd
        notes.append(
            f"arithmetic takes {len(names)} module(s) left unquantised as quantised, such as {names[0][:60]!r}"
        )
    if checkpoint is None or checkpoint.layers is None:
        if loads.mtp and shape.mtp and shape.blueprint is not None and not shape.blueprint.mtp:
            notes.append(f"arithmetic on the config leaves out {len(shape.mtp)} multi-token-prediction layer(s)")
        if shape.other_modules:
            notes.append(f"arithmetic on the config leaves out what {', '.join(shape.other_modules)} describes")
    return tuple(notes)
