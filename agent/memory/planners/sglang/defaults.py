"""What SGLang takes for granted on a device: tokens of a chunk, sequences of a graph, and the share for weights and KV.

    reserve (MiB) = 512 + 1.5 x max(chunk, 2048) + 128 x tp x pp + 2 x graphed sequences + prefill graphs
    share         = round((total - reserve) / total, 3); the reserve is at least 10 GiB above 60 GiB

Source: SGLang 0.5.23 srt/arg_groups/memory_hook.py, cuda_graph_hook.py.
"""

from msgspec import Struct

from agent.memory.units import MIB


class Steps(Struct, frozen=True, kw_only=True):
    """Defaults of devices below ``below`` MiB: tokens of a chunk, and sequences of a graph below and from TP 4."""

    below: float
    chunk: int
    sequences: int
    sequences_wide: int


_STEPS = (
    Steps(below=20 * 1024, chunk=2048, sequences=8, sequences_wide=8),
    Steps(below=35 * 1024, chunk=4096, sequences=48, sequences_wide=160),
    Steps(below=60 * 1024, chunk=4096, sequences=32, sequences_wide=160),
    Steps(below=160 * 1024, chunk=8192, sequences=256, sequences_wide=512),
    Steps(below=float("inf"), chunk=16_384, sequences=512, sequences_wide=512),
)
_UNKNOWN_DEVICE = Steps(below=0, chunk=4096, sequences=160, sequences_wide=160)
_LATENT_PREFILL_MIB, _EACH_PREFILL_MIB, _EACH_SEQUENCE_MIB = 1536, 8, 2
_PREFILL_SIZES = (
    *range(4, 33, 4),
    *range(48, 257, 16),
    *range(288, 513, 32),
    *range(576, 1025, 64),
    *range(1280, 4097, 256),
)


def chunk_and_sequences(device_bytes: int | None, *, tp: int) -> tuple[int, int]:
    """Tokens of a prefill chunk, and most sequences of a decode graph."""
    size = (device_bytes or 0) / MIB
    steps = next(row for row in _STEPS if size < row.below) if device_bytes else _UNKNOWN_DEVICE
    return steps.chunk, steps.sequences if tp < 4 else steps.sequences_wide


def static_fraction(
    device_bytes: int, *, chunk: int, sequences: int, tp: int, pp: int, replicas: int, latent: bool, eager: bool
) -> float:
    """The share of the device for weights and pools.

    Args:
        sequences: of the largest decode graph.
        replicas: of attention; more than one pad their graphs.
        latent: whether attention is MLA, whose prefill graphs cost more.
    """
    total = device_bytes / MIB
    reserve = 512 + 1.5 * max(chunk, 2048) + tp * pp / 8 * 1024
    if replicas > 1:
        reserve += sequences * replicas * (4.5 if sequences > 300 else 3)
    if not eager:
        reserve += sequences * _EACH_SEQUENCE_MIB
        reserve += _LATENT_PREFILL_MIB if latent else prefill_graphs(chunk) * _EACH_PREFILL_MIB
    if total > 60 * 1024:
        reserve = max(reserve, 10 * 1024)
    return round((total - reserve) / total, 3)


def prefill_graphs(chunk: int) -> int:
    """How many prefill sizes are captured up to a chunk."""
    return len([size for size in _PREFILL_SIZES if size <= chunk]) + len(range(4608, chunk + 1, 512))
