"""The account of a vLLM rank's KV and pool: each term with its formula, numbers filled in."""

from collections.abc import Iterator, Sequence

from agent.memory.kv_account import entry_formula, entry_name
from agent.memory.kv_cache import KvBudget, entry_bytes
from agent.memory.layers import Heads, State
from agent.memory.planners.planner import Stage
from agent.memory.planners.vllm.groups import Group
from agent.memory.planners.vllm.pool import block_bytes, block_tokens, requested_bytes
from agent.memory.planners.vllm.settings import Settings
from agent.memory.planners.vllm.specs import Load, Spec, window_tokens
from agent.memory.units import Term

_PLANNER = "vLLM 0.33 v1/core/kv_cache_planning.py"
_INTERFACE = "vLLM 0.33 v1/kv_cache_interface.py"
_STATES = "vLLM 0.33 model_executor/layers/mamba/mamba_utils.py"
_HYBRID = "vLLM 0.33 platforms/interface.py, _align_hybrid_block_size"
_WORKER = "vLLM 0.33 v1/worker/gpu_worker.py"


def explain(stage: Stage, settings: Settings, kv: KvBudget, *, cuda_bytes: int | None) -> Iterator[Term]:
    """Slope, bytes available, blocks and concurrency of the first stage."""
    groups = settings.groups
    if groups:
        yield from _entries(groups, settings)
        yield from _pages(groups)
        yield _block(groups)
        yield _slope(groups, kv, settings)
        yield _logical_slope(groups, kv, settings)
    if cuda_bytes is not None and not settings.pool_given:
        yield from _available(settings, stage, cuda_bytes)
    if groups:
        yield from _requests(groups, kv, settings)
        yield from _pool(kv)


def _entries(groups: Sequence[Group], settings: Settings) -> Iterator[Term]:
    """One term for each kind of cache."""
    for cache in dict.fromkeys(spec.cache for group in groups for spec in group.on(0)):
        yield Term(
            name=f"{entry_name(cache)}_bytes",
            value=entry_bytes(cache, settings.layouts, tp=settings.tp),
            formula=entry_formula(cache, settings.layouts, tp=settings.tp),
            source=_STATES if isinstance(cache, State) else _INTERFACE,
        )


def _pages(groups: Sequence[Group]) -> Iterator[Term]:
    """One term for each size of page there is."""
    specs = dict.fromkeys(spec for group in groups for spec in group.on(0))
    for spec in specs:
        state = isinstance(spec.cache, State)
        yield Term(
            name=f"{entry_name(spec.cache)}_page",
            value=spec.page_bytes,
            formula=_page_formula(spec),
            source=_HYBRID if state else _PLANNER,
        )


def _page_formula(spec: Spec) -> str:
    filled = f"{spec.entry_bytes:,}"
    if not isinstance(spec.cache, State):
        entries = f"{spec.block_size:,} tokens" + (f" / {spec.ratio}" if spec.ratio > 1 else "")
        filled = f"{entries} × {filled}"
    padding = spec.page_bytes - spec.filled_bytes
    return f"{filled} + {padding:,} padding" if padding else filled


def _block(groups: Sequence[Group]) -> Term:
    """The largest group's pages."""
    size = block_bytes(groups, 0)
    largest = next(group for group in groups if group.block_bytes(0) == size)
    pages: dict[int, int] = {}
    for spec in largest.on(0):
        pages[spec.page_bytes] = pages.get(spec.page_bytes, 0) + 1
    several = f"; the largest of {len(groups)} groups, which share one pool" if len(groups) > 1 else ""
    return Term(
        name="bytes_per_block",
        value=size,
        formula=" + ".join(f"{count} layers × {page:,}" for page, count in pages.items()) or "0",
        source=_PLANNER + several,
    )


def _slope(groups: Sequence[Group], kv: KvBudget, settings: Settings) -> Term:
    tokens = [block_tokens(group, settings) for group in groups if group.spec.grows]
    growing = [f"{kv.bytes_per_block:,} / {count:,} tokens" for count in tokens]
    return Term(
        name="bytes_per_token",
        value=kv.bytes_per_token or 0,
        formula=" + ".join(growing) or "0",
        source="blocks of groups that keep all tokens: " + _PLANNER,
    )


