"""The operator's ladder in words: each rung one question about a target, in a fixed order, and its answer in figures.

limit, where the model has no requests that long; need, fit, architecture; and where the target does not fit: kv_format,
step, gpus, concurrency, context, evict. Beyond the limit only a shorter context is looked for. Sources of the
eviction schemes: StreamingLLM (arXiv 2309.17453), H2O (arXiv 2306.14048, a fifth of the tokens kept).
"""

from collections.abc import Iterator

from msgspec import Struct

from agent.memory.decision import GPU_COUNTS, Decision, SmallerStep
from agent.memory.fitting import HEADROOM, Fit
from agent.memory.layers import Heads
from agent.memory.model_config import ModelShape
from agent.memory.serving import CONTEXT_SHIFT, NODE_GPUS
from agent.memory.units import size_text

SINKS = 4
WINDOW = 2044
HEAVY_HITTERS = 0.2
_NOT_KNOWN = "not known"
_NO_FLAG = "no flag in this engine"
_FORGOTTEN = "what was evicted can't be recalled: not for retrieval from long contexts"


class Rung(Struct, frozen=True, kw_only=True):
    """One question and its answer. ``fits`` is None where the question is not one of fitting, or the answer not known.

    ``bytes``: KV of the target in this way: one copy over all ranks for need, kv_format and evict, of one request for
    architecture, of the fullest rank else. ``saves_bytes``: against the copy that is needed, or the plain architecture.
    """

    rung: str
    finding: str
    fits: bool | None = None
    bytes: int | None = None
    saves_bytes: int | None = None
    warning: str | None = None


def ladder(decision: Decision) -> Iterator[Rung]:
    """The rungs in order; where the target fits as it is, those that would make it fit are left out."""
    if decision.beyond:
        yield _limit(decision)
    yield _need(decision)
    yield Rung(rung="fit", finding=_verdict(decision.asked), fits=decision.fits, bytes=decision.asked.kv_bytes)
    yield _architecture(decision)
    if decision.beyond:
        yield _less(decision, "context", decision.context)
        return
    if decision.fits is not False:
        return
    yield from _formats(decision)
    if decision.step is not None:
        yield _step(decision, decision.step)
    yield from _gpus(decision)
    yield _less(decision, "concurrency", decision.concurrency)
    yield _less(decision, "context", decision.context)
    yield from _eviction(decision)


def parallelism(fit: Fit) -> str:
    """How the model is spread, such as TP 8 x PP 2."""
    values = fit.arguments
    sizes = {"TP": values.tp, "PP": values.pp, "DP": values.dp, "DCP": values.dcp}
    return " x ".join(f"{name} {size}" for name, size in sizes.items() if size and size > 1) or "one rank"


def kv_dtype(fit: Fit) -> str:
    """The KV format by name; K's and V's where they differ."""
    values = fit.budget.arguments
    names = [str(values[name].value) for name in ("kv_cache_dtype_k", "kv_cache_dtype_v") if name in values]
    if names:
        return "/".join(dict.fromkeys(names))
    return str(values["kv_cache_dtype"].value) if "kv_cache_dtype" in values else "auto"


def percent(ratio: float | None) -> str:
    return "?" if ratio is None else f"{100 * ratio:.1f} %"


def _limit(decision: Decision) -> Rung:
    """What each engine does beyond the model's positions. Source: vLLM config/model.py, SGLang
    configs/model_config.py, llama.cpp tools/server/server-context.cpp."""
    does = {
        "vllm": "vLLM refuses more, but for VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
        "sglang": "SGLang refuses more, but for SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
        "llama_cpp": "llama-server cuts slots to it",
    }
    told = f"; {does[decision.engine]}" if decision.engine in does else ""
    asked = decision.target.context
    finding = f"{decision.limit:,} tokens are the model's most, {asked:,} are asked for{told}"
    return Rung(rung="limit", finding=f"{finding}: longer needs a config with RoPE scaling", fits=False)


