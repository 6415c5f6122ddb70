"""A weight matrix, and what one rank keeps of it.

Sharding (vLLM 0.33 model_executor): outputs of Q, K, V, gate and up are split, and inputs of O and down; heads and
groups are never cut, so a rank keeps at least one and what can't be divided is held several times. Compressions of MLA,
indexers, routers and norms are on every rank. Experts are cut like an MLP over all ranks of all replicas, or dealt out
whole (expert parallelism), with copies of some where a load balancer keeps them.
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.units import ceil_div

Stored = Literal["weights", "plain", "fp32"]


class Matrix(Struct, frozen=True, kw_only=True):
    """``count`` matrices of ``rows`` outputs by ``columns`` inputs.

    ``name`` is within its layer. ``split``: which side ranks share, in ``units`` that are not cut (0: anywhere).
    ``stored``: weights are in the checkpoint's format, plain ones in its 16 bit, others in 32 bit whatever the model's.
    """

    name: str = ""
    rows: int
    columns: int = 1
    count: int = 1
    split: Literal["rows", "columns"] | None = None
    units: int = 0
    over: Literal["tp", "attention", "experts"] = "tp"
    stored: Stored = "weights"

    @property
    def elements(self) -> int:
        return self.rows * self.columns * self.count


class Shard(Struct, frozen=True, kw_only=True):
    """How a model is cut: over how many ranks MLPs and the vocabulary (``tp``), attention (None: the same), experts.

    ``whole_experts``: each rank has some experts, and not a part of each. ``redundant_experts``: copies in all.
    """

    tp: int = 1
    attention: int | None = None
    experts: int = 1
    whole_experts: bool = False
    redundant_experts: int = 0
    vocabulary_multiple: int = 1


WHOLE = Shard()


def rank_shard(*, tp: int, dp: int, whole_experts: bool = False, redundant_experts: int = 0) -> Shard:
    """One rank of vLLM: vocabulary padded to a multiple of 64, experts over all ranks of all replicas."""
    return Shard(
        tp=tp,
        experts=tp * dp,
        whole_experts=whole_experts,
        redundant_experts=redundant_experts,
        vocabulary_multiple=64,
    )


def vector(name: str, length: int, *, units: int = 0, split: bool = False, stored: Stored = "plain") -> Matrix:
    """A bias or the weights of a norm; ``split`` over the ranks of attention."""
    return Matrix(name=name, rows=length, split="rows" if split else None, units=units, over="attention", stored=stored)


def padded(table: Matrix, shard: Shard) -> Matrix:
    """The embedding or the head with the rows that an engine adds so that ranks can share them."""
    return replace(table, rows=ceil_div(table.rows, shard.vocabulary_multiple) * shard.vocabulary_multiple)


def share(matrix: Matrix, shard: Shard) -> Matrix:
    """What one rank keeps."""
    ranks = {"tp": shard.tp, "attention": shard.attention or shard.tp, "experts": shard.experts}[matrix.over]
    if matrix.over == "experts" and shard.whole_experts:
        return replace(matrix, count=ceil_div(matrix.count + shard.redundant_experts, ranks))
    if matrix.split == "rows":
        return replace(matrix, rows=_kept(matrix.rows, matrix.units, ranks))
    if matrix.split == "columns":
        return replace(matrix, columns=_kept(matrix.columns, matrix.units, ranks))
    return matrix


def _kept(length: int, units: int, ranks: int) -> int:
    whole = units or length
    return ceil_div(whole, ranks) * (length // whole)
