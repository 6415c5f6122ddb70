"""``vramscope plan``: whether a target fits on the GPUs there are, and if not, what would make it fit."""

import shlex
from pathlib import Path

import click
from msgspec import json
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agent.budget_text import device_text
from agent.engine_options import (
    check_flags,
    cuda_bytes_option,
    engine_options,
    one_sentence,
    read_arguments,
    with_cuda_bytes,
)
from agent.errors import InputError
from agent.memory.gpus import find_gpus
from agent.memory.plan import Choice, Plan, Rung, Target, plan
from agent.memory.serving import COMMANDS, ENGINES, TITLES
from agent.memory.units import parse_count
from agent.model_source import model_options, open_model
from agent.printable import printable

_MARKS = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}
_QUESTIONS = {
    "limit": "model's limit",
    "need": "KV needed",
    "fit": "does it fit",
    "architecture": "architecture",
    "kv_format": "smaller KV",
    "step": "smaller steps",
    "gpus": "more GPUs",
    "concurrency": "fewer requests",
    "context": "less context",
    "evict": "evict tokens",
}
_MOST = {"--context": 1 << 31, "--concurrency": 1 << 20}


@click.command("plan")
@model_options
@click.option("--gpu", metavar="NAME[xN]", required=True, help="GPUs by name or NVML total in bytes, such as h100x8.")
@click.option("--context", metavar="N", required=True, help="Tokens of a request, prompt and output; 128K is 131072.")
@click.option("--concurrency", metavar="N", required=True, help="Requests at once, all at full length.")
@cuda_bytes_option
@click.option(
    "--engine", metavar="NAME", help=f"Engine to plan for: {', '.join(ENGINES)} (default: vllm; .gguf: llama_cpp)."
)
@engine_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else.")
def plan_command(
    model: str,
    from_hub: bool,
    revision: str | None,
    gpu: str,
    context: str,
    concurrency: str,
    cuda_bytes: int | None,
    engine: str | None,
    as_json: bool,
    **flags: object,
) -> None:
    """Decide on a deployment: KV needed, whether it fits with 10 % headroom, and if not, what would make it fit.

    Without --engine, other engines that hold the target get a choice each.

    Example: vramscope plan /models/llama-3.1-70b --gpu h100x8 --context 128K --concurrency 16
    """
    name = engine or _engine_of(model)
    if name not in ENGINES:
        raise InputError(f"--engine: expected one of {', '.join(ENGINES)}, got {name[:60]!r}")
    check_flags(flags, engine=name)
    base = read_arguments(flags, engine=name)
    try:
        device, count = find_gpus(gpu)
    except ValueError as error:
        raise InputError(f"--gpu: {error}") from error
    target = Target(gpus=count, context=_count("--context", context), concurrency=_count("--concurrency", concurrency))
    files = open_model(model, from_hub=from_hub, revision=revision)
    device = with_cuda_bytes(device, cuda_bytes)
    others = () if engine or name == "llama_cpp" else tuple(other for other in ENGINES if other != name)
    decided = one_sentence(lambda: plan(files, base, device, target, others=others), files=files)
    if as_json:
        click.echo(json.encode(decided))
    else:
        _print(decided, model, version_is_given=base.engine_version is not None)


def _engine_of(model: str) -> str:
    """A GGUF file is llama.cpp's."""
    return "llama_cpp" if model.endswith(".gguf") else "vllm"


def _count(option: str, text: str) -> int:
    try:
        number = parse_count(text)
    except ValueError:
        number = 0
    if not 1 <= number <= _MOST[option]:
        raise InputError(f"{option}: expected an integer from 1 to {_MOST[option]}, got {text[:60]!r}")
    return number


def _print(decided: Plan, model: str, *, version_is_given: bool) -> None:
    console = Console(highlight=False)
    facts = decided.model
    parameters = f"  {facts.parameters:,} parameters" if facts.parameters else ""
    named = printable(f"{facts.name}  {facts.architecture or facts.model_type or 'unknown'}")
    console.print(escape(f"{named}{parameters}"))
    gpus = f"{decided.gpus} x {device_text(decided.device)}"
    target = f"{decided.concurrency:,} request{'s' * (decided.concurrency > 1)} of {decided.context:,} tokens"
    version = f" {decided.engine_version}" if decided.engine_version else ""
    assumed = " (assumed)" if version and not version_is_given else ""
    console.print(escape(f"{TITLES[decided.engine]}{version}{assumed} on {gpus}: {target}\n"))
    console.print(_ladder(decided.ladder))
    for warning in dict.fromkeys(rung.warning for rung in decided.ladder if rung.warning):
        console.print(f"note: {escape(warning)}")
    for text in decided.unknown:
        console.print(f"unknown: {escape(text)}")
    for text in decided.warnings:
        console.print(f"note: {escape(text)}")
    for number, choice in enumerate(decided.choices, 1):
        console.print(f"\n[bold]{number}. {escape(choice.why)}[/]")
        console.print(f"   {escape(_summary(choice))}")
        click.echo(f"   {COMMANDS[choice.engine]} {_named(model)} {choice.engine_flags}")  # not wrapped: it is copied
    if not decided.choices:
        console.print("\nNo deployment found that holds it." if decided.fits is False else "")


def _named(model: str) -> str:
    """The model as an engine is told it: a directory, a GGUF file or a name."""
    path = Path(model)
    if path.name == "config.json" or path.name.endswith(".index.json"):
        return shlex.quote(str(path.parent))
    return "MODEL" if path.suffix == ".json" else shlex.quote(model)


def _ladder(rungs: tuple[Rung, ...]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True)
    table.add_column()
    for rung in rungs:
        table.add_row(_QUESTIONS[rung.rung], _MARKS[rung.fits], escape(rung.finding))
    return table


def _summary(choice: Choice) -> str:
    sizes = {"TP": choice.tp, "PP": choice.pp, "DP": choice.dp, "DCP": choice.dcp}
    spread = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
    gpus = f"{choice.gpus} GPU{'s' * (choice.gpus > 1)}{f' ({spread})' if spread else ''}"
    headroom = "" if choice.headroom_ratio is None else f", {100 * choice.headroom_ratio:.1f} % headroom"
    return f"{choice.concurrency:,} x {choice.context:,} tokens on {gpus}, {choice.kv_cache_dtype} KV{headroom}"
