"""What a KV pool of vLLM holds, from the usage ratio and the labels of ``cache_config_info``.

Since 0.10/0.11 usage = 1 - free / (blocks - 1): block 0 is a placeholder that is never handed out. Before, usage =
1 - free / blocks, and the placeholder counts as used; the V0 engine has none. Source: vllm-project/vllm,
``v1/core/block_pool.py`` and ``engine/llm_engine.py``.
"""

import math

from collectors.readings import PoolReading
from collectors.vllm.page import Page

MOST = 1 << 40  # blocks or tokens of a pool: at a KiB each they are a PiB
MOST_BLOCK_SIZE = 1 << 16

Arguments = dict[str, int | float | str | bool]


def pools_of(page: Page) -> tuple[PoolReading, ...]:
    """One pool per replica that reports a usage or a capacity."""
    pools = (_pool(page, replica) for replica in page.replicas if replica not in page.missing)
    return tuple(pool for pool in pools if pool.used_ratio is not None or pool.capacity_tokens is not None)


def arguments_of(page: Page) -> Arguments:
    """What ``cache_config_info`` says about the server's arguments; what it does not say is left out.

    ``num_gpu_blocks`` is what an operator asked for, not what the engine came to: that is in the pools. A page with one
    rank alone, and that not the first, is of a server that shares a group of ranks with others: how many is not said.
    """
    labels = _labels(page, page.replicas[0]) if page.replicas else {}
    found: dict[str, int | float | str | None] = {
        "block_size": _count(labels.get("block_size")),
        "kv_cache_dtype": _text(labels.get("cache_dtype")),
        "gpu_memory_utilization": _ratio(labels.get("gpu_memory_utilization")),
        "num_gpu_blocks": _count(labels.get("num_gpu_blocks_override")),
        "kv_cache_memory_bytes": _count(labels.get("kv_cache_memory_bytes")),
        "cpu_offload_gb": _amount(labels.get("cpu_offload_gb")),  # until 0.17
        "dp": _size(page),
    }
    return {name: value for name, value in found.items() if value is not None}


def notes_of(page: Page) -> tuple[str, ...]:
    """What of the pools is not known, and what would make it known."""
    notes = [*page.notes]
    if page.missing:
        names = ", ".join(page.missing[:4])
        notes.append(f"its page has nothing of replica {names} any more, although it goes on: has that one died?")
    if len(page.models) > 1:
        names = ", ".join(repr(model[:64]) for model in page.models[:4])
        notes.append(f"{len(page.models)} models on one page ({names}): each is shown as a replica of its own")
    if page.contested:
        notes.append(
            "two processes of the server report another usage of one KV pool: the higher is shown, one may have ended"
        )
    if page.disputed:
        what = ", ".join(sorted(page.disputed)[:4])[:200]
        notes.append(
            f"two cache_config_info of one engine differ in {what}: values of an earlier run, when "
            "PROMETHEUS_MULTIPROC_DIR was not emptied before the start"
        )
    return (*notes, *_capacity_notes(page))


def _capacity_notes(page: Page) -> tuple[str, ...]:
    labels = _labels(page, page.replicas[0])
    if not labels:
        return ("no cache_config_info on the metrics page, so the size of the KV pool is not known",)
    total = _blocks_of_all(labels)
    notes = []
    if total is None:
        got = labels.get("num_gpu_blocks", "nothing")[:20]
        notes.append(f"cache_config_info gives {got!r} for num_gpu_blocks, so the number of KV blocks is not known")
    elif total % _sharing(page, page.replicas[0]):
        notes.append(f"{total} KV blocks do not divide evenly over the replicas: each is given the same share")
    tokens = labels.get("kv_cache_size_tokens", "None")
    if total is not None and _count(tokens, MOST) is None:
        why = "vLLM before 0.24 does not export it in tokens"
        why = f"kv_cache_size_tokens is {tokens[:20]!r}" if tokens != "None" else why
        notes.append(f"the KV capacity is blocks x block_size, an estimate: {why}")
    return tuple(notes)


def used_blocks(used_ratio: float, blocks: int, *, v0: bool = False) -> int:
    """Blocks held by requests, whichever of the usage formulae the server has.

    Of the two of V1 the right one makes usage x divisor an integer; both do at 0 and 1, and agree there.
    """
    if v0:
        return min(max(round(used_ratio * blocks), 0), blocks)
    usable = blocks - 1
    candidates = ((used_ratio * usable, 0), (used_ratio * blocks, 1))
    exact, placeholder = min(candidates, key=lambda candidate: abs(candidate[0] - round(candidate[0])))
    return min(max(round(exact) - placeholder, 0), usable)


def _pool(page: Page, replica: str) -> PoolReading:
    labels = _labels(page, replica)
    ratio = page.values["used_ratio"].get(replica)
    used_ratio = ratio if ratio is not None and ratio <= 1 else None
    blocks, block_size = _blocks(page, replica), _count(labels.get("block_size"), MOST_BLOCK_SIZE)
    reported = _count(labels.get("kv_cache_size_tokens"), MOST)
    capacity = reported if reported is not None or not blocks or not block_size else blocks * block_size
    held = used_blocks(used_ratio, blocks, v0=page.v0) if used_ratio is not None and blocks else None
    used = _used_tokens(used_ratio, held, blocks, capacity)
    return PoolReading(
        replica=replica,
        used_ratio=used_ratio,
        capacity_tokens=capacity,
        used_tokens=used,
        available_tokens=capacity - used if capacity is not None and used is not None else None,
        blocks=blocks,
        used_blocks=held,
        block_size_tokens=block_size,
        capacity_is_estimate=reported is None and capacity is not None,
    )


def _used_tokens(used_ratio: float | None, held: int | None, blocks: int | None, capacity: int | None) -> int | None:
    """Used blocks in tokens: a block stands for capacity / blocks of them, which is the block size in a plain model
    and less where several groups of layers share the pool and each token takes a block of each."""
    if capacity is None or used_ratio is None:
        return None
    return held * capacity // blocks if held is not None and blocks else round(used_ratio * capacity)


def _labels(page: Page, replica: str) -> dict[str, str]:
    """A replica's own labels, or the only ones there are."""
    only = next(iter(page.cache_config.values())) if len(page.cache_config) == 1 else {}
    return page.cache_config.get(replica, only)


def _sharing(page: Page, replica: str) -> int:
    """How many replicas the reported sum of blocks is over."""
    family = replica.rpartition("/")[0]
    return sum(other.rpartition("/")[0] == family for other in page.replicas)


def _size(page: Page) -> int | None:
    """The data-parallel size, None where the page does not tell."""
    if not page.replicas or (len(page.replicas) == 1 and page.replicas[0] != "0"):
        return None
    return _sharing(page, page.replicas[0])


def _blocks(page: Page, replica: str) -> int | None:
    """Blocks of one replica: the label holds the sum over all, repeated under each."""
    total = _blocks_of_all(_labels(page, replica))
    return total // _sharing(page, replica) or None if total is not None else None


def _blocks_of_all(labels: dict[str, str]) -> int | None:
    return _count(labels.get("num_gpu_blocks"), MOST)


def _count(text: str | None, most: int = 10**18) -> int | None:
    """A positive integer; ``None``, empty, 0 and anything else is not known."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 18:
        return None
    return int(text) if 0 < int(text) <= most else None


def _ratio(text: str | None) -> float | None:
    value = _amount(text)
    return value if value is not None and value <= 1 else None


def _amount(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _text(text: str | None) -> str | None:
    return text[:64] if text and text != "None" else None
