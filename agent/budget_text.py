"""A budget as text for a person: tables of memory and KV for each pipeline stage, notes, the verdict."""

from collections.abc import Iterator
from textwrap import wrap

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agent.budget_verdict import (
    alike,
    engine_text,
    headroom_ratio,
    headroom_text,
    kinds_text,
    tightest,
    verdict,
)
from agent.memory.budget import Budget, Device, LayerGroup, RankBudget
from agent.memory.units import GIB, Range, size_text
from agent.printable import printable


def print_budget(budget: Budget, *, explain: bool) -> None:
    """Print all of it; ``explain``: every value used, and each term with its formula and source."""
    console = Console(highlight=False)
    with console.capture() as captured:
        _print(console, budget, explain=explain)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def _print(console: Console, budget: Budget, *, explain: bool) -> None:
    console.print(escape(_headline(budget)))
    for layers in budget.model.layers:
        console.print(escape(_layers(layers)))
    stages = [rank for rank in budget.ranks if rank.tp_rank == 0]
    for same in alike(stages):
        _print_stage(console, same, budget, stages=len(stages))
    if any(rank.runtime and rank.runtime.outside for rank in stages):
        console.print("* outside the engine's share of the device")
    for text in (*kinds_text(budget), tightest(stages)):
        if text:
            _say(console, text)
    if explain:
        _print_explanation(console, budget)
    console.print()
    for text in budget.unknown:
        _say(console, text, first="unknown: ")
    for text in budget.warnings:
        if text not in budget.refused:
            _say(console, text, first="note: ")
    _say(console, verdict(budget), first="")


def _print_stage(console: Console, same: list[RankBudget], budget: Budget, *, stages: int) -> None:
    """What neighbouring stages need that are alike."""
    rank = same[0]
    console.print()
    console.print(_memory(same, budget, stages=stages))
    if text := headroom_text(rank, budget):
        _say(console, text)
    if rank.kv.groups:
        console.print()
        console.print(_kv(rank))
        console.print()
        console.print(_groups(rank))


