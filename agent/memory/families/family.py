"""One row of the table: how a kind of model lays out its layers, and the weights that its config doesn't list."""

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct, field

from agent.memory.families.attention import heads
from agent.memory.families.patterns import FULL, Pattern, alike
from agent.memory.fields import Fields
from agent.memory.layers import Layer

Kind = Callable[[Fields], Layer]
Derived = Mapping[str, object]


class Family(Struct, frozen=True, kw_only=True):
    """Layers and weights of one ``model_type``. A bias is always, never, or switched by a config key.

    ``types`` names the type of each layer and ``kinds`` says what a layer of that type caches; a multi-token-prediction
    layer is of the types ``mtp``, else of the first layer's. ``reads``: of ``FOREIGN_KEYS``, those understood here.
    ``counted``: all its matrices are known; else the weights can't be counted from a config.
    """

    types: Pattern = alike
    kinds: Mapping[str, Kind] = field(default_factory=lambda: {FULL: heads})
    mtp: tuple[str, ...] = ()
    layers: Callable[[Fields, int], list[Layer]] | None = None  # where types are not enough
    reads: tuple[str, ...] = ()
    class_defaults: Mapping[str, object] = {}  # of keys that a config leaves out
    derive: Callable[[Fields], Derived] | None = None  # what the class makes of other fields
    mla: bool = False
    counted: bool = True
    predicts: bool = True  # the matrices of its multi-token-prediction layers are known too
    matrices: str | None = None  # the layers' matrices are of a kind of their own: its name in ``parameters``
    qkv_bias: bool | str = False
    out_bias: bool | str = False
    gated: bool = False  # Q comes with a gate
    sinks: bool = False
    mlp_bias: bool | str = False
    qk_norm: Literal["head", "all_heads"] | None = None
    qk_norm_key: str | None = None  # the config key that switches it
    norms: int = 2  # vectors of hidden size per layer
    final_norms: int = 1
    mlp_matrices: int = 3
    expert_bias: bool = False
    expert_width: Literal["moe_intermediate_size", "intermediate_size"] = "moe_intermediate_size"
    router_bias: Mapping[str, object] = {}  # config entries under which the router has one
    shared_gate: bool = False
    tied: bool = False  # class default


def experts_alone(fields: Fields) -> Derived:
    """Where every layer has experts, no width of dense ones is given."""
    return {"intermediate_size": fields.values.get("intermediate_size", fields.values.get("moe_intermediate_size"))}
