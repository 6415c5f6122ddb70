"""Engine arguments in one vocabulary, each with where its value came from."""

from typing import Literal

from msgspec import Struct

Source = Literal["given", "reported", "checkpoint", "default"]


class Arguments(Struct, frozen=True, kw_only=True):
    """What a server was started with, as far as known; None lets the planner use that engine and version's default.

    Field names are those of ``vramscope budget``; an engine's own flag names are translated by ``from_flags``.
    """

    engine: str = "vllm"
    engine_version: str | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    weights_bytes: int | None = None
    kv_cache_dtype: str | None = None
    block_size: int | None = None
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    num_gpu_blocks: int | None = None
    kv_cache_memory_bytes: int | None = None
    kv_pool_bytes: int | None = None
    pp_layers: tuple[int, ...] | None = None
    enforce_eager: bool | None = None


class Resolved(Struct, frozen=True, kw_only=True):
    """One value a budget used, and its source."""

    value: int | float | str | bool | tuple[int, ...] | None
    source: Source
