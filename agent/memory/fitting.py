"""Whether a deployment holds a target, and the smallest or largest that does: nothing but budgets, one after another.

A target is ``concurrency`` requests of ``context`` tokens each, all at full length at once. A deployment fits when its
pools hold them and every device keeps the field's headroom. Engines that take a share of the device are given the
largest share, in thousandths, that leaves it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.arguments import Arguments
from agent.memory.budget import Budget, Device, RankBudget, compute
from agent.memory.model_config import ModelShape
from agent.memory.serving import FRACTIONS, NODE_GPUS, Layout
from agent.memory.units import ceil_div
from collectors.readings import ModelFiles

HEADROOM = 0.10
_MOST = 0.98
_STEPS = 1000


class Fit(Struct, frozen=True, kw_only=True):
    """One deployment against a target. Bytes are those of its fullest rank; None is not known.

    ``requests``: how many of full length all replicas hold together. ``kv_bytes``: what the target needs of a rank.
    """

    arguments: Arguments
    layout: Layout
    budget: Budget
    context: int
    concurrency: int
    requests: int | None
    kv_bytes: int | None
    pool_bytes: int | None
    weights_bytes: int | None
    headroom_ratio: float | None

    @property
    def fits(self) -> bool | None:
        if self.budget.fits is False:
            return False
        if self.requests is None or self.headroom_ratio is None:
            return None
        return self.requests >= self.concurrency and self.headroom_ratio >= HEADROOM


class Fitter:
    """Budgets of one model on one kind of device.

    ``shape`` is the model's config as it was parsed; ``base``: arguments that are given whatever the deployment.
    """

    def __init__(self, files: ModelFiles, shape: ModelShape, device: Device, base: Arguments) -> None:
        self._files = files
        self._shape = shape
        self._device = device
        self._base = base

    def fit(self, layout: Layout, *, context: int, concurrency: int, kv: Mapping[str, Any] | None = None) -> Fit:
        """One deployment, at the engine's default share of the device or at one that leaves the headroom."""
        first = self._at_default(layout, context, concurrency, kv)
        return first if first.fits else self._with_headroom(first)

    def measured(self, layout: Layout, *, context: int, concurrency: int, kv: Mapping[str, Any] | None = None) -> Fit:
        """One deployment at the engine's default share of the device."""
        return self._at_default(layout, context, concurrency, kv)

    def ranked(
        self, layouts: Sequence[Layout], *, context: int, concurrency: int, kv: Mapping[str, Any] | None = None
    ) -> list[Fit]:
        """The layouts from the best on, up to the first that fits; those that a model can't have are left out.

        Raises:
            ValueError: none is left; the reason of the last.
        """
        fits, problem = [], ValueError("no layout to try")
        for layout in layouts:
            try:
                fit = self.fit(layout, context=context, concurrency=concurrency, kv=kv)
            except ValueError as error:
                problem = error
                continue
            if fit.fits:
                return [fit]
            fits.append(fit)
        if not fits:
            raise problem
        return sorted(fits, key=_rank, reverse=True)

    def holds(self, layout: Layout, *, context: int, concurrency: int) -> bool:
        """Whether a deployment fits, without a look at what it would hold if not."""
        first = self._at_default(layout, context, concurrency, None)
        if first.fits is not False or first.requests is None or first.headroom_ratio is None:
            return bool(first.fits)
        hopeless = first.requests < concurrency and first.headroom_ratio <= HEADROOM
        return not hopeless and bool(self._with_headroom(first).fits)

    def _at_default(self, layout: Layout, context: int, concurrency: int, kv: Mapping[str, Any] | None) -> Fit:
        share = ceil_div(concurrency, layout.replicas)
        arguments = replace(self._base, max_model_len=context, **layout.arguments, **(kv or {}))
        if arguments.engine == "llama_cpp":
            arguments = replace(arguments, parallel=share)
        first = self._measured(arguments, layout, context, concurrency)
        widened = _widened(first, share)
        return first if widened is None else self._measured(widened, layout, context, concurrency)

    def _measured(self, arguments: Arguments, layout: Layout, context: int, concurrency: int) -> Fit:
        budget = compute(self._files, arguments, self._device, shape=self._shape, explained=False)
        share = ceil_div(concurrency, layout.replicas)
        held = [rank.kv.max_concurrency for rank in budget.ranks]
        requests = None if None in held else min(math.floor(one or 0) for one in held) * layout.replicas
        return Fit(
            arguments=arguments,
            layout=layout,
            budget=budget,
            context=context,
            concurrency=concurrency,
            requests=requests,
            kv_bytes=_most(None if r.kv.request_bytes is None else r.kv.request_bytes * share for r in budget.ranks),
            pool_bytes=_most(rank.kv.pool_bytes for rank in budget.ranks),
            weights_bytes=_most(rank.weights_bytes for rank in budget.ranks),
            headroom_ratio=_headroom_ratio(budget.ranks, self._device),
        )

    def _with_headroom(self, fit: Fit) -> Fit:
        """The same at the largest share that leaves the headroom, where the engine has one and nobody gave it."""
        name = FRACTIONS.get(fit.arguments.engine)
        if name is None or fit.headroom_ratio is None or getattr(self._base, name) is not None:
            return fit
        used = fit.budget.arguments[name].value
        total, visible = self._device.total_bytes or self._device.visible_bytes, self._device.visible_bytes
        if not isinstance(used, float) or not total or not visible:
            return fit
        share = math.floor(_STEPS * (used + (fit.headroom_ratio - HEADROOM) * total / visible)) / _STEPS
        share = min(share, _MOST)
        if share <= 0 or share == used:
            return fit
        return self._measured(replace(fit.arguments, **{name: share}), fit.layout, fit.context, fit.concurrency)


def largest(most: int, step: int, fits: Callable[[int], bool]) -> int | None:
    """The largest multiple of ``step`` up to ``most`` (or ``most`` itself) that fits; None when not even ``step`` does.

    What is larger than one that does not fit does not fit either.
    """
    if fits(most):
        return most
    low, high = 0, ceil_div(most, step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * step) else (low, middle)
    return low * step or None


def _widened(fit: Fit, share: int) -> Arguments | None:
    """More sequences (and with them tokens) of a step, where the engine's default is fewer than a replica's share."""
    values = fit.budget.arguments
    changed: dict[str, Any] = {}
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        value = values[name].value if name in values else None
        if isinstance(value, int) and value < share:
            changed[name] = share
    return replace(fit.arguments, **changed) if changed else None


def _rank(fit: Fit) -> tuple[bool, bool, bool, int]:
    """The engine starts; it holds anything; it needs no pipeline where its GPUs are few; it holds most."""
    alone = fit.arguments.pp in (None, 1) or fit.layout.gpus > NODE_GPUS
    return not fit.budget.refused, bool(fit.requests), alone, fit.requests or 0


def _most(values: Iterator[int | None]) -> int | None:
    known = list(values)
    return None if None in known else max(value or 0 for value in known)


def _headroom_ratio(ranks: Sequence[RankBudget], device: Device) -> float | None:
    total = device.total_bytes or device.visible_bytes
    rooms = [rank.headroom_bytes for rank in ranks]
    return None if total is None or None in rooms else min(room or 0 for room in rooms) / total