def _need(decision: Decision) -> Rung:
    kv, target = decision.whole.budget.ranks[0].kv, decision.target
    if decision.need_bytes is None or kv.bytes_per_token is None:
        return Rung(rung="need", finding=_NOT_KNOWN)
    fixed = f" and {size_text(kv.fixed_bytes_per_request)} a request" if kv.fixed_bytes_per_request else ""
    return Rung(
        rung="need",
        finding=f"{size_text(decision.need_bytes)}{_over(decision)} for {target.concurrency:,} x {target.context:,} "
        f"tokens: {kv.bytes_per_token:,} B a token{fixed} in {kv_dtype(decision.whole)}{_reserve(decision)}",
        bytes=decision.need_bytes,
    )


def _over(decision: Decision) -> str:
    """That bytes are those of all GPUs together, or where these can't share them, of one copy."""
    gpus = decision.target.gpus
    if gpus == 1:
        return ""
    shared = decision.engine == "llama_cpp" or gpus <= decision.kv_heads
    return f" over {gpus} GPUs" if shared else f" in one copy on {gpus} GPUs"


def _reserve(decision: Decision) -> str:
    """What of a request's KV is for the engine's step."""
    step = decision.whole.budget.arguments.get("max_num_batched_tokens")
    if not decision.in_flight_bytes or step is None:
        return ""
    reserve = size_text(decision.in_flight_bytes)
    return f", {reserve} of a request being the engine's in-flight reserve for steps of {step.value:,} tokens"


def _verdict(fit: Fit) -> str:
    if fit.fits is None:
        return _NOT_KNOWN if fit.budget.unknown else f"{_NOT_KNOWN}: the device has no known size"
    if fit.budget.refused:
        return f"{_where(fit)}: {_room(fit)}"
    weights = f"weights {size_text(fit.weights_bytes or 0)} a GPU"
    if not fit.fits and not fit.pool_bytes:
        return f"{_where(fit)}: {weights} leave no room for KV"
    return f"{_where(fit)}: {_room(fit)}; {weights}"


def _architecture(decision: Decision) -> Rung:
    kept, plain = decision.request_bytes, _plain_bytes(decision.shape, decision.target.context)
    kinds = ", ".join(f"{count} x {name}" for name, count in _kinds(decision.shape).items())
    if kept is None or plain is None:
        return Rung(rung="architecture", finding=f"{kinds}: what it saves is not known" if kinds else _NOT_KNOWN)
    finding = f"{kinds}: {size_text(kept)} a request{_over(decision)}"
    if plain <= kept:
        return Rung(rung="architecture", finding=finding, bytes=kept)
    return Rung(
        rung="architecture",
        finding=f"{finding}; multi-head attention would keep {size_text(plain)}, {plain / kept:.1f} times as much",
        bytes=kept,
        saves_bytes=plain - kept,
    )


def _kinds(shape: ModelShape) -> dict[str, int]:
    """Layers that keep something, or share what another keeps, by kind and reach."""
    kinds: dict[str, int] = {}
    for layer in shape.layers:
        if layer.caches or layer.kind == "shared":
            local = next((one for one in layer.caches if isinstance(one, Heads) and one.tokens), None)
            name = f"{layer.kind} ({local.reach} {local.tokens:,})" if local else layer.kind
            kinds[name] = kinds.get(name, 0) + 1
    return kinds


def _formats(decision: Decision) -> Iterator[Rung]:
    if not decision.formats:
        yield Rung(rung="kv_format", finding="no smaller KV format to try in this engine")
    for one in decision.formats:
        saved = (decision.need_bytes or 0) - one.bytes
        yield Rung(
            rung="kv_format",
            finding=f"{one.kind.name}: {size_text(one.bytes)}, {size_text(saved)} less; {_room(one.fit)}",
            fits=one.fit.fits,
            bytes=one.bytes,
            saves_bytes=saved,
            warning=one.kind.warning,
        )


def _step(decision: Decision, step: SmallerStep) -> Rung:
    saved = (decision.need_bytes or 0) - step.bytes
    kind = f" with {step.kind.name} KV" if step.kind else ""
    return Rung(
        rung="step",
        finding=f"{step.tokens:,} tokens instead of {step.default:,}{kind}: {size_text(step.bytes)}, "
        f"{size_text(saved)} less; {_room(step.fit)}",
        fits=True,
        bytes=step.bytes,
        saves_bytes=saved,
        warning=step.kind.warning if step.kind else None,
    )


