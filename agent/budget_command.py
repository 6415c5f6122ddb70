"""``vramscope budget``: what a model will need on a device, before it is loaded."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import json
from msgspec.structs import replace
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agent.errors import InputError
from agent.memory.arguments import DTYPES, KV_CACHE_DTYPES, Arguments, from_flags
from agent.memory.budget import Budget, Device, LayerGroup, RankBudget, compute
from agent.memory.gpus import find_gpu
from agent.memory.model_config import ModelConfigError
from agent.memory.units import GIB, Range, size_text
from collectors.errors import CollectorError
from collectors.model_files import read_model
from collectors.readings import ModelFiles

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    ("--engine", "NAME", "Engine that serves the model: vllm."),
    ("--engine-version", "V", "Its version; rules and defaults follow it."),
    ("--tp", "N", "Tensor-parallel size."),
    ("--pp", "N", "Pipeline-parallel size."),
    ("--dp", "N", "Data-parallel size; each replica has a pool of its own."),
    ("--pp-layers", "A,B,...", "Layers of each pipeline stage."),
    ("--dtype", "NAME", f"Of weights that are not quantised: {', '.join(DTYPES[:4])}."),
    ("--quantization", "METHOD", "Quantise an unquantised checkpoint while loading, such as fp8."),
    ("--weights-bytes", "N", "Bytes of the checkpoint, when only a config is there."),
    ("--kv-cache-dtype", "NAME", f"One of {', '.join(KV_CACHE_DTYPES[:11])}."),
    ("--block-size", "N", "Tokens of a KV block."),
    ("--max-model-len", "N", "Longest request, prompt and output; 32k and 32K are understood."),
    ("--gpu-memory-utilization", "X", "Share of the device that the engine takes, 0-1."),
    ("--max-num-batched-tokens", "N", "Tokens of one step."),
    ("--max-num-seqs", "N", "Sequences of one step."),
    ("--num-gpu-blocks", "N", "KV blocks, whatever the memory."),
    ("--kv-cache-memory-bytes", "N", "Bytes of the KV pool; the share of the device is then ignored."),
    ("--kv-pool-bytes", "N", "Bytes available for KV on a rank; skips the memory arithmetic."),
)


def _engine_options(command: F) -> F:
    for name, metavar, text in reversed(_OPTIONS):
        command = click.option(name, metavar=metavar, help=text)(command)
    return command


@click.command("budget")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--gpu", metavar="NAME|BYTES", help="GPU by name, or its NVML total in bytes.")
@click.option("--cuda-bytes", type=click.IntRange(min=1), metavar="N", help="CUDA total: what the engine sees.")
@_engine_options
@click.option("--enforce-eager", is_flag=True, help="No CUDA graphs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else.")
@click.option("--explain", is_flag=True, help="Show every value used, and each term with formula and source.")
def budget_command(
    model: Path,
    gpu: str | None,
    cuda_bytes: int | None,
    engine: str | None,
    enforce_eager: bool,
    as_json: bool,
    explain: bool,
    **flags: str | None,
) -> None:
    """Predict the memory of each rank: weights, KV pool, runtime.

    MODEL is a model's directory, its config.json, its model.safetensors.index.json or a GGUF file.

    Example: vramscope budget /models/llama-3.1-8b --gpu h100 --max-model-len 32768
    """
    given: dict[str, object] = {
        f"--{name.replace('_', '-')}": value for name, value in flags.items() if value is not None
    }
    arguments = _arguments(given | ({"--enforce-eager": True} if enforce_eager else {}), engine or "vllm")
    device = _device(gpu, cuda_bytes)
    files = _read(model)
    budget = _compute(model, files, arguments, device)
    if as_json:
        click.echo(json.encode(budget if explain else replace(budget, terms=())))
    else:
        _print(budget, explain=explain)


def _arguments(flags: dict[str, object], engine: str) -> Arguments:
    try:
        return from_flags(flags, engine=engine)
    except ValueError as error:
        raise InputError(str(error)) from error


def _device(gpu: str | None, cuda_bytes: int | None) -> Device:
    try:
        device = find_gpu(gpu) if gpu is not None else Device()
    except ValueError as error:
        raise InputError(f"--gpu: {error}") from error
    if cuda_bytes is None:
        return device
    if device.total_bytes is not None and cuda_bytes > device.total_bytes:
        raise InputError(f"--cuda-bytes: expected at most the device's {device.total_bytes} bytes, got {cuda_bytes}")
    return replace(device, cuda_bytes=cuda_bytes)


def _read(model: Path) -> ModelFiles:
    try:
        return read_model(model)
    except CollectorError as error:
        raise InputError(str(error)) from error


def _compute(model: Path, files: ModelFiles, arguments: Arguments, device: Device) -> Budget:
    try:
        return compute(files, arguments, device)
    except ModelConfigError as error:
        raise InputError(f"{files.config_path or model}: {error}") from error
    except ValueError as error:
        raise InputError(str(error)) from error


def _print(budget: Budget, *, explain: bool) -> None:
    console = Console(highlight=False)
    console.print(escape(_headline(budget)))
    for layers in budget.model.layers:
        console.print(escape(_layers(layers)))
    stages = [rank for rank in budget.ranks if rank.tp_rank == 0]
    for rank in stages:
        console.print()
        console.print(_memory(rank, budget, stages=len(stages)))
        if rank.kv.groups:
            console.print()
            console.print(_kv(rank))
    if any(rank.runtime for rank in stages):
        console.print("* outside the engine's share of the device")
    if explain:
        _print_explanation(console, budget)
    console.print()
    for text in budget.unknown:
        console.print(f"unknown: {escape(text)}")
    for text in budget.warnings:
        console.print(f"note: {escape(text)}")
    console.print({True: "It fits.", False: "It does not fit.", None: "Whether it fits is not known."}[budget.fits])


def _headline(budget: Budget) -> str:
    model, version = budget.model, budget.arguments["engine_version"].value
    parameters = f"  {model.parameters:,} parameters" if model.parameters else ""
    device = budget.device.name or (size_text(budget.device.total_bytes) if budget.device.total_bytes else "no device")
    return (
        f"{model.name}  {model.architecture or model.model_type or 'unknown'}{parameters}\nvLLM {version} on {device}"
    )


def _layers(group: LayerGroup) -> str:
    if group.kv_heads is None:
        return f"{group.count} layers of unknown kind"
    widths = f"K {group.k_dim}, V {group.v_dim}" if group.v_dim else f"one latent vector of {group.k_dim}"
    heads = f"{group.kv_heads} KV heads, " if group.v_dim else ""
    return f"{group.count} layers {group.kind}: {heads}{widths}"


def _memory(rank: RankBudget, budget: Budget, *, stages: int) -> Table:
    alike = sum(other.pp_rank == rank.pp_rank for other in budget.ranks)
    stage = f", stage {rank.pp_rank}" if stages > 1 else ""
    table = _table(f"memory of a rank{stage} ({alike} alike)" if alike > 1 else f"memory of the rank{stage}")
    table.add_column("component")
    for name in ("likely", "low", "high"):
        table.add_column(name, justify="right")
    table.add_column("known by")
    table.add_row("weights", _size(rank.weights_bytes), "", "", rank.weights_evidence or "")
    table.add_row("KV pool", _size(rank.kv.pool_bytes))
    for name, part in _runtime(rank):
        table.add_row(name, _size(part.likely), _size(part.low), _size(part.high), "range")
    table.add_row("total", _size(rank.total_bytes))
    table.add_row("headroom", _size(rank.headroom_bytes), "", "", _ratio(rank, budget.device))
    return table


def _runtime(rank: RankBudget) -> Iterator[tuple[str, Range]]:
    if rank.runtime is not None:
        for name in ("activations", "cuda_graphs", "non_torch", "context"):
            outside = " *" if name in rank.runtime.outside else ""
            yield name + outside, getattr(rank.runtime, name)


def _ratio(rank: RankBudget, device: Device) -> str:
    total = device.total_bytes or device.cuda_bytes
    return f"{rank.headroom_bytes / total:.1%} of device" if rank.headroom_bytes is not None and total else ""


def _kv(rank: RankBudget) -> Table:
    kv = rank.kv
    table = _table("KV cache of the rank")
    table.show_header = False
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify)
    table.add_row("bytes per token", _count(kv.bytes_per_token), "")
    for group in kv.groups:
        table.add_row(
            f"page of a layer ({group.kind})",
            _count(group.page_bytes),
            f"{group.layers} layers x {group.block_size} tokens",
        )
    table.add_row("bytes per block", _count(kv.bytes_per_block), "")
    table.add_row("blocks", _count(kv.blocks), "")
    table.add_row("tokens, as the log counts them", _count(kv.pool_tokens), "")
    per_request = kv.groups[0].blocks_per_request if kv.groups else None
    table.add_row("one request of full length", _size(kv.request_bytes), f"{_count(per_request)} blocks")
    table.add_row("requests of full length", "?" if kv.max_concurrency is None else f"{kv.max_concurrency:.3f}", "")
    return table


def _print_explanation(console: Console, budget: Budget) -> None:
    console.print("\n[bold]values used[/]")
    for name, resolved in budget.arguments.items():
        console.print(f"  {name} = {escape(str(resolved.value))} ({resolved.source})")
    console.print("\n[bold]terms of rank (0, 0)[/]")
    for term in budget.terms:
        value = f"{term.value:,}" if isinstance(term.value, int | float) else term.value
        console.print(f"  {term.name} = {value}\n    = {escape(term.formula)}\n    {escape(term.source)}")


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)


def _size(count: int | None) -> str:
    return "?" if count is None else f"{count / GIB:,.2f} GiB"


def _count(count: float | None) -> str:
    return "?" if count is None else f"{count:,}"
