"""A model's ``config.json`` as one flat set of fields with typed access: the one normalising step.

The text part (``text_config``, ``language_config``, ``llm_config``) lies over the top level, and older names are read
as the new ones. A missing key takes the default of its class; a ``null`` says that there is none, and takes nothing.
Numbers that can't be right end in one sentence.
"""

from collections.abc import Mapping
from typing import Any

from agent.memory.units import shown

MAX_LAYERS = 10_000
MAX_SIZE = (1 << 31) - 1

_NESTED = ("text_config", "language_config", "llm_config")
_ALIASES = {
    "dtype": ("torch_dtype",),
    "num_experts": ("n_routed_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_tok": ("num_experts_per_token", "top_k_experts", "moe_top_k"),
    "shared_experts": ("n_shared_experts", "num_shared_experts"),
    "shared_expert_intermediate_size": (
        "share_expert_dim",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
    ),
    "num_key_value_heads": ("num_attention_groups",),
    "num_nextn_predict_layers": ("mtp_num_hidden_layers", "num_mtp_layers"),
    "decoder_sparse_step": ("interleave_moe_layer_step",),
    "rope_scaling": ("rope_parameters",),
}


class ModelConfigError(ValueError):
    """A config that can't be right: one sentence with key, expected and got."""


class Fields:
    """A normalised config, and typed access to it."""

    def __init__(self, config: dict[str, Any]) -> None:
        nested: dict[str, Any] = next((config[key] for key in _NESTED if isinstance(config.get(key), dict)), {})
        self._named = config.keys() | nested.keys()
        merged = {**config, **{key: value for key, value in nested.items() if value is not None}}
        self.values: dict[str, Any] = {key: value for key, value in merged.items() if value is not None}
        for name, others in _ALIASES.items():
            found = [self.values[key] for key in (name, *others) if key in self.values]
            if found:
                self.values[name] = found[0]

    def complete(self, defaults: Mapping[str, object]) -> None:
        """Take a class default for each key that the config doesn't name."""
        for key, value in defaults.items():
            if not self._named & {key, *_ALIASES.get(key, ())}:
                self.values[key] = value

    def size(self, key: str, *, least: int = 1, most: int = MAX_SIZE) -> int:
        """An integer that must be there."""
        value = self.optional_size(key, least=least, most=most)
        if value is None:
            raise ModelConfigError(f"config key {key!r} is missing; expected an integer from {least} to {most}")
        return value

    def optional_size(self, key: str, *, least: int = 1, most: int = MAX_SIZE) -> int | None:
        value = self.values.get(key)
        return None if value is None else whole(key, value, least=least, most=most)

    def flag(self, key: str, *, default: bool = False) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise ModelConfigError(f"config key {key!r}: expected true or false, got {shown(value)}")
        return value

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise ModelConfigError(f"config key {key!r}: expected text, got {shown(value)}")
        return value

    def switched(self, rule: bool | str) -> bool:
        """A rule of the family table: always, never, or as this config key says."""
        return self.flag(rule) if isinstance(rule, str) else rule

    def entries(self, key: str, count: int = 0) -> list[Any] | None:
        """A list; with a ``count``, its first so many entries (files append those of further layers)."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise ModelConfigError(f"config key {key!r}: expected a list, got {shown(value)}")
        if len(value) < count:
            raise ModelConfigError(f"config key {key!r}: expected {count} entries, one a layer, got {len(value)}")
        return value[:count] if count else value

    def over(self, values: Mapping[str, object]) -> "Fields":
        """These fields with others in their place."""
        changed = Fields({})
        changed.values = {**self.values, **values}
        return changed

    def part(self, key: str) -> "Fields":
        """A nested object as fields of its own; empty where there is none."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise ModelConfigError(f"config key {key!r}: expected an object, got {shown(value)}")
        return Fields(value)


def whole(key: str, value: object, *, least: int = 1, most: int = MAX_SIZE) -> int:
    """The value as an integer within bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ModelConfigError(f"config key {key!r}: expected an integer from {least} to {most}, got {shown(value)}")
    return value
