"""What a rank of vLLM needs beside weights and KV: ranges with what they rest on, for these can't be predicted exactly.

Activations are the peak of the engine's profiling run: per batched token the MLP (3 I, split over ranks) and 2.5 H in
16 bit (a fit on vllm#10517), or the experts' workspace or a recurrence's inputs where those are larger; fp32 logits of
all sequences, up to four copies; the up-projected K and V of MLA's chunked prefill, or what sparse attention gathers.
Context, libraries and graphs are published observations. What a host has shown before takes the place of a range.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.layers import Latent, Layer, State
from agent.memory.model_config import Decoder, Experts, LatentAttention
from agent.memory.units import GIB, MIB, Range, ceil_div

_ACTIVATION_BYTES = 2
_LOGIT_BYTES = 4
_PREFILL_TOKENS = 65_536
_GATHERED = 5  # times the longest request (vLLM mla/indexer.py)
_INDEX_LOGITS = 512 * MIB
_ATTENTION_WORKSPACE = 394 * MIB

PARTS = ("activations", "cuda_graphs", "non_torch", "context")
CONTEXT = Range(
    low=300 * MIB, likely=518 * MIB, high=612 * MIB, source="CUDA context and modules of one process, as reported"
)
GRAPHS = Range(low=62 * MIB, likely=410 * MIB, high=2458 * MIB, source="graph pools as reported, 62 MiB to 2.4 GiB")
NO_GRAPHS = Range(low=0, likely=0, high=0, source="enforce_eager: no graphs are captured")
LIBRARIES = Range(
    low=100 * MIB,
    likely=360 * MIB,
    high=1833 * MIB,
    source="non-torch growth of one rank as reported, 0.35 to 1.79 GiB",
)
COMMUNICATION = Range(
    low=GIB,
    likely=1638 * MIB,
    high=4444 * MIB,
    source="NCCL buffers as reported, 1.06 to 4.34 GiB; grows with channels",
)


class RuntimeBudget(Struct, frozen=True, kw_only=True):
    """What a rank needs beside weights and KV. ``outside``: parts the engine's memory fraction does not cover."""

    activations: Range
    cuda_graphs: Range
    non_torch: Range
    context: Range
    outside: tuple[str, ...] = ()

    @property
    def low(self) -> int:
        return self.activations.low + self.cuda_graphs.low + self.non_torch.low + self.context.low

    @property
    def likely(self) -> int:
        return self.activations.likely + self.cuda_graphs.likely + self.non_torch.likely + self.context.likely

    @property
    def high(self) -> int:
        return self.activations.high + self.cuda_graphs.high + self.non_torch.high + self.context.high

    @property
    def parts(self) -> tuple[Range, ...]:
        return (self.activations, self.cuda_graphs, self.non_torch, self.context)

    @property
    def inside(self) -> tuple[Range, ...]:
        """The parts that the engine takes off its own share before it sizes the pool."""
        return tuple(part for name, part in zip(PARTS, self.parts, strict=True) if name not in self.outside)


def with_adapters(runtime: RuntimeBudget, lora_bytes: int) -> RuntimeBudget:
    """The runtime of a process whose slots for adapters are not told apart from it."""
    if not lora_bytes:
        return runtime
    part = runtime.context
    more = Range(
        low=part.low + lora_bytes,
        likely=part.likely + lora_bytes,
        high=part.high + lora_bytes,
        source=f"{part.source}, and slots for LoRA adapters",
    )
    return replace(runtime, context=more)


class Calibration(Struct, frozen=True, kw_only=True):
    """Bytes of a rank that were measured or reported where the same model ran like this; None: not known.

    ``source`` says where they are from, such as "the start-up log of vLLM 0.33".
    """

    source: str
    activations: int | None = None
    cuda_graphs: int | None = None
    non_torch: int | None = None
    context: int | None = None


class Load(Struct, frozen=True, kw_only=True):
    """The largest step of the engine: what the profiling run provokes."""

    batched_tokens: int
    sequences: int
    max_model_len: int
    block_size: int


def estimate(
    decoder: Decoder,
    layers: tuple[Layer, ...],
    load: Load,
    *,
    tp: int,
    ranks: int,
    expert_ranks: int,
    eager: bool,
    outside: tuple[str, ...],
    calibration: Calibration | None = None,
) -> RuntimeBudget:
    """Runtime memory of one rank.

    Args:
        ranks: of one replica (TP x PP); more than one needs communication buffers.
        expert_ranks: that share each expert.
        outside: parts that this version's memory fraction does not cover.
        calibration: what takes the place of a range.
    """
    parts = {
        "activations": _activations(decoder, layers, load, tp=tp, expert_ranks=expert_ranks),
        "cuda_graphs": NO_GRAPHS if eager else GRAPHS,
        "non_torch": _sum(LIBRARIES, COMMUNICATION) if ranks > 1 else LIBRARIES,
        "context": CONTEXT,
    }
    return calibrated(RuntimeBudget(**parts, outside=outside), calibration)


