"""The matrices of a decoder, from its config, as checkpoints name and shape them.

With H hidden, dk and dv head widths: attention H(nh dk) + H nkv(dk + dv) + nh dv H, with Q twice as wide where a gate
is in it; MLA, its indexer, recurrences and compressors have modules of their own; a gated MLP is 3 H I, an expert
likewise, a router E H. A family whose matrices are not all known has no blueprint, and its weights no count.
"""

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from agent.memory.around import FIRST, LAST
from agent.memory.families.family import Family
from agent.memory.fields import Fields
from agent.memory.layer_kinds import KINDS
from agent.memory.layer_matrices import Part
from agent.memory.layers import Layer
from agent.memory.matrices import Matrix, Stored, vector


class Blueprint(Struct, frozen=True, kw_only=True, dict=True):
    """All matrices of a model without its vision or audio parts. ``tied``: the embedding serves as the head.

    ``first``: what else is loaded beside the embedding. ``mtp``: those of its multi-token-prediction layers, which
    share embedding and head with the model; none where they are not known.
    """

    layers: tuple[tuple[Matrix, ...], ...]
    embedding: Matrix
    last: tuple[Matrix, ...]  # norm, and what else is between the layers and the head
    tied: bool
    first: tuple[Matrix, ...] = ()
    mtp: tuple[Matrix, ...] = ()

    @cached_property
    def parameters(self) -> int:
        """Multi-token-prediction layers left out."""
        kinds = {layer: _elements(layer) for layer in set(self.layers)}
        tables = self.embedding.elements * (1 if self.tied else 2)
        return sum(kinds[layer] for layer in self.layers) + tables + _elements((*self.first, *self.last))


def blueprint(fields: Fields, family: Family, layers: Sequence[Layer], mtp: Sequence[Layer] = ()) -> Blueprint | None:
    """What a model is built of; None where a family's matrices are not all known.

    Raises:
        ModelConfigError: a width is missing or absurd.
    """
    if not family.counted:
        return None
    kind = family.matrices or "decoder"
    matrices = KINDS[kind]
    built: dict[tuple[Layer, int], tuple[Matrix, ...]] = {}
    for index, layer in enumerate(layers):
        own = index if family.matrices else 0
        if (layer, own) not in built:
            built[layer, own] = tuple(matrices(fields, family, layer, index))
    norm = vector("norm", fields.size("hidden_size") * family.final_norms)
    return Blueprint(
        layers=tuple(built[layer, index if family.matrices else 0] for index, layer in enumerate(layers)),
        embedding=Matrix(
            name="embed_tokens",
            rows=fields.size("vocab_size"),
            columns=fields.size("hidden_size"),
            split="rows",
            stored="plain",
        ),
        first=tuple(FIRST[kind](fields)) if kind in FIRST else (),
        last=(norm, *LAST[kind](fields)) if kind in LAST else (norm,),
        tied=fields.flag("tie_word_embeddings", default=family.tied),
        mtp=tuple(matrix for layer in mtp for matrix in _prediction(fields, family, layer, len(layers)))
        if family.predicts
        else (),
    )


def _prediction(fields: Fields, family: Family, layer: Layer, index: int) -> Part:
    """A layer whose input is projected from the last hidden state and the next token's embedding, each with a norm.

    The projection stays in 16 bit, but for DeepSeek V4.
    """
    hidden = fields.size("hidden_size")
    stored: Stored = "weights" if family.matrices == "compressed" else "plain"
    yield Matrix(name="eh_proj", rows=hidden, columns=2 * hidden, stored=stored)
    yield vector("mtp.norms", 3 * hidden)
    yield from KINDS[family.matrices or "decoder"](fields, family, layer, index)


def _elements(matrices: Sequence[Matrix]) -> int:
    return sum(matrix.elements for matrix in matrices)
