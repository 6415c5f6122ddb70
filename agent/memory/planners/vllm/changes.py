"""What vLLM's rules mean for the memory of a server that changes its version. The rules are those of ``rules.py``.

The fraction is ``gpu_memory_utilization``, the share of the device that vLLM fills with weights, activations and KV.
"""

from collections.abc import Iterator

from agent.memory.planners.changes import Change, Wording, changes_between
from agent.memory.planners.vllm.rules import number_of, rules_for

WORDS = {
    "graphs_inside": Wording(
        gained="CUDA graphs moved inside the fraction, so the pool is smaller by them",
        lost="CUDA graphs moved outside the fraction and come on top of it",
    ),
    "fraction": Wording(
        gained="the default gpu_memory_utilization rose from {old} to {new}",
        lost="the default gpu_memory_utilization fell from {old} to {new}",
        ruled_out_by="gpu_memory_utilization",
    ),
    "communication_outside": Wording(
        gained="NCCL's buffers moved outside the fraction and come on top of it",
        lost="NCCL's buffers moved inside the fraction, so the pool is smaller by them",
    ),
    "batches_in_flight": Wording(
        gained="with sliding windows, a request holds those of all batches under way",
        lost="with sliding windows, a request holds those of one batch only",
    ),
    "states_cached": Wording(
        gained="prefix caching is on by default for models that keep states",
        lost="prefix caching is off by default for models that keep states",
        ruled_out_by="prefix_caching",
    ),
    "tokens_by_concurrency": Wording(
        gained="the pool's tokens are counted as concurrency x max_model_len",
        lost="the pool's tokens are counted as blocks x block size",
    ),
}
SILENT = frozenset({"since", "pool_by_bytes", "null_block"})
"""Rules that move no memory of a server that runs."""


def changes(before: str, after: str) -> Iterator[Change]:
    """What is known to differ between two versions; nothing where one of them can't be read."""
    if number_of(before) is not None and number_of(after) is not None:
        yield from changes_between(rules_for(before)[0], rules_for(after)[0], WORDS)