def _say(console: Console, text: str, *, first: str = "", rest: str | None = None) -> None:
    """Text that is wrapped under its own beginning."""
    rest = " " * len(first) if rest is None else rest
    lines = wrap(text, console.width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    console.print("\n".join(lines), markup=False, no_wrap=True, overflow="ignore", crop=False)


def device_text(device: Device) -> str:
    """A device by name, with what NVML and CUDA say it has."""
    sizes = [
        f"{name} {size_text(size)}"
        for name, size in (("NVML", device.total_bytes), ("CUDA", device.cuda_bytes))
        if size is not None
    ]
    name = device.name or "a device"
    return f"{name} ({', '.join(sizes)})" if sizes else name


def model_text(budget: Budget) -> str:
    """The model in one line."""
    model = budget.model
    parameters = f"  {model.parameters:,} parameters" if model.parameters else ""
    return printable(f"{model.name}  {model.architecture or model.model_type or 'unknown'}{parameters}")


def _headline(budget: Budget) -> str:
    known = budget.device != Device()
    device = f"on {device_text(budget.device)}" if known else "- give --gpu NAME or --gpu BYTES to size the pool"
    return f"{model_text(budget)}\n{engine_text(budget)} {device}"


def _layers(group: LayerGroup) -> str:
    if group.kind.startswith("unknown"):
        return f"{group.count} layers of unknown kind"
    if group.kv_heads is None:
        return f"{group.count} layers {group.kind}"
    widths = f"K {group.k_dim}, V {group.v_dim}" if group.v_dim else f"one latent vector of {group.k_dim}"
    heads = f"{group.kv_heads} KV heads, " if group.v_dim else ""
    return f"{group.count} layers {group.kind}: {heads}{widths}{_reach(group)}"


def _reach(group: LayerGroup) -> str:
    of = {"window": "the last", "chunk": "a chunk of", "encoder": "the encoder's"}.get(group.reach or "")
    return f", {of} {group.tokens:,} tokens" if of and group.tokens else ""


def _memory(same: list[RankBudget], budget: Budget, *, stages: int) -> Table:
    rank, numbers = same[0], [other.pp_rank for other in same]
    ranks = sum(other.pp_rank in numbers for other in budget.ranks)
    stage = f", stage {numbers[0]}" if len(same) == 1 else f", stages {numbers[0]}-{numbers[-1]}"
    stage = stage if stages > 1 else ""
    table = _table(f"memory of a rank{stage} ({ranks} alike)" if ranks > 1 else f"memory of the rank{stage}")
    table.add_column("component")
    for name in ("likely", "low", "high"):
        table.add_column(name, justify="right")
    table.add_column("known by")
    table.add_row("weights", _size(rank.weights_bytes), "", "", rank.weights_evidence or "")
    if rank.lora_bytes:
        table.add_row("LoRA slots", _size(rank.lora_bytes), "", "", "computed")
    table.add_row("KV pool", _size(rank.kv.pool_bytes))
    if rank.kv.state_bytes:
        table.add_row("states", _size(rank.kv.state_bytes))
    for name, part in _runtime(rank):
        table.add_row(name, _size(part.likely), _size(part.low), _size(part.high), "range")
    table.add_row("total", _size(rank.total_bytes))
    table.add_row("headroom", _size(rank.headroom_bytes), "", "", _ratio(rank, budget))
    return table


def _runtime(rank: RankBudget) -> Iterator[tuple[str, Range]]:
    if rank.runtime is not None:
        for name in ("activations", "cuda_graphs", "non_torch", "context"):
            outside = " *" if name in rank.runtime.outside else ""
            yield name + outside, getattr(rank.runtime, name)


def _ratio(rank: RankBudget, budget: Budget) -> str:
    ratio = headroom_ratio(rank, budget)
    return "" if ratio is None else f"{ratio:.1%} of device"


def _kv(rank: RankBudget) -> Table:
    kv = rank.kv
    table = _table("KV cache of the rank")
    table.show_header = False
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify)
    padded = kv.bytes_per_token != kv.bytes_per_token_logical and kv.bytes_per_token_logical is not None
    table.add_row(
        "bytes per token",
        _count(kv.bytes_per_token),
        f"{_count(kv.bytes_per_token_logical)} without padding" if padded else "",
    )
    if kv.fixed_bytes_per_request:
        table.add_row("fixed bytes per request", _count(kv.fixed_bytes_per_request), "windows, states, reserve")
    table.add_row("bytes per block", _count(kv.bytes_per_block), "")
    table.add_row("blocks", _count(kv.blocks), "")
    table.add_row("tokens, as the log counts them", _count(kv.pool_tokens), "")
    per_request = [group.blocks_per_request for group in kv.groups]
    blocks = None if None in per_request else sum(count or 0 for count in per_request)
    table.add_row("one request of full length", _size(kv.request_bytes), f"{_count(blocks)} blocks")
    table.add_row("requests of full length", "?" if kv.max_concurrency is None else f"{kv.max_concurrency:.3f}", "")
    return table


def _groups(rank: RankBudget) -> Table:
    """What shares a block table, a row each."""
    table = _table("groups of layers that share a block table")
    table.add_column("kind")
    for name in ("caches", "tokens a block", "bytes a page", "blocks a request"):
        table.add_column(name, justify="right")
    for group in rank.kv.groups:
        table.add_row(
            group.kind,
            _count(group.layers),
            _count(group.block_size),
            _count(group.page_bytes),
            _count(group.blocks_per_request),
        )
    return table


def _print_explanation(console: Console, budget: Budget) -> None:
    console.print("\n[bold]values used[/]")
    for name, resolved in budget.arguments.items():
        _say(console, f"{name} = {resolved.value} ({resolved.source})", first="  ", rest="    ")
    console.print("\n[bold]terms of rank (0, 0)[/]")
    for term in budget.terms:
        value = f"{term.value:,}" if isinstance(term.value, int | float) else term.value
        _say(console, f"{term.name} = {value}", first="  ", rest="    ")
        _say(console, f"= {term.formula}", first="    ", rest="      ")
        _say(console, term.source, first="    ")


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)


def _size(count: int | None) -> str:
    return "?" if count is None else f"{count / GIB:,.2f} GiB"


def _count(count: float | None) -> str:
    return "?" if count is None else f"{count:,}"
