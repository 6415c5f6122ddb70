"""An engine that has no planner: its ranks and their weights; how it sizes its pool and its runtime is not known here.

Engines differ in what they split over ranks (embedding, head, padding), in what they convert, in whether tied
embeddings are held twice, and in whether layers that predict several tokens and parts for vision are loaded. So the
weights count as known only where one rank holds a checkpoint without any of these, in 16 bit or quantised as it is.
"""

from collections.abc import Iterator, Sequence

from agent.memory.arguments import Arguments
from agent.memory.kv_cache import KvBudget
from agent.memory.layers import Layer
from agent.memory.model_config import Decoder, ModelShape
from agent.memory.planners import planner
from agent.memory.planners.planner import Device, Picker, Stage, split_stages
from agent.memory.runtime import RuntimeBudget
from agent.memory.units import Term

_HALVES = {"bfloat16", "float16"}


class Settings(planner.Settings, frozen=True, kw_only=True):
    """``one_rank_holds_it``: the checkpoint as it is."""

    one_rank_holds_it: bool

    @property
    def split_is_known(self) -> bool:
        return self.one_rank_holds_it


def resolve(arguments: Arguments, shape: ModelShape, device: Device, *, draft: ModelShape | None) -> Settings:
    """As given; the dtype is the checkpoint's.

    Raises:
        ValueError: more stages than the model has layers; one sentence.
    """
    pick = Picker(arguments)
    tp, pp, ep = pick("tp", 1), pick("pp", 1), pick("ep", False)
    dtype = pick.unless_auto("dtype", shape.dtype if shape.dtype in _HALVES else "float16", "checkpoint")
    return Settings(
        version=pick.if_given("engine_version", arguments.engine_version) or "",
        tp=tp,
        pp=pp,
        dp=pick("dp", 1),
        ep=ep,
        stages=split_stages(arguments.pp_layers, len(shape.layers), pp),
        dtype=dtype,
        quantization=pick.if_given("quantization", arguments.quantization),
        max_model_len=pick.if_given("max_model_len", arguments.max_model_len) or shape.max_positions or 0,
        resolved=pick.resolved,
        unknown=(f"KV pool and runtime: how {arguments.engine} sizes them is not known here",),
        one_rank_holds_it=tp == pp == 1 and not ep and _is_held_as_it_is(shape, dtype),
    )


def _is_held_as_it_is(shape: ModelShape, dtype: str) -> bool:
    converted = shape.quantization is None and not {shape.dtype, dtype} <= _HALVES
    tied = shape.blueprint is None or shape.blueprint.tied
    return not (converted or tied or shape.mtp_layers or shape.other_modules)


def plan(stages: Sequence[Stage], settings: Settings, *, cuda_bytes: int | None) -> list[KvBudget]:
    """Nothing: it is never asked, since no KV can be planned."""
    return [KvBudget() for _ in stages]


def runtime(decoder: Decoder, layers: tuple[Layer, ...], settings: Settings) -> RuntimeBudget | None:
    return None


def explain(stage: Stage, settings: Settings, kv: KvBudget, *, cuda_bytes: int | None) -> Iterator[Term]:
    yield from ()