def calibrated(runtime: RuntimeBudget, calibration: Calibration | None) -> RuntimeBudget:
    """The runtime with what is known of such a run in the place of its ranges.

    Of activations a peak is known, of which the allocator keeps more than was handed out: their high bound stays.
    """
    if calibration is None:
        return runtime
    known = {name: size for name in PARTS if (size := getattr(calibration, name)) is not None}
    source = f"calibrated from {calibration.source}"
    ranges = {name: Range(low=size, likely=size, high=size, source=source) for name, size in known.items()}
    if calibration.activations is not None:
        high = max(runtime.activations.high, calibration.activations)
        ranges["activations"] = replace(ranges["activations"], high=high)
    return replace(runtime, **ranges)


def _activations(decoder: Decoder, layers: tuple[Layer, ...], load: Load, *, tp: int, expert_ranks: int) -> Range:
    dense = any(not layer.experts for layer in layers)
    mlp = 3 * ceil_div(decoder.intermediate, tp) * _ACTIVATION_BYTES if dense or decoder.experts is None else 0
    mixture = _expert_bytes(decoder, decoder.experts, expert_ranks) if decoder.experts else 0
    per_token = 5 * decoder.hidden * _ACTIVATION_BYTES // 2 + max(mlp, mixture, _recurrent_bytes(layers, tp))
    logits = load.sequences * decoder.vocabulary * _LOGIT_BYTES
    gathered = _gathered(layers, load)
    latent = gathered or (_latent_prefill(decoder, decoder.mla, load, tp) if decoder.mla else 0)
    step = load.batched_tokens * per_token
    workspace = _ATTENTION_WORKSPACE + (_INDEX_LOGITS if gathered else 0)
    return Range(
        low=step + logits,
        likely=step + 2 * logits + latent,
        high=2 * step + 4 * logits + latent + workspace,
        source=(
            f"{load.batched_tokens:,} batched tokens x {per_token:,} B + 2 x {load.sequences:,} sequences x "
            f"{decoder.vocabulary:,} x 4 B logits"
            + (f" + {latent:,} B {'gathered for sparse attention' if gathered else 'latent prefill'}" if latent else "")
            + "; low: one copy of logits; high: twice the step, four copies, workspaces (vllm#10517, vLLM 0.33)"
        ),
    )


def _expert_bytes(decoder: Decoder, experts: Experts, expert_ranks: int) -> int:
    """Per token: input or gate and up of each chosen expert, and its activation (vLLM fused_moe.py)."""
    width = ceil_div(experts.width, expert_ranks)
    return experts.per_token * (max(2 * width, decoder.hidden) + width) * _ACTIVATION_BYTES


def _recurrent_bytes(layers: Iterable[Layer], tp: int) -> int:
    """Per token: what a recurrence's inputs take, before and after its convolution."""
    states = {cache for layer in layers for cache in layer.caches if isinstance(cache, State)}
    widths = (2 * (state.conv_channels + state.groups * state.group_channels) + state.heads for state in states)
    return max((ceil_div(width, tp) * _ACTIVATION_BYTES for width in widths), default=0)


def _gathered(layers: Iterable[Layer], load: Load) -> int:
    """Sparse attention's prefill collects what it reads of all requests in 16 bit, in one workspace for all layers."""
    latents = [cache for layer in layers for cache in layer.caches if isinstance(cache, Latent) and cache.sparse]
    widest = max((latent.rank + latent.rope for latent in latents), default=0)
    return _GATHERED * load.max_model_len * widest * _ACTIVATION_BYTES


def _latent_prefill(decoder: Decoder, mla: LatentAttention, load: Load, tp: int) -> int:
    """Gathered latent context of a chunked prefill and its up-projection (vLLM mla_attention.py)."""
    tokens = min(_PREFILL_TOKENS, max(8 * load.max_model_len, 4 * load.sequences * load.block_size))
    projected = ceil_div(decoder.heads, tp) * (mla.nope + mla.rope)
    return tokens * (mla.kv_rank + mla.rope + projected) * _ACTIVATION_BYTES


def _sum(first: Range, second: Range) -> Range:
    return Range(
        low=first.low + second.low,
        likely=first.likely + second.likely,
        high=first.high + second.high,
        source=f"{first.source}; {second.source}",
    )
