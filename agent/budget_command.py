"""``vramscope budget``: what a model will need on a device, before it is loaded."""

import click
from msgspec import json
from msgspec.structs import replace

from agent.budget_text import print_budget
from agent.engine_options import (
    check_flags,
    cuda_bytes_option,
    engine_options,
    one_sentence,
    read_arguments,
    server_options,
    with_cuda_bytes,
)
from agent.errors import InputError
from agent.memory.arguments import ENGINES, Source
from agent.memory.budget import Device, compute
from agent.memory.gpus import find_gpus
from agent.memory.model_config import parse_model
from agent.model_source import model_options, open_model
from collectors.readings import ModelFiles


@click.command("budget")
@model_options
@click.option("--gpu", metavar="NAME|BYTES", help="GPU by name, or its NVML total in bytes or GiB.")
@cuda_bytes_option
@click.option(
    "--engine",
    metavar="NAME",
    help=f"Engine that serves the model: {', '.join(ENGINES)} or tensorrt_llm (default: vllm).",
)
@engine_options
@server_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else.")
@click.option("--explain", is_flag=True, help="Show every value used, and each term with formula and source.")
def budget_command(
    model: str,
    from_hub: bool,
    revision: str | None,
    gpu: str | None,
    cuda_bytes: int | None,
    engine: str | None,
    as_json: bool,
    explain: bool,
    draft_model: str | None,
    **flags: object,
) -> None:
    """Predict the memory of each rank: weights, KV pool, runtime.

    MODEL is a model's directory, its config.json, its model.safetensors.index.json, a .gguf file, the directory of an
    engine that TensorRT-LLM built (--engine tensorrt_llm), or its name in the local Hugging Face cache.

    The exit code is 0 whatever the verdict, which is `fits` in the JSON (true, false, null: not known); 2 for wrong
    input; 1 where a hub does not answer.

    Example: vramscope budget /models/llama-3.1-8b --gpu h100 --max-model-len 32768
    """
    check_flags(flags, engine=engine)
    arguments = read_arguments(flags | {"draft_model": draft_model}, engine=engine)
    device = with_cuda_bytes(_device(gpu), cuda_bytes)
    files = open_model(model, from_hub=from_hub, revision=revision)
    draft = _draft(draft_model) if draft_model else None
    source: Source = "given" if engine else "default"
    budget = one_sentence(
        lambda: compute(files, arguments, device, draft=draft, engine_source=source),
        files=files,
    )
    if as_json:
        click.echo(json.encode(budget if explain else replace(budget, terms=())))
    else:
        print_budget(budget, explain=explain)


def _draft(model: str) -> ModelFiles:
    """The model that speculates."""
    try:
        files = open_model(model)
        one_sentence(lambda: parse_model(files.config), files=files)
    except InputError as error:
        raise InputError(f"--draft-model: {error.message}") from error
    return files


def _device(gpu: str | None) -> Device:
    """One device: a budget is that of each rank, so how many there are is said by --tp, --pp and --dp."""
    if gpu is None:
        return Device()
    try:
        device, count = find_gpus(gpu)
    except ValueError as error:
        raise InputError(f"--gpu: {error}") from error
    if count > 1:
        raise InputError(f"--gpu: {gpu!r} is {count} GPUs; give one, and --tp {count} (or ask `vramscope plan`)")
    return device
