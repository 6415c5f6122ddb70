"""What is found out for a target before anything is said about it: deployments that fit, or how close they come."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.arguments import Arguments
from agent.memory.budget import Device
from agent.memory.fitting import Fit, Fitter, largest
from agent.memory.layers import Heads
from agent.memory.model_config import ModelShape, parse_model
from agent.memory.serving import KV_CHOICES, NODE_GPUS, KvChoice, Layout, layouts
from collectors.readings import ModelFiles

GPU_COUNTS = (1, 2, 4, 8, 16, 32, 64)
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
    asked = search.best(target.gpus)
    decision = Decision(engine=base.engine, shape=search.shape, target=target, whole=search.whole(), asked=asked)
    if asked.fits is None:
        return decision
    if asked.fits:
        return replace(decision, fewer=search.first(count for count in GPU_COUNTS if count < target.gpus))
    return replace(
        decision,
        formats=tuple(search.formats()),
        more=search.first(count for count in GPU_COUNTS if count > target.gpus),
        concurrency=search.concurrency(asked),
        context=search.context(),
    )


class _Search:
    """One model, one engine, one target."""

    def __init__(self, files: ModelFiles, base: Arguments, device: Device, target: Target) -> None:
        self.shape = parse_model(files.config)
        self._base = base
        self._target = target
        self._fitter = Fitter(files, device, base)
        self._anywhere = Fitter(files, Device(), base)

    def whole(self, kv: Mapping[str, str] | None = None) -> Fit:
        """One request of full length on one rank."""
        return self._anywhere.fit(Layout(), context=self._target.context, concurrency=1, kv=kv)

    def best(
        self,
        gpus: int,
        *,
        concurrency: int | None = None,
        context: int | None = None,
        kv: Mapping[str, str] | None = None,
    ) -> Fit:
        """The best layout over so many GPUs, for the target or what is given of it."""
        experts = any(layer.experts for layer in self.shape.layers)
        replicated = _kv_heads(self.shape) < min(gpus, NODE_GPUS)
        return self._fitter.best(
            layouts(self._base.engine, gpus, replicated=replicated, experts=experts),
            context=context or self._target.context,
            concurrency=concurrency or self._target.concurrency,
            kv=kv,
        )

    def first(self, counts: Iterable[int]) -> Fit | None:
        """The first number of GPUs that the target fits on."""
        for count in counts:
            try:
                fit = self.best(count)
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
                fit, whole = self.best(target.gpus, kv=kind.arguments), self.whole(kind.arguments)
            except ValueError:
                continue
            if whole.kv_bytes is None:
                continue
            yield SmallerKv(kind=kind, fit=fit, bytes=whole.kv_bytes * target.concurrency)
            if fit.fits:
                return

    def concurrency(self, asked: Fit) -> Fit | None:
        """What the pools hold, where their size does not follow from the target; else the most that fits."""
        held, gpus = asked.requests or 0, self._target.gpus
        if 0 < held < self._target.concurrency and (fit := self.best(gpus, concurrency=held)).fits:
            return fit
        most = largest(self._target.concurrency, 1, lambda count: bool(self.best(gpus, concurrency=count).fits))
        return self.best(gpus, concurrency=most) if most else None

    def context(self) -> Fit | None:
        """The longest requests that fit."""
        gpus, asked = self._target.gpus, self._target.context
        step = _LONG_STEP if asked > 8 * _LONG_STEP else _SHORT_STEP
        most = largest(asked, step, lambda tokens: bool(self.best(gpus, context=tokens).fits))
        return self.best(gpus, context=most) if most else None


def _kv_heads(shape: ModelShape) -> int:
    """The most KV heads of a layer, 1 where each keeps one vector for all: over how many ranks KV can be divided."""
    caches = [cache for layer in shape.layers for cache in layer.caches]
    return max((cache.heads for cache in caches if isinstance(cache, Heads)), default=1)
