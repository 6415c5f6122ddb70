"""What is found out for a target before anything is said about it: deployments that fit, or how close they come."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.arguments import Arguments
from agent.memory.budget import Device
from agent.memory.fitting import Fit, Fitter, largest
from agent.memory.layers import Heads
from agent.memory.model_config import ModelShape, parse_model
from agent.memory.serving import KV_CHOICES, KvChoice, Layout, layouts
from collectors.readings import ModelFiles

GPU_COUNTS = (1, 2, 4, 8, 16, 32, 64)
_LIKELY = 3  # layouts that are looked at for less than the target
_LONG_STEP = 1024
_SHORT_STEP = 256


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


class Decision(Struct, frozen=True, kw_only=True):
    """All answers for one engine. ``whole`` is one request on one rank, whatever the device; ``asked`` the target on
    the GPUs there are. Where that fits, only ``fewer`` GPUs are looked for; else what would make it fit. None: nothing
    does."""

    engine: str
    shape: ModelShape
    target: Target
    whole: Fit
    asked: Fit
    fewer: Fit | None = None
    formats: tuple[SmallerKv, ...] = ()
    more: Fit | None = None
    concurrency: Fit | None = None
    context: Fit | None = None

    @property
    def kv_heads(self) -> int:
        return _kv_heads(self.shape)

    @property
    def need_bytes(self) -> int | None:
        """KV of the target in one copy, over all ranks."""
        return None if self.whole.kv_bytes is None else self.whole.kv_bytes * self.target.concurrency


def decide(files: ModelFiles, base: Arguments, device: Device, target: Target) -> Decision:
    """Look for what fits; ``base``: arguments that are given whatever the deployment.

    Raises:
        ModelConfigError: the config has an absurd value.
        ValueError: arguments that don't go with the model.
    """
    search = _Search(files, base, device, target)
    ranked = search.ranked(target.gpus)
    asked = ranked[0]
    decision = Decision(engine=base.engine, shape=search.shape, target=target, whole=search.whole(), asked=asked)
    if asked.fits is None:
        return decision
    if asked.fits:
        return replace(decision, fewer=search.first(count for count in GPU_COUNTS if count < target.gpus))
    likely = ranked[:_LIKELY]
    return replace(
        decision,
        formats=tuple(search.formats()),
        more=search.first(count for count in GPU_COUNTS if count > target.gpus),
        concurrency=search.concurrency(likely),
        context=search.context(likely),
    )


def on_these(files: ModelFiles, base: Arguments, device: Device, target: Target) -> tuple[Fit, KvChoice | None] | None:
    """The target on the GPUs there are, if it fits: in the KV format it has, else in the first smaller one.

    Raises:
        ValueError: as in ``decide``.
    """
    search = _Search(files, base, device, target)
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
        self._anywhere = Fitter(files, self.shape, Device(), base)

    def whole(self, kv: Mapping[str, str] | None = None) -> Fit:
        """One request of full length on one rank."""
        return self._anywhere.fit(Layout(), context=self._target.context, concurrency=1, kv=kv)

    def ranked(self, gpus: int, kv: Mapping[str, str] | None = None) -> list[Fit]:
        """The target on so many GPUs, the best way first."""
        experts = any(layer.experts for layer in self.shape.layers)
        return self._fitter.ranked(
            layouts(self._base.engine, gpus, kv_heads=_kv_heads(self.shape), experts=experts),
            context=self._target.context,
            concurrency=self._target.concurrency,
            kv=kv,
        )

    def first(self, counts: Iterable[int]) -> Fit | None:
        """The first number of GPUs that the target fits on."""
        for count in counts:
            try:
                fit = self.ranked(count)[0]
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
            yield SmallerKv(kind=kind, fit=fit, bytes=whole.kv_bytes * target.concurrency)
            if fit.fits:
                return

    def concurrency(self, likely: Sequence[Fit]) -> Fit | None:
        """What the pools hold, where their size does not follow from the target; else the most that fits."""
        context, asked = self._target.context, self._target.concurrency
        for one in likely:
            held = one.requests or 0
            if 0 < held < asked and (fit := self._fitter.fit(one.layout, context=context, concurrency=held)).fits:
                return fit
        return self._largest(likely, asked, 1, lambda count: replace(self._target, concurrency=count))

    def context(self, likely: Sequence[Fit]) -> Fit | None:
        """The longest requests that fit."""
        asked = self._target.context
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
