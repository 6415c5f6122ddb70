"""The budget: what each component of a server's memory should be, from model, arguments and device.

``compute`` is the one entry. Integer parts (bytes per block, blocks, weights from tensor bytes) are exact; runtime
parts are ranges with their source. Nothing here reads a file or a clock.
"""

from msgspec import Struct

from agent.memory.arguments import Resolved


class Range(Struct, frozen=True, kw_only=True):
    """Bytes that can't be predicted exactly: low and high bound, the likely value, and what they rest on."""

    low: int
    likely: int
    high: int
    source: str


class Device(Struct, frozen=True, kw_only=True):
    """The device a rank runs on: ``total_bytes`` as NVML says, ``cuda_bytes`` as the engine sees (total - reserved)."""

    name: str | None = None
    total_bytes: int | None = None
    cuda_bytes: int | None = None


class LayerGroup(Struct, frozen=True, kw_only=True):
    """Layers of one kind in the model, in order of first appearance."""

    kind: str
    count: int


class ModelFacts(Struct, frozen=True, kw_only=True):
    name: str
    model_type: str | None
    architecture: str | None
    parameters: int | None
    layers: tuple[LayerGroup, ...]


class KvGroup(Struct, frozen=True, kw_only=True):
    """Layers that share one block table. ``page_bytes`` is one layer's share of a block."""

    kind: str
    layers: int
    block_size: int
    page_bytes: int
    blocks_per_request: int | None


class KvBudget(Struct, frozen=True, kw_only=True):
    """KV of one rank. Slopes are bytes per further token of one request; None is not known (see ``Budget.unknown``)."""

    bytes_per_token: int | float | None = None
    bytes_per_token_logical: int | float | None = None
    fixed_bytes_per_request: int | None = None
    groups: tuple[KvGroup, ...] = ()
    bytes_per_block: int | None = None
    blocks: int | None = None
    pool_bytes: int | None = None
    pool_tokens: int | None = None
    request_bytes: int | None = None
    max_concurrency: float | None = None


class RuntimeBudget(Struct, frozen=True, kw_only=True):
    """What a rank needs beside weights and KV. ``outside``: parts the engine's memory fraction does not cover."""

    activations: Range
    cuda_graphs: Range
    non_torch: Range
    context: Range
    outside: tuple[str, ...] = ()

    @property
    def low(self) -> int:
        return sum(part.low for part in self.parts)

    @property
    def likely(self) -> int:
        return sum(part.likely for part in self.parts)

    @property
    def high(self) -> int:
        return sum(part.high for part in self.parts)

    @property
    def parts(self) -> tuple[Range, ...]:
        return (self.activations, self.cuda_graphs, self.non_torch, self.context)


class RankBudget(Struct, frozen=True, kw_only=True):
    """One rank. ``weights_evidence``: computed (checkpoint's tensor bytes) or predicted (config arithmetic)."""

    tp_rank: int
    pp_rank: int
    weights_bytes: int | None
    weights_evidence: str | None
    kv: KvBudget
    runtime: RuntimeBudget | None
    total_bytes: int | None
    headroom_bytes: int | None


class Term(Struct, frozen=True, kw_only=True):
    """One line of ``--explain``: what, the formula with its numbers filled in, and where the formula is from."""

    name: str
    value: int | float | str
    formula: str
    source: str


class Budget(Struct, frozen=True, kw_only=True):
    """The whole prediction; its JSON form is ``vramscope.budget/1``."""

    schema: str = "vramscope.budget/1"
    model: ModelFacts
    arguments: dict[str, Resolved]
    device: Device
    ranks: tuple[RankBudget, ...]
    fits: bool | None
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    terms: tuple[Term, ...] = ()
