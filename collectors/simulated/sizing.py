"""Bytes of a simulated rank: what a vLLM server allocates, in which order, and how many KV blocks it gets.

    requested = ceil(cuda_total x gpu_memory_utilization)
    blocks    = floor((requested - weights - activation peak - graphs) / bytes_per_block)

That is vLLM 0.32's own arithmetic (v1/worker/gpu_worker.py, v1/core/kv_cache_utils.py): context and communication are
allocated before its baseline and lie outside the fraction. Before 0.20.2 the graphs did so too, on top of the pool. The
driver hands out memory in steps of 2 MiB.
"""

import math
import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from collectors.simulated.story import Device, Loading, Server

MIB = 2**20
PAGE_BYTES = 2 * MIB
GRAPHS_INSIDE_SINCE = (0, 20, 2)

Phase = Literal["boot", "context", "weights", "profiling", "pool", "graphs", "serving"]


class RankSizes(Struct, frozen=True, kw_only=True):
    """What one rank of a server allocates; bytes, each a multiple of 2 MiB. ``blocks`` includes the null block."""

    requested_bytes: int
    context_bytes: int
    weights_bytes: int
    activations_bytes: int
    graphs_bytes: int
    pool_bytes: int
    blocks: int

    def held_bytes(self, phase: Phase, done: float) -> int:
        """Bytes on the device in a phase of which the share ``done`` (0-1) has passed."""
        loaded = self.context_bytes + self.weights_bytes
        match phase:
            case "boot":
                return 0
            case "context":
                return self.context_bytes
            case "weights":
                return self.context_bytes + whole_pages(self.weights_bytes * done)
            case "profiling":
                return loaded + self.activations_bytes
            case "pool":
                return loaded + self.pool_bytes
            case "graphs":
                return loaded + self.pool_bytes + whole_pages(self.graphs_bytes * done)
            case "serving":
                return loaded + self.pool_bytes + self.graphs_bytes + self.activations_bytes


class AllocatorSizes(Struct, frozen=True, kw_only=True):
    """What PyTorch's allocator has of a rank; bytes."""

    active_bytes: int
    active_peak_bytes: int
    reserved_bytes: int
    private_pools_bytes: int


def allocator_sizes(sizes: RankSizes, phase: Phase, done: float, busy: float) -> AllocatorSizes | None:
    """The allocator of a rank in a phase; None before there is one. Its context is outside, graphs are set apart.

    ``busy`` (0-1): how many of the sequences that it may run are running; so much of the activations is in use.
    """
    held = sizes.held_bytes(phase, done)
    if phase in ("boot", "context"):
        return None
    reserved = held - sizes.context_bytes
    private = sizes.graphs_bytes if phase == "serving" else whole_pages(sizes.graphs_bytes * done)
    private = private if phase in ("graphs", "serving") else 0
    idle = sizes.activations_bytes if phase in ("profiling", "serving") else 0
    unused = idle - int(sizes.activations_bytes * busy) if phase == "serving" else 0
    profiled = sizes.weights_bytes + sizes.activations_bytes if phase != "weights" else 0
    return AllocatorSizes(
        active_bytes=reserved - private - unused,
        active_peak_bytes=max(reserved - private, profiled),
        reserved_bytes=reserved,
        private_pools_bytes=private,
    )


def whole_pages(size: float) -> int:
    """Bytes the driver takes for ``size`` bytes."""
    return math.ceil(size / PAGE_BYTES) * PAGE_BYTES


def rank_sizes(server: Server, devices: Sequence[Device]) -> RankSizes:
    """Sizes of each rank of a server; of unequal devices the smallest decides, as in vLLM."""
    cuda_bytes = min((devices[index].total_mib - devices[index].reserved_mib) * MIB for index in server.devices)
    arguments, overheads = server.arguments, server.overheads
    requested = math.ceil(cuda_bytes * arguments.gpu_memory_utilization)
    weights = whole_pages(-(-server.model.total_size // arguments.tensor_parallel_size))
    activations = whole_pages(overheads.activations_mib * MIB)
    graphs = whole_pages(overheads.graphs_mib * MIB)
    bytes_per_block = server.model.kv_bytes_per_token * arguments.block_size
    inside = graphs if _numbers(server.engine_version) >= GRAPHS_INSIDE_SINCE else 0
    blocks = max(0, requested - weights - activations - inside) // bytes_per_block
    return RankSizes(
        requested_bytes=requested,
        context_bytes=whole_pages((overheads.context_mib + overheads.communication_mib) * MIB),
        weights_bytes=weights,
        activations_bytes=activations,
        graphs_bytes=graphs,
        pool_bytes=whole_pages(blocks * bytes_per_block),
        blocks=blocks,
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def blocks_of(tokens: int, block_size: int) -> int:
    """Blocks that ``tokens`` of one request fill, the last perhaps partly."""
    return -(-tokens // block_size)


def phase_at(loading: Loading, seconds: float) -> tuple[Phase, float]:
    """The phase a server is in, ``seconds`` after it was started, and the share of that phase that has passed."""
    phases: tuple[tuple[Phase, float], ...] = (
        ("boot", loading.boot_seconds),
        ("context", loading.context_seconds),
        ("weights", loading.weights_seconds),
        ("profiling", loading.profiling_seconds),
        ("pool", loading.pool_seconds),
        ("graphs", loading.graphs_seconds),
    )
    for phase, duration in phases:
        if seconds < duration:
            return phase, seconds / duration
        seconds -= duration
    return "serving", 1.0
