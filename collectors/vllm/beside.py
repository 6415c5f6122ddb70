"""What a vLLM has beside its pool on the device: KV in host memory, on disk or far away, and LoRA adapters.

None of it is part of a pool: host buffers are pinned memory of the host. Source: vllm-project/vllm ``v1/kv_offload``,
``v1/simple_kv_offload``, ``v1/metrics/loggers.py``; LMCache ``observability.py``.
"""

from collections.abc import Iterator, Mapping, Sequence

from collectors.exposition import Labels, Sample
from collectors.readings import AdaptersReading, OffloadReading, Tier
from collectors.vllm.names import LMCACHE, Field

GIB = 1 << 30
MOST = 1 << 50
MAX_NAMES = 16
_MAX_NAME = 128

Values = Mapping[Field, Mapping[str, float]]
Config = Mapping[str, Labels]  # labels of an info series by replica


def offload_of(replica: str, values: Values, cache: Labels, native: Labels, simple: Labels) -> Iterator[OffloadReading]:
    """What one replica keeps elsewhere.

    Args:
        cache: labels of its ``cache_config_info``. ``kv_offloading_size`` is in GiB, of all tensor ranks together.
        native: labels of its ``kv_offload_config_info``.
        simple: labels of its ``simple_kv_offload_info``.
    """

    def ratio(field: Field) -> float | None:
        value = values[field].get(replica)
        return value if value is not None and 0 <= value <= 1 else None

    size = _gib(cache.get("kv_offloading_size"))
    backend = cache.get("kv_offloading_backend", "native")
    used = ratio("offload_ratio")
    if used is not None or native or (size and backend == "native"):
        yield OffloadReading(
            replica=replica,
            by="kv_offload",
            tier="host",
            used_ratio=used,
            capacity_bytes=_count(native.get("cpu_kv_cache_size_bytes")) or size,
            capacity_tokens=_count(native.get("cpu_kv_cache_size_tokens")),
        )
    blocks, held = _count(simple.get("capacity_blocks")), values["simple_offload_blocks"].get(replica)
    if blocks or held is not None:
        yield OffloadReading(
            replica=replica,
            by="simple_kv_offload",
            tier="disk" if simple.get("backend") == "disk" else "host",
            used_ratio=min(held / blocks, 1.0) if blocks and held is not None else None,
            capacity_blocks=blocks,
            used_blocks=round(held) if held is not None else None,
        )
    if (hot := ratio("hisparse_ratio")) is not None:
        yield OffloadReading(replica=replica, by="hisparse", tier="host", used_ratio=hot)
    swap, swapped = _count(cache.get("num_cpu_blocks")), ratio("swap_ratio")
    if swapped is not None and swap:
        yield OffloadReading(replica=replica, by="swap space", tier="host", used_ratio=swapped, capacity_blocks=swap)


def lmcache_of(samples: Sequence[Sample]) -> tuple[OffloadReading, ...]:
    """What LMCache keeps for all workers together; a tier that is empty may not exist."""
    held: dict[Tier, float] = {}
    for sample in samples:
        tier = LMCACHE[sample.name]
        held[tier] = held.get(tier, 0.0) + max(0.0, sample.value)
    return tuple(
        OffloadReading(by="LMCache", tier=tier, used_bytes=round(count))
        for tier, count in held.items()
        if 0 < count < MOST
    )


def adapters_of(samples: Sequence[Sample]) -> tuple[AdaptersReading, ...]:
    """The adapters of requests, as the newest sample names them."""
    newest = max(samples, key=lambda sample: sample.value, default=None)
    if newest is None:
        return ()
    running, waiting = (_names(newest.labels.get(f"{state}_lora_adapters")) for state in ("running", "waiting"))
    return (AdaptersReading(slots=_count(newest.labels.get("max_lora")), running=running, waiting=waiting),)


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(sorted({name[:_MAX_NAME] for name in text.split(",") if name}))[:MAX_NAMES]


def _gib(text: str | None) -> int | None:
    try:
        size = float(text or "")
    except ValueError:
        return None
    return round(size * GIB) if 0 < size * GIB < MOST else None


def _count(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 18:
        return None
    return int(text) if 0 < int(text) < MOST else None
