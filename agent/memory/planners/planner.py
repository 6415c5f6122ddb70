"""What an engine's planner is given and what it gives: the seam between the budget and one engine's rules.

An engine is one module (or package) here with the four functions of ``Planner``, and one entry in
``planners.registry``. Its own words and its versions' rules stay in it.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from agent.memory.arguments import Arguments, Resolved, Source
from agent.memory.kv_cache import KvBudget, stage_layers
from agent.memory.kv_formats import ALIASES
from agent.memory.layers import Layer
from agent.memory.matrices import Shard, rank_shard
from agent.memory.model_config import Decoder, ModelShape
from agent.memory.runtime import RuntimeBudget
from agent.memory.units import Term

T = TypeVar("T", bound=int | float | str | bool | tuple[int, ...])


class Device(Struct, frozen=True, kw_only=True):
    """The device a rank runs on: ``total_bytes`` as NVML says, ``cuda_bytes`` as the engine sees (total - reserved)."""

    name: str | None = None
    total_bytes: int | None = None
    cuda_bytes: int | None = None

    @property
    def visible_bytes(self) -> int | None:
        """What the engine sees, or the NVML total where that is not known."""
        return self.cuda_bytes if self.cuda_bytes is not None else self.total_bytes


class Settings(Struct, frozen=True, kw_only=True):
    """Every value a plan uses, filled in: what all engines have in common. An engine's own settings extend these.

    Attributes:
        stages: layers of each pipeline stage.
        dtype: of weights that are not quantised, as the engine holds them.
        ep: experts whole on ranks.
        resolved: the values with their sources, for the record.
        refused: why the engine would not start like this; each is a warning too.
        lora_bytes: of the slots for LoRA adapters on one rank of each stage, allocated with the model; empty: there are
            none, None: not known.
        unknown: why no KV can be planned; ``plan`` is not called then.
    """

    version: str
    tp: int
    pp: int
    dp: int
    stages: tuple[int, ...]
    dtype: str
    quantization: str | None
    max_model_len: int
    resolved: dict[str, Resolved]
    ep: bool = False
    lora_bytes: tuple[int, ...] | None = ()
    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def shard(self) -> Shard:
        """What one rank keeps of the weights."""
        return rank_shard(tp=self.tp, dp=self.dp, whole_experts=self.ep)

    @property
    def split_is_known(self) -> bool:
        """Whether each rank holds what the arithmetic on the config says."""
        return True

    @property
    def pool_is_unknown(self) -> str | None:
        """What the pool's size is, where it can't be known before the engine runs."""
        return None

    @property
    def embedding_on_device(self) -> bool:
        """Whether an embedding that is no head lies on a device, too."""
        return True

    @property
    def pool_given(self) -> bool:
        """Whether the pool's size is given, so that the memory arithmetic decides nothing."""
        return False


class Stage(Struct, frozen=True, kw_only=True):
    """One pipeline stage of one tensor-parallel rank; None is not known."""

    layers: tuple[Layer, ...]
    weights_bytes: int | None
    runtime: RuntimeBudget | None
    lora_bytes: int | None = 0

    @property
    def loaded_bytes(self) -> int | None:
        """What the engine counts as the model."""
        if self.weights_bytes is None or self.lora_bytes is None:
            return None
        return self.weights_bytes + self.lora_bytes


S = TypeVar("S", bound=Settings)


class Planner(Protocol[S]):
    """One engine. ``S`` is its settings."""

    def resolve(self, arguments: Arguments, shape: ModelShape, device: Device, *, draft: ModelShape | None) -> S:
        """Fill in what was not given, from the checkpoint and the defaults of the engine's version.

        ``draft`` is the model that speculates, where there is one. An unknown model has to resolve too.

        Raises:
            ValueError: arguments that don't go with the model; one sentence.
        """

    def plan(self, stages: Sequence[Stage], settings: S, *, cuda_bytes: int | None) -> list[KvBudget]:
        """The KV of one rank of each stage; every layer is known. Sizes that need the device's memory are None where
        that (``cuda_bytes``), a stage's weights or its runtime are not known."""

    def runtime(self, decoder: Decoder, layers: tuple[Layer, ...], settings: S) -> RuntimeBudget | None:
        """What a rank with these layers needs beside weights and KV; None where nothing is known about it."""

    def explain(self, stage: Stage, settings: S, kv: KvBudget, *, cuda_bytes: int | None) -> Iterator[Term]:
        """The terms of a stage's KV and pool, each with its formula; plain arithmetic once words are taken out."""


class Picker:
    """Takes the given value or a default, and keeps what was taken with its source."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self.resolved: dict[str, Resolved] = {}

    def __call__(self, name: str, default: T, source: Source = "default") -> T:
        given: T | None = getattr(self._arguments, name)
        return self._keep(name, default, source) if given is None else self._keep(name, given, self._source(name))

    def unless_auto(self, name: str, default: str, source: Source) -> str:
        """A dtype by its full name, ``auto`` being the default."""
        return self.kept(name, *self.known(name, default, source))

    def known(self, name: str, default: str, source: Source) -> tuple[str, Source]:
        """A dtype and its source, not kept yet: an engine may turn it into another."""
        given: str | None = getattr(self._arguments, name)
        if given is None or given == "auto":
            return default, source
        return ALIASES.get(given, given), self._source(name)

    def kept(self, name: str, value: T, source: Source) -> T:
        """A value from elsewhere."""
        return self._keep(name, value, source)

    def if_given(self, name: str, value: T | None) -> T | None:
        """A value that has no default."""
        return None if value is None else self._keep(name, value, self._source(name))

    def given(self, name: str) -> object:
        """The value as it was given or reported; None where it was not."""
        return getattr(self._arguments, name)

    def defaulted(self, name: str) -> bool:
        """Whether nobody gave or reported a value."""
        return self.resolved[name].source in ("default", "checkpoint") if name in self.resolved else True

    def _keep(self, name: str, value: T, source: Source) -> T:
        self.resolved[name] = Resolved(value=value, source=source)
        return value

    def _source(self, name: str) -> Source:
        return "reported" if name in self._arguments.reported else "given"


def split_stages(given: tuple[int, ...] | None, count: int, pp: int) -> tuple[int, ...]:
    """Layers of each pipeline stage, as given or spread evenly.

    Raises:
        ValueError: they don't match the model's layers; one sentence.
    """
    if given is not None:
        if len(given) != pp or (count and sum(given) != count):
            raise ValueError(
                f"argument 'pp_layers': expected {pp} stage(s) with {count or 'all'} layers in all, got {len(given)} "
                f"with {sum(given)}"
            )
        return given
    if count and pp > count:
        raise ValueError(f"argument 'pp': expected at most the model's {count} layers, got {pp}")
    return stage_layers(count, pp)
