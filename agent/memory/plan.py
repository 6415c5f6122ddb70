"""The plan for a target: the operator's ladder, and deployments that fit as ready flags.

Every answer is a budget, so the flags of a choice, put back into ``vramscope budget``, fit.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from agent.memory.arguments import Arguments
from agent.memory.budget import Budget, Device, ModelFacts
from agent.memory.decision import Decision, Target, decide, on_these
from agent.memory.fitting import Fit
from agent.memory.gguf_weights import as_gguf
from agent.memory.ladder import Rung, kv_dtype, ladder
from agent.memory.serving import TITLES, flags_text
from collectors.readings import ModelFiles

__all__ = ["Choice", "Plan", "Rung", "Target", "plan"]


class Choice(Struct, frozen=True, kw_only=True):
    """One deployment that fits, and why it is here.

    ``dcp`` is within the ranks of ``tp``, and so is SGLang's ``dp``, which is of attention. ``kv_bytes`` (what its
    requests need), ``pool_bytes`` and ``weights_bytes`` are those of its fullest rank.
    """

    engine: str
    engine_version: str | None
    engine_flags: str
    gpus: int
    tp: int
    pp: int
    dp: int
    dcp: int
    kv_cache_dtype: str
    context: int
    concurrency: int
    kv_bytes: int | None
    pool_bytes: int | None
    weights_bytes: int | None
    headroom_ratio: float | None
    why: str
    warning: str | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """The decision; its JSON form is ``vramscope.plan/1``. ``fits``: the target as asked, on the GPUs there are.

    ``engine_version``: whose rules and defaults the figures are of.
    """

    schema: str = "vramscope.plan/1"
    fits: bool | None
    engine: str
    engine_version: str | None
    model: ModelFacts
    device: Device
    gpus: int
    context: int
    concurrency: int
    choices: tuple[Choice, ...]
    ladder: tuple[Rung, ...]
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def plan(files: ModelFiles, base: Arguments, device: Device, target: Target, *, others: Sequence[str] = ()) -> Plan:
    """Walk the ladder for one engine; ``others``: engines that get a choice each where the target fits them.

    Raises:
        ModelConfigError: the config has an absurd value.
        ValueError: arguments that don't go with the model.
    """
    files, counted = as_gguf(files, base.weights_bytes) if base.engine == "llama_cpp" else (files, "")
    decision = decide(files, base, device, target)
    elsewhere = (choice for engine in others for choice in _elsewhere(files, _in_common(base, engine), device, target))
    budget = decision.asked.budget
    return Plan(
        fits=decision.fits,
        engine=base.engine,
        engine_version=_version(budget),
        model=budget.model,
        device=device,
        gpus=target.gpus,
        context=target.context,
        concurrency=target.concurrency,
        choices=(*_choices(decision), *elsewhere),
        ladder=tuple(ladder(decision)),
        unknown=budget.unknown,
        warnings=(*budget.warnings, *((f"llama.cpp is counted with {counted}",) if counted else ())),
    )


def _choices(decision: Decision) -> Iterator[Choice]:
    asked, target = decision.asked, decision.target
    if decision.fits:
        yield _choice(asked, "fits as it is")
    if decision.fewer is not None:
        yield _choice(decision.fewer, f"fewest GPUs: {decision.fewer.layout.gpus} of {target.gpus}")
    for one in decision.formats:
        if one.fit.fits:
            yield _choice(one.fit, f"{one.kind.name} KV on the GPUs there are", one.kind.warning)
    step = decision.step
    if step is not None:
        kind = f" and {step.kind.name} KV" if step.kind else ""
        warning = step.kind.warning if step.kind else None
        yield _choice(step.fit, f"steps of {step.tokens:,} tokens{kind} on the GPUs there are", warning)
    if decision.more is not None:
        yield _choice(decision.more, f"{decision.more.layout.gpus} GPUs, KV as it is")
    both = decision.combined
    if both is not None:
        yield _choice(both.fit, f"{both.fit.layout.gpus} GPUs with {both.kind.name} KV", both.kind.warning)
    if decision.concurrency is not None:
        yield _choice(decision.concurrency, "most requests of this length on the GPUs there are")
    if decision.context is not None:
        yield _choice(decision.context, "longest requests for this many on the GPUs there are")


def _in_common(base: Arguments, engine: str) -> Arguments:
    """What is given that another engine understands too."""
    return Arguments(
        engine=engine,
        weights_bytes=base.weights_bytes,
        dtype=base.dtype,
        quantization=None if engine == "llama_cpp" else base.quantization,
        enforce_eager=base.enforce_eager,
    )


def _elsewhere(files: ModelFiles, base: Arguments, device: Device, target: Target) -> Iterator[Choice]:
    """The target in another engine, as it is or in the first KV format that makes it fit; nothing where none does."""
    files, counted = as_gguf(files, base.weights_bytes) if base.engine == "llama_cpp" else (files, "")
    try:
        found = on_these(files, base, device, target)
    except ValueError:
        return
    if found is None:
        return
    fit, kind = found
    title = f"{TITLES[base.engine]} {_version(fit.budget) or ''}".strip()
    weights = f", with {counted}" if counted else ""
    if kind is None:
        yield _choice(fit, f"in {title}{weights}")
    else:
        yield _choice(fit, f"in {title}: {kind.name} KV on the GPUs there are{weights}", kind.warning)


def _choice(fit: Fit, why: str, warning: str | None = None) -> Choice:
    arguments = fit.arguments
    return Choice(
        engine=arguments.engine,
        engine_version=_version(fit.budget),
        engine_flags=flags_text(arguments),
        gpus=fit.layout.gpus,
        tp=arguments.tp or 1,
        pp=arguments.pp or 1,
        dp=arguments.dp or 1,
        dcp=arguments.dcp or 1,
        kv_cache_dtype=kv_dtype(fit),
        context=fit.context,
        concurrency=fit.concurrency,
        kv_bytes=fit.kv_bytes,
        pool_bytes=fit.pool_bytes,
        weights_bytes=fit.weights_bytes,
        headroom_ratio=fit.headroom_ratio,
        why=why,
        warning=warning,
    )


def _version(budget: Budget) -> str | None:
    """The version of the engine that a budget is of, given or the newest that is known here."""
    resolved = budget.arguments.get("engine_version")
    return str(resolved.value) if resolved is not None and resolved.value else None
