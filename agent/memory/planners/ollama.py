"""Ollama: llama.cpp's caches with defaults of its own.

A request has ``OLLAMA_CONTEXT_LENGTH`` tokens, by default 4,096, 32,768 or 262,144 as the device has less than 24 GiB,
less than 48 GiB or more, and at most the model's; ``OLLAMA_NUM_PARALLEL`` (1) multiplies it, each request having a
cache of its own. Source: Ollama docs/context-length.mdx, docs/faq.mdx; its own sizing code was not read.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from agent.memory.arguments import Arguments
from agent.memory.kv_cache import KvBudget
from agent.memory.model_config import ModelShape
from agent.memory.planners import llama_cpp
from agent.memory.planners.llama_cpp.settings import Settings
from agent.memory.planners.planner import Device, Stage
from agent.memory.units import GIB

explain = llama_cpp.explain
runtime = llama_cpp.runtime

_LARGEST = 262_144
_CONTEXTS = ((24 * GIB, 4096), (48 * GIB, 32_768))
_NOT_READ = "Ollama's own engine is not known here; llama.cpp's caches are assumed for all models"


def resolve(arguments: Arguments, shape: ModelShape, device: Device, *, draft: ModelShape | None) -> Settings:
    """llama.cpp's settings, with Ollama's context and slots where none are given; its version names no build."""
    length = arguments.max_model_len or default_context(device, shape)
    filled = replace(
        arguments, engine_version=None, parallel=arguments.parallel or 1, kv_unified=False, max_model_len=length
    )
    settings = llama_cpp.resolve(filled, shape, device, draft=draft)
    given = {"parallel": arguments.parallel, "ctx_size": arguments.max_model_len, "kv_unified": None}
    sources = {
        name: replace(value, source="default") if name in given and given[name] is None else value
        for name, value in settings.resolved.items()
    }
    return replace(settings, resolved=sources, warnings=(*settings.warnings, _NOT_READ))


def plan(stages: Sequence[Stage], settings: Settings, *, cuda_bytes: int | None) -> list[KvBudget]:
    """As llama.cpp."""
    return llama_cpp.plan(stages, settings, cuda_bytes=cuda_bytes)


def default_context(device: Device, shape: ModelShape) -> int:
    """Tokens of a request when nobody says; the smallest where the device is not known."""
    size = device.total_bytes or device.cuda_bytes or 0
    length = next((tokens for below, tokens in _CONTEXTS if size < below), _LARGEST)
    return min(length, shape.max_positions or length)
