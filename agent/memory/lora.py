"""Bytes of vLLM's slots for LoRA adapters, which it allocates whole while it loads the model, adapters or not.

For each slot, of rank r, a linear layer of ``rows`` outputs and ``columns`` inputs has r (rows + columns) elements, as
one rank keeps them: A whole and B split with the outputs of Q, K, V, gate and up; A split with the inputs and B whole
of O and down. Fully sharded, A's ranks and B's outputs are split too. Embedding and head have r (vocabulary + hidden)
each and are never split; with several ranks the head keeps a map of its vocabulary in 64 bit. Source: vLLM 0.32
``lora/layers``, ``lora/model_manager.py``.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from agent.memory.matrices import Matrix, Shard, padded, share
from agent.memory.model_config import ModelShape
from agent.memory.parameters import Blueprint

MOST_VOCABULARY = 258_048
_INDEX_BYTES = 8
_LINEAR = frozenset(
    {
        *(f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")),
        *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    }
)
_WITH_TABLES = {  # whether embedding and head take adapters, too
    "LlamaForCausalLM": True,
    "Qwen3ForCausalLM": True,
    "GraniteForCausalLM": True,
    "MistralForCausalLM": False,
    "Qwen2ForCausalLM": False,
    "GemmaForCausalLM": False,
    "Gemma2ForCausalLM": False,
    "Gemma3ForCausalLM": False,
}


class Slots(Struct, frozen=True, kw_only=True):
    """``count`` adapters at once, of at most this ``rank``. ``sharded``: fully, over tensor ranks."""

    count: int
    rank: int
    element_bytes: int
    sharded: bool = False


def has_tables(shape: ModelShape) -> bool:
    """Whether adapters of embedding and head have slots."""
    return _WITH_TABLES.get(shape.architecture or "", False)


def slot_bytes(shape: ModelShape, slots: Slots, shard: Shard, stages: Sequence[int]) -> tuple[int, ...] | None:
    """Bytes of all slots on one rank of each pipeline stage (``stages``: layers of each).

    None for a model whose modules that take adapters are not known: mixtures, latent attention, states, towers.
    """
    plan = shape.blueprint
    if plan is None or shape.architecture not in _WITH_TABLES or shape.other_modules or not _is_plain(plan):
        return None
    sizes = [sum(_elements(matrix, slots, shard) for matrix in layer) for layer in plan.layers]
    elements, start = [], 0
    for count in stages:
        elements.append(sum(sizes[start : start + count]))
        start += count
    total = [size * slots.count * slots.element_bytes for size in elements]
    if has_tables(shape):
        table = slots.rank * (plan.embedding.rows + plan.embedding.columns) * slots.count * slots.element_bytes
        total[0] += table
        total[-1] += table + (table if plan.tied and len(stages) > 1 else 0)
        total[-1] += _INDEX_BYTES * padded(plan.embedding, shard).rows if shard.tp > 1 else 0
    return tuple(total)


def _is_plain(plan: Blueprint) -> bool:
    return not plan.first and all(matrix.name in _LINEAR for layer in plan.layers for matrix in _linear(layer))


def _linear(layer: Sequence[Matrix]) -> Iterator[Matrix]:
    return (matrix for matrix in layer if matrix.columns > 1 or matrix.count > 1)


def _elements(matrix: Matrix, slots: Slots, shard: Shard) -> int:
    """Of A and B of one slot; none of norms and biases."""
    if matrix.name not in _LINEAR:
        return 0
    kept = share(matrix, shard)
    if not slots.sharded or shard.tp == 1:
        return slots.rank * (kept.rows + kept.columns)
    if matrix.split == "rows":
        return slots.rank // shard.tp * kept.columns + slots.rank * kept.rows
    return slots.rank * (kept.columns + matrix.rows // shard.tp)
