"""What is found out for a target before anything is said about it: deployments that fit, or how close they come."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.arguments import Arguments
from agent.memory.budget import Device
from agent.memory.fitting import Fit, Fitter, largest
from agent.memory.layers import Heads
from agent.memory.model_config import ModelShape, parse_model
from agent.memory.serving import KV_CHOICES, KvChoice, Layout, layouts
from agent.memory.units import ceil_div
from collectors.readings import ModelFiles

GPU_COUNTS = (1, 2, 4, 8, 16, 32, 64)
_LIKELY = 3  # layouts that are looked at for less than the target
_LONG_STEP = 1024
_SHORT_STEP = 256
_LEAST_STEP = 1024  # tokens of an engine's step, below which prefill gets slow


class Target(Struct, frozen=True, kw_only=True):
    """What is asked for: requests that are all at their full length at once, on so many GPUs."""

    gpus: int
    context: int
    concurrency: int


class SmallerKv(Struct, frozen=True, kw_only=True):
    """The target in a smaller KV format on the GPUs there are; ``bytes``: one copy of its KV, over all ranks."""

    kind: KvChoice
    fit: Fit
    bytes: int


class SmallerStep(Struct, frozen=True, kw_only=True):
    """The target with fewer tokens a step of the engine, which keeps windows and states of less in flight.

    ``tokens`` instead of ``default``; ``kind``: the KV format that it needs too; ``bytes`` as in ``SmallerKv``.
    """

    tokens: int
    default: int
    fit: Fit
    bytes: int
    kind: KvChoice | None = None


class Decision(Struct, frozen=True, kw_only=True):
    """All answers for one engine. ``whole`` is the target's KV on one rank; ``asked`` the target on the GPUs there are.

    Where that fits, only ``fewer`` GPUs are looked for; else what would make it fit. None: nothing does. Beyond the
    model's own ``limit`` of tokens that is a shorter ``context`` alone. ``in_flight_bytes``: what a request's KV is
    more for the engine's step than for the smallest. ``combined``: more GPUs, fewer than ``more``, in a smaller format.
    """

    engine: str
    shape: ModelShape
    target: Target
    whole: Fit
    asked: Fit
    fewer: Fit | None = None
    limit: int | None = None
    in_flight_bytes: int = 0
    formats: tuple[SmallerKv, ...] = ()
    step: SmallerStep | None = None
    more: Fit | None = None
    combined: SmallerKv | None = None
    concurrency: Fit | None = None
    context: Fit | None = None

    @property
    def kv_heads(self) -> int:
        return _kv_heads(self.shape)

    @property
    def need_bytes(self) -> int | None:
        """KV of the target in one copy, over all ranks."""
        return self.whole.kv_bytes

    @property
    def request_bytes(self) -> int | None:
        """KV of one request likewise."""
        return self.whole.budget.ranks[0].kv.request_bytes

    @property
    def beyond(self) -> bool:
        """Whether the model itself has no requests that long."""
        return self.limit is not None and self.target.context > self.limit

    @property
    def fits(self) -> bool | None:
        return False if self.beyond else self.asked.fits


def decide(files: ModelFiles, base: Arguments, device: Device, target: Target) -> Decision:
    """Look for what fits; ``base``: arguments that are given whatever the deployment.

    Raises:
        ModelConfigError: the config has an absurd value.
        ValueError: arguments that don't go with the model.
    """
    search = _Search(files, base, device, target)
    ranked = search.ranked(target.gpus)
    asked = ranked[0]
    decision = Decision(
        engine=base.engine,
        shape=search.shape,
        target=target,
        whole=search.whole(),
        asked=asked,
        limit=search.shape.max_positions,
        in_flight_bytes=search.in_flight_bytes(),
    )
    if decision.beyond:
        return replace(decision, context=search.context(ranked[:_LIKELY]))
    if asked.fits is None:
        return decision
    if asked.fits:
        return replace(decision, fewer=search.first(count for count in GPU_COUNTS if count < target.gpus))
    likely = ranked[:_LIKELY]
    formats = tuple(search.formats())
    more = search.first(count for count in GPU_COUNTS if count > target.gpus)
    return replace(
        decision,
        formats=formats,
        step=search.step(formats) if decision.in_flight_bytes else None,
        more=more,
        combined=search.combined(formats, below=more.layout.gpus if more else GPU_COUNTS[-1] + 1),
        concurrency=search.concurrency(likely),
        context=search.context(likely),
    )


def on_these(files: ModelFiles, base: Arguments, device: Device, target: Target) -> tuple[Fit, KvChoice | None] | None:
    """The target on the GPUs there are, if it fits: in the KV format it has, else in the first smaller one.

    Raises:
        ValueError: as in ``decide``.
    """
    search = _Search(files, base, device, target)
    if search.beyond:
        return None
    asked = search.ranked(target.gpus)[0]
    if asked.fits is not False:
        return (asked, None) if asked.fits else None
    return next(((one.fit, one.kind) for one in search.formats() if one.fit.fits), None)


class _Search:
    """One model, one engine, one target."""

    def __init__(self, files: ModelFiles, base: Arguments, device: Device, target: Target) -> None:
        self.shape = parse_model(files.config)
        self._base = base
        self._target = target
        self._fitter = Fitter(files, self.shape, device, base)

    @property
    def beyond(self) -> bool:
        """Whether the model itself has no requests that long."""
        return self._target.context > (self.shape.max_positions or self._target.context)

    def whole(self, kv: Mapping[str, Any] | None = None) -> Fit:
        """The target on one rank of such a device, with room or without: its step decides what is in flight."""
        return self._fitter.measured(
            Layout(), context=self._target.context, concurrency=self._target.concurrency, kv=kv
        )

    def in_flight_bytes(self) -> int:
        """What a request's KV is more for the engine's step than for one token; 0 where a step takes none."""
        now, least = self.whole(), self.whole({"max_num_batched_tokens": 1, "max_num_seqs": 1})
        kept, without = (one.budget.ranks[0].kv.request_bytes for one in (now, least))
        return 0 if kept is None or without is None else max(0, kept - without)

    def ranked(self, gpus: int, kv: Mapping[str, Any] | None = None) -> list[Fit]:
        """The target on so many GPUs, the best way first."""
        experts = any(layer.experts for layer in self.shape.layers)
        return self._fitter.ranked(
            layouts(self._base.engine, gpus, kv_heads=_kv_heads(self.shape), experts=experts),
            context=self._target.context,
            concurrency=self._target.concurrency,
            kv=kv,
        )

    def first(self, counts: Iterable[int], kv: Mapping[str, Any] | None = None) -> Fit | None:
        """The first number of GPUs that the target fits on."""
        for count in counts:
            try:
                fit = self.ranked(count, kv)[0]
            except ValueError:  # more stages than layers
                continue
            if fit.fits:
                return fit
        return None

    def formats(self) -> Iterator[SmallerKv]:
        """Smaller KV formats on the GPUs there are, up to the first that fits; none where one is given."""
        base, target = self._base, self._target
        if base.kv_cache_dtype not in (None, "auto") or base.kv_cache_dtype_k or base.kv_cache_dtype_v:
            return
        heads = any(isinstance(cache, Heads) for layer in self.shape.layers for cache in layer.caches)
        for kind in KV_CHOICES.get(base.engine, ()):
            if not heads and not kind.latent:
                continue
            try:
                fit, whole = self.ranked(target.gpus, kind.arguments)[0], self.whole(kind.arguments)
            except ValueError:
                continue
            if whole.kv_bytes is None:
                continue
            yield SmallerKv(kind=kind, fit=fit, bytes=whole.kv_bytes)
            if fit.fits:
                return

    def step(self, formats: Sequence[SmallerKv]) -> SmallerStep | None:
        """The largest step that makes the target fit, in the first format that can; None where none does.

        Only formats better than the one that fits by itself are tried; a step that is given is kept.
        """
        values = self.whole().budget.arguments
        default = values["max_num_batched_tokens"]
        if default.source != "default" or not isinstance(default.value, int):
            return None
        least = max(_LEAST_STEP, ceil_div(self._target.concurrency, _LEAST_STEP) * _LEAST_STEP)
        steps = [tokens for power in range(1, 8) if (tokens := default.value >> power) >= least]
        for kind in (None, *(one.kind for one in formats if not one.fit.fits)):
            for tokens in steps:
                tried = self._step(tokens, default.value, kind)
                if tried.fit.fits:
                    return tried
        return None

    def _step(self, tokens: int, default: int, kind: KvChoice | None) -> SmallerStep:
        changed = {"max_num_batched_tokens": tokens, **(kind.arguments if kind else {})}
        fit = self.ranked(self._target.gpus, changed)[0]
        return SmallerStep(tokens=tokens, default=default, fit=fit, bytes=self.whole(changed).kv_bytes or 0, kind=kind)

    def combined(self, formats: Sequence[SmallerKv], *, below: int) -> SmallerKv | None:
        """The first smaller format on more GPUs than there are, but fewer than ``below``."""
        if not formats or formats[0].fit.fits:
            return None
        kind, size = formats[0].kind, formats[0].bytes
        fit = self.first((count for count in GPU_COUNTS if self._target.gpus < count < below), kind.arguments)
        return None if fit is None else SmallerKv(kind=kind, fit=fit, bytes=size)

    def concurrency(self, likely: Sequence[Fit]) -> Fit | None:
        """What the pools hold, where their size does not follow from the target; else the most that fits."""
        context, asked = self._target.context, self._target.concurrency
        for one in likely:
            held = one.requests or 0
            if 0 < held < asked and (fit := self._fitter.fit(one.layout, context=context, concurrency=held)).fits:
                return fit
        return self._largest(likely, asked, 1, lambda count: replace(self._target, concurrency=count))

    def context(self, likely: Sequence[Fit]) -> Fit | None:
        """The longest requests that fit, within the model's limit."""
        asked = min(self._target.context, self.shape.max_positions or self._target.context)
        step = _LONG_STEP if asked > 8 * _LONG_STEP else _SHORT_STEP
        return self._largest(likely, asked, step, lambda tokens: replace(self._target, context=tokens))

    def _largest(self, likely: Sequence[Fit], most: int, step: int, wanted: Callable[[int], Target]) -> Fit | None:
        """The largest that fits in any of the likely layouts."""
        spread = [one.layout for one in likely]

        def fits(size: int) -> bool:
            asked = wanted(size)
            return any(self._fitter.holds(one, context=asked.context, concurrency=asked.concurrency) for one in spread)

        found = largest(most, step, fits)
        if found is None:
            return None
        target = wanted(found)
        return self._fitter.ranked(spread, context=target.context, concurrency=target.concurrency)[0]


def _kv_heads(shape: ModelShape) -> int:
    """The most KV heads of a layer, 1 where each keeps one vector for all: over how many ranks KV can be divided."""
    caches = [cache for layer in shape.layers for cache in layer.caches]
    return max((cache.heads for cache in caches if isinstance(cache, Heads)), default=1)