def _logical_slope(groups: Sequence[Group], kv: KvBudget, settings: Settings) -> Term:
    layers: dict[tuple[int, int], int] = {}
    for spec in (spec for group in groups for spec in group.on(0) if spec.grows):
        layers[spec.entry_bytes, spec.ratio] = layers.get((spec.entry_bytes, spec.ratio), 0) + 1
    parts = [
        f"{count} layers × {size:,}" + (f" / {ratio}" if ratio > 1 else "") for (size, ratio), count in layers.items()
    ]
    whole = " + ".join(parts) or "0"
    return Term(
        name="bytes_per_token_logical",
        value=kv.bytes_per_token_logical or 0,
        formula=f"({whole}) / {settings.load.dcp} ranks" if settings.load.dcp > 1 else whole,
        source="without padding: " + _INTERFACE,
    )


def _available(settings: Settings, stage: Stage, cuda_bytes: int) -> Iterator[Term]:
    requested = requested_bytes(cuda_bytes, settings)
    yield Term(
        name="requested",
        value=requested,
        formula=f"ceil({cuda_bytes:,} × {settings.gpu_memory_utilization})",
        source=_WORKER,
    )
    if stage.weights_bytes is None or stage.lora_bytes is None or stage.runtime is None:
        return
    parts = [stage.weights_bytes, *filter(None, [stage.lora_bytes]), *(part.likely for part in stage.runtime.inside)]
    yield Term(
        name="available",
        value=requested - sum(parts),
        formula=" - ".join(f"{size:,}" for size in (requested, *parts)),
        source=_WORKER,
    )


def _requests(groups: Sequence[Group], kv: KvBudget, settings: Settings) -> Iterator[Term]:
    """Blocks of one request: of each group, then of all."""
    counts = []
    for number, group in enumerate(groups, 1):
        counts.append(group.blocks_per_request(settings.load))
        yield Term(
            name=f"blocks_of_group_{number}",
            value=counts[-1],
            formula=_blocks_formula(group.longest(settings.load), settings.load),
            source=f"{len(group.on(0))} × {group.spec.kind}: {_INTERFACE}",
        )
    if kv.request_bytes is None or kv.fixed_bytes_per_request is None:
        return
    yield Term(
        name="blocks_per_request",
        value=sum(counts),
        formula=" + ".join(f"{count:,}" for count in counts),
        source=_PLANNER,
    )
    yield Term(
        name="request_bytes",
        value=kv.request_bytes,
        formula=f"{sum(counts):,} blocks × {kv.bytes_per_block:,}",
        source=_PLANNER,
    )
    fixed = [count for count, group in zip(counts, groups, strict=True) if not group.spec.grows]
    yield Term(
        name="fixed_bytes_per_request",
        value=kv.fixed_bytes_per_request,
        formula=f"{sum(fixed):,} blocks × {kv.bytes_per_block:,}",
        source="blocks of windows, chunks, encoder outputs and states: " + _PLANNER,
    )


def _blocks_formula(spec: Spec, load: Load) -> str:
    window = window_tokens(spec.cache)
    match spec.cache:
        case State() as state:
            parts = [load.speculated, *((2, state.kind == "mamba2") if load.aligned else (1,))]
            return " + ".join(str(int(part)) for part in parts if part)
        case Heads(reach="encoder"):
            return f"ceil({spec.cache.tokens:,} / {spec.block_size:,})"
        case Heads(reach="chunk", tokens=int(kept)):
            return (
                f"ceil({_least(f'({kept:,} + {load.in_flight:,})', kept + load.in_flight, load)} / {spec.block_size:,})"
            )
    if spec.kind == "ring":
        return "1"
    if window is not None:
        held = _least(f"({window:,} - 1 + {load.in_flight:,})", window - 1 + load.in_flight, load)
        return f"ceil({held} / {spec.block_size:,}) + 1"
    shards = f"ceil({load.max_model_len:,} / {load.dcp} ranks)" if spec.sharded and load.dcp > 1 else ""
    return f"ceil({shards or f'{load.max_model_len:,}'} / {spec.block_size:,})"


def _least(formula: str, value: int, load: Load) -> str:
    """Tokens in flight and kept, or all of a request where those are fewer."""
    return formula if value < load.max_model_len else f"{load.max_model_len:,}"


def _pool(kv: KvBudget) -> Iterator[Term]:
    if kv.blocks is None or kv.pool_bytes is None or kv.max_concurrency is None or not kv.request_bytes:
        return
    yield Term(
        name="pool_bytes",
        value=kv.pool_bytes,
        formula=f"{kv.blocks:,} blocks × {kv.bytes_per_block:,}",
        source=f"{_PLANNER}; the rank with the fewest blocks decides",
    )
    yield Term(
        name="max_concurrency",
        value=kv.max_concurrency,
        formula=f"{kv.blocks:,} blocks / {kv.request_bytes // (kv.bytes_per_block or 1):,}",
        source=_PLANNER,
    )
