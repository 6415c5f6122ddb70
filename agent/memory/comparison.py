"""Live memory against the budget: headroom, the unexplained residual, and bounds on KV-block-internal fragmentation."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from agent.memory.breakdown import Part
from agent.memory.budget import RuntimeBudget

ROOM_COMPONENTS = ("free", "activations", "allocator_slack")
RUNTIME_COMPONENTS = ("runtime", "cuda_graphs", "activations", "allocator_slack", "context")
"""What a budget's runtime stands for; those after the first only where they are known apart."""


def headroom_ratio(
    parts: Sequence[Part], total_bytes: int, runtime: Mapping[str, RuntimeBudget | None]
) -> float | None:
    """Share of the device left for temporaries and fragmentation; see ``room_bytes``."""
    room = room_bytes(parts, runtime)
    return None if room is None else room / total_bytes


def room_bytes(parts: Sequence[Part], runtime: Mapping[str, RuntimeBudget | None]) -> int | None:
    """What is left for temporaries and fragmentation: free + activations + allocator slack.

    Where a server's activations are not told apart they are in its ``runtime``; the part of that above the likely
    context, graphs and libraries of its budget counts as room, up to the budget's high bound: what is above it is
    unexplained, and may be a leak. None when a server has no budget, or weights and pool are in its ``runtime`` too.

    Args:
        runtime: by server, its budget's runtime on this device, None where there is no budget.
    """
    room = 0
    apart = {part.server for part in parts if part.component == "activations"}
    slack = {part.server: part.bytes for part in parts if part.component == "allocator_slack"}
    named = {(part.server, part.component) for part in parts}
    for part in parts:
        if part.component in ROOM_COMPONENTS:
            room += part.bytes
        elif part.component == "runtime" and part.server not in apart:
            budget = runtime.get(part.server)
            if budget is None or not {(part.server, "weights"), (part.server, "kv_used")} <= named:
                return None
            fixed = budget.context.likely + budget.cuda_graphs.likely + budget.non_torch.likely
            held = runtime_bytes(parts, part.server) - slack.get(part.server, 0)
            room += max(0, min(held, budget.high) - fixed)
    return room


def runtime_bytes(parts: Sequence[Part], server: str) -> int:
    """All of a server's live runtime, whatever of it is known apart."""
    return sum(part.bytes for part in parts if part.server == server and part.component in RUNTIME_COMPONENTS)


def unexplained_bytes(runtime_bytes: int, budget: RuntimeBudget) -> int:
    """Live runtime above the budget's high bound, 0 when within it."""
    return max(0, runtime_bytes - budget.high)


class Bounds(Struct, frozen=True, kw_only=True):
    """A ratio that can only be bounded from outside, 0-1."""

    low: float
    likely: float
    high: float


def kv_block_fragmentation(*, used_blocks: int, block_size_tokens: int, running_requests: int) -> Bounds | None:
    """Share of handed-out KV slots that hold no token: ``1 - tokens / (blocks x block size)``.

    Sequence lengths are not visible, but each running sequence leaves 0 to ``block_size - 1`` slots of its last block
    unfilled, half of that on average. None when no block is handed out or no sequence is known to hold one.
    """
    if used_blocks <= 0 or running_requests <= 0:
        return None
    slots = used_blocks * block_size_tokens
    ceiling = (block_size_tokens - 1) / block_size_tokens
    worst = min(running_requests * (block_size_tokens - 1) / slots, ceiling)
    return Bounds(low=0.0, likely=worst / 2, high=worst)