def _gpus(decision: Decision) -> Iterator[Rung]:
    fit, limits = decision.more, _limits(decision)
    if fit is None:
        why = _room(decision.asked) if decision.asked.budget.refused else limits
        yield Rung(rung="gpus", finding=f"not even {GPU_COUNTS[-1]} GPUs hold it; {why}", fits=False)
    else:
        yield Rung(rung="gpus", finding=f"{_where(fit)}: {_room(fit)}; {limits}", fits=True, bytes=fit.kv_bytes)
    both = decision.combined
    if both is not None:
        yield Rung(
            rung="gpus",
            finding=f"{_where(both.fit)} with {both.kind.name} KV: {_room(both.fit)}",
            fits=True,
            bytes=both.fit.kv_bytes,
            warning=both.kind.warning,
        )


def _limits(decision: Decision) -> str:
    """What bounds tensor parallelism for this model."""
    if decision.engine == "llama_cpp":
        return "layers are split over GPUs"
    decoder, kv_heads = decision.shape.decoder, decision.kv_heads
    heads = f"TP divides {decoder.heads} heads" if decoder else "TP divides heads"
    if kv_heads == 1:
        return f"{heads}, but each rank keeps all of the KV: data-parallel attention divides that"
    return f"{heads}, KV over {kv_heads} ranks at most; PP divides layers"


def _less(decision: Decision, rung: str, fit: Fit | None) -> Rung:
    if fit is None:
        if decision.asked.budget.refused:
            return Rung(rung=rung, finding=_room(decision.asked), fits=False)
        least = "request of this length" if rung == "concurrency" else "short request each"
        return Rung(rung=rung, finding=f"not even one {least} fits", fits=False)
    found = f"{fit.concurrency:,} x {fit.context:,} tokens on {_where(fit)}, headroom {percent(fit.headroom_ratio)}"
    return Rung(rung=rung, finding=found, fits=True, bytes=fit.kv_bytes)


def _eviction(decision: Decision) -> Iterator[Rung]:
    """What schemes that forget tokens would hold; windows and states are kept whatever happens."""
    kv, target, need = decision.whole.budget.ranks[0].kv, decision.target, decision.need_bytes
    if need is None or kv.bytes_per_token is None:
        return
    heavy = int(target.context * HEAVY_HITTERS)
    for name, tokens, flag in (
        (f"StreamingLLM, {SINKS} sinks + window {WINDOW:,}", SINKS + WINDOW, CONTEXT_SHIFT.get(decision.engine)),
        (f"H2O, {HEAVY_HITTERS:.0%} heavy hitters and recent", heavy, None),
    ):
        held = need - target.concurrency * int(kv.bytes_per_token * max(0, target.context - tokens))
        yield Rung(
            rung="evict",
            finding=f"{name}: {size_text(held)}; {flag or _NO_FLAG}",
            bytes=held,
            saves_bytes=need - held,
            warning=_FORGOTTEN,
        )


def _where(fit: Fit) -> str:
    count = fit.layout.gpus
    nodes = f", nodes of {NODE_GPUS}" if count > NODE_GPUS else ""
    return f"{count} GPUs ({parallelism(fit)}{nodes})" if count > 1 else "1 GPU"


def _room(fit: Fit) -> str:
    """The two figures that decide; or why the engine does not start."""
    if fit.budget.refused:
        return "; ".join(fit.budget.refused)
    if fit.requests is None or fit.headroom_ratio is None:
        return "its room is not known"
    of = f" of {fit.concurrency:,}" if fit.requests < fit.concurrency else ""
    headroom = f"headroom {percent(fit.headroom_ratio)}"
    if fit.headroom_ratio < HEADROOM:
        return f"{headroom} with room for {fit.requests:,}{of}, {percent(HEADROOM)} is the least"
    return f"room for {fit.requests:,}{of}, {headroom}"


def _plain_bytes(shape: ModelShape, context: int) -> int | None:
    """KV of one request if each of these layers were multi-head attention with the model's heads, in 16 bit."""
    decoder = shape.decoder
    if decoder is None:
        return None
    v_dim = decoder.mla.v if decoder.mla else decoder.head_dim
    return sum(_kinds(shape).values()) * decoder.heads * (decoder.head_dim + v_dim) * 2 * context
