"""What an SGLang has beside its pools on the device: KV in host memory (HiCache), LoRA slots, a model that speculates.

Series of the host tier and of LoRA are there only where those are switched on. Source: SGLang
``srt/managers/scheduler_components/metrics_reporter.py``, ``srt/server_args.py``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from collectors.readings import AdaptersReading, OffloadReading, PoolKind
from collectors.sglang.names import Field
from collectors.sglang.page import Page

_WITHOUT_LAYERS = ("NGRAM",)
_TIERS: tuple[tuple[PoolKind, Field, Field], ...] = (
    ("full", "host_used", "host_capacity"),
    ("state", "host_states_used", "host_states"),
)


def offload_of(page: Page) -> tuple[OffloadReading, ...]:
    """The host tier of each replica, in tokens, and of a hybrid model in states."""
    return tuple(one for replica in page.replicas for one in _tiers(page, replica))


def adapters_of(page: Page) -> tuple[AdaptersReading, ...]:
    """Slots for adapters; those are in use whose requests run."""
    return tuple(
        AdaptersReading(replica=replica, slots=slots, used_slots=page.count(replica, "adapters_used"))
        for replica in page.replicas
        if (slots := page.count(replica, "adapters"))
    )


def speculative(info: Mapping[str, Any]) -> str | None:
    """Speculation as the agent's argument: by the model's own layers where the draft is the model itself."""
    algorithm = info.get("speculative_algorithm")
    if not isinstance(algorithm, str) or not algorithm:
        return None
    draft = info.get("speculative_draft_model_path")
    tokens = info.get("speculative_num_draft_tokens")
    count = tokens if isinstance(tokens, int) and 0 < tokens <= 64 else 1
    if algorithm.upper() in _WITHOUT_LAYERS:
        return f"ngram:{count}"
    return f"mtp:{count}" if draft is None or draft == info.get("model_path") else f"draft:{count}"


def _tiers(page: Page, replica: str) -> Iterator[OffloadReading]:
    for kind, held, size in _TIERS:
        used, capacity = page.count(replica, held), page.count(replica, size)
        if used is not None and capacity:
            yield OffloadReading(
                replica=replica,
                by="HiCache",
                tier="host",
                kind=kind,
                used_ratio=min(used / capacity, 1.0),
                capacity_tokens=capacity,
                used_tokens=used,
            )
