"""What a layer keeps of a request, in the model's own terms: heads, elements and tokens; no bytes, no engine.

``model_config`` makes these from a config, ``kv_cache`` gives them bytes, an engine's planner puts them into pages.
"""

from typing import Literal

from msgspec import Struct


class Heads(Struct, frozen=True, kw_only=True):
    """K and V of each KV head.

    ``reach`` says of which tokens: full: all; window: the last ``tokens``; chunk: those since the last multiple of
    ``tokens``; encoder: the ``tokens`` of an encoder's output, whole from the start of a request.
    """

    heads: int
    k_dim: int
    v_dim: int
    reach: Literal["full", "window", "chunk", "encoder"] = "full"
    tokens: int | None = None


class Latent(Struct, frozen=True, kw_only=True):
    """Multi-head latent attention: one vector of ``rank`` + ``rope`` elements a token for all heads, and no V.

    ``sparse``: an indexer chooses what is read of it, for which engines have 8-bit layouts of their own.
    """

    rank: int
    rope: int
    sparse: bool = False


class IndexKeys(Struct, frozen=True, kw_only=True):
    """Keys by which sparse attention chooses: one vector for all heads, of every ``ratio`` tokens.

    ``packed``: in 8 bits or fewer with scales, whatever the KV format (DeepSeek); else plain elements (MiniMax-M3).
    """

    dim: int
    ratio: int = 1
    packed: bool = True


class Record(Struct, frozen=True, kw_only=True):
    """Compressed attention (DeepSeek V4): one vector for all heads, of every ``ratio`` tokens; ``rope`` of its ``dim``
    elements keep 16 bits. ``window``: of the last so many tokens only."""

    dim: int
    rope: int
    ratio: int = 1
    window: int | None = None


class Compressor(Struct, frozen=True, kw_only=True):
    """What makes a record of every ``ratio`` tokens: ``elements`` in fp32 for each of the last ``window`` tokens."""

    elements: int
    window: int
    ratio: int


class State(Struct, frozen=True, kw_only=True):
    """A recurrent state, of one size however long the request.

    ``conv_width`` columns of ``conv_channels`` + ``groups`` x ``group_channels`` elements, and ``heads`` x
    ``head_elements``. A dtype of None is the model's. Heads, channels and groups are split over tensor-parallel ranks.
    """

    kind: Literal["mamba1", "mamba2", "gated_delta_net", "kda", "lightning"]
    heads: int
    head_elements: int
    conv_channels: int = 0
    conv_width: int = 0
    groups: int = 0
    group_channels: int = 0
    conv_dtype: str | None = None
    state_dtype: str | None = None


Cache = Heads | Latent | IndexKeys | Record | Compressor | State


class Layer(Struct, frozen=True, kw_only=True):
    """One layer: ``kind`` is its attention by name, or ``unknown: why``; an unknown one tells no ``caches``.

    ``experts``: whether its feed-forward part is a mixture of experts.
    """

    kind: str
    caches: tuple[Cache, ...] = ()
    experts: bool = False

    @property
    def known(self) -> bool:
        return not self.kind.startswith("unknown")
