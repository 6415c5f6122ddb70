"""Lines of a memory that ran out, of every engine: a kind each, and the figures that stand in some of them.

An exception is often written by several processes of a server, so the same again within ten seconds counts once;
``told_once`` are lines that are written once for each event. Source: PyTorch, ``c10/cuda/CUDACachingAllocator.cpp``;
vllm-project/vllm, ``v1/core/kv_cache_utils.py``; sgl-project/sglang, ``srt/mem_cache/allocation.py``,
``srt/managers/scheduler.py``; ggml-org/llama.cpp, ``tools/server/server-context.cpp``; InternLM/lmdeploy,
``src/turbomind/core/check.cc``, ``lmdeploy/pytorch/engine/executor/base.py``; NVIDIA/TensorRT-LLM,
``cpp/tensorrt_llm/common/cudaUtils.h``, ``executor/requestImpl.h``, and TensorRT's ``Error Code 2``;
huggingface/text-generation-inference, ``server/text_generation_server/models/flash_causal_lm.py``.
"""

import re

from collectors.engine_logs.shapes import FailureShape
from collectors.readings import FailureKind

_SIZE = r"(?P<{name}>\d{{1,15}}(?:\.\d{{1,20}})?) ?(?P<{name}_unit>bytes|KiB|MiB|GiB|TiB)"


def _figures(*texts: str) -> tuple[re.Pattern[str], ...]:
    """Patterns from texts in which ``<name>`` stands for a size with its unit and ``<name#>`` for a whole number."""
    return tuple(re.compile(_pattern(text)) for text in texts)


def _pattern(text: str) -> str:
    counted = re.sub(r"<(\w+)#>", r"(?P<\1>\\d{1,15})", text)
    return re.sub(r"(?<!\?P)<(\w+)>", lambda found: _SIZE.format(name=found[1]), counted)


def _failure(kind: FailureKind, mark: str, *texts: str, told_once: bool = False) -> FailureShape:
    return FailureShape(kind=kind, mark=mark.encode(), figures=_figures(*texts), told_once=told_once)


_TORCH = (
    "Tried to allocate <requested_bytes>",
    r"GPU (?P<device>\d{1,4})[ ;]",
    "total capacity of <total_bytes>",
    "of which <free_bytes> is free",
    r"(?:[Tt]his process|Process \d{1,10}) has <process_bytes> memory in use",
    "Of the allocated memory <allocated_bytes> is allocated by PyTorch",
    "and <unallocated_bytes> is reserved by PyTorch but unallocated",
)
FAILURES: tuple[FailureShape, ...] = (
    _failure("cuda_oom", "out of memory. Tried to allocate", *_TORCH),
    _failure("cuda_oom", "CUDA out of memory occurred when warming up"),
    _failure("cuda_oom", "cudaMalloc failed: out of memory", "allocating <requested_bytes> on device <device#>"),
    _failure("cuda_oom", "CUDA error: out of memory"),
    _failure("cuda_oom", "CUDA runtime error: out of memory"),
    _failure("cuda_oom", "): out of memory"),
    _failure("cuda_oom", "OutOfMemory (Requested size was", "Requested size was <requested_bytes>"),
    _failure("cuda_oom", "Not enough memory to handle"),
    _failure("no_cache_blocks", "No available memory for the cache blocks"),
    _failure("no_cache_blocks", "Not enough memory. Please try to increase --mem-fraction-static"),
    _failure("no_cache_blocks", "No enough gpu memory for"),
    _failure("no_cache_blocks", "Loaded weights leave no GPU memory for the KV cache"),
    _failure(
        "start_refused",
        "is less than desired GPU memory utilization",
        r"Free memory on device (?:\S{1,20} )?\((?P<free_gib>\d{1,7}(?:\.\d{1,20})?)/",
        r"/(?P<total_gib>\d{1,7}(?:\.\d{1,20})?) GiB\) on startup is less",
    ),
    _failure(
        "context_refused",
        "cache is needed, which is larger than the available KV cache",
        "[(,] ?<needed_bytes> KV",
        r"cache memory \(<available_bytes>\)",
        r"max seq len \(<context_tokens#>\)",
    ),
    _failure(
        "context_refused",
        "is larger than the maximum number of tokens that can be stored in KV cache",
        r"max seq len \(<context_tokens#>\)",
        r"stored in KV cache \(<available_tokens#>\)",
    ),
    _failure(
        "context_refused",
        "exceeds the available context size",
        r"request \(<request_tokens#> tokens\)",
        r"context size \(<context_tokens#> tokens\)",
        told_once=True,
    ),
    _failure(
        "context_refused",
        "exceeds maximum input length (",
        r"Prompt length \(<request_tokens#>\)",
        r"maximum input length \(<context_tokens#>\)",
        told_once=True,
    ),
    _failure("capture_failed", "graph failed: "),
    _failure("capture_failed", "operation failed due to a previous error during capture"),
    _failure("capture_failed", "operation not permitted when stream is capturing"),
    _failure(
        "kv_pool_full",
        "KV cache pool is full. Retract requests",
        r"#retracted_reqs: <retracted_count#>",
        told_once=True,
    ),
    _failure(
        "kv_pool_full",
        "Decode out of memory happened. #retracted_reqs",
        r"#retracted_reqs: <retracted_count#>",
        told_once=True,
    ),
    _failure("kv_pool_full", "Prefill out of memory. Try to lower your batch size"),
    _failure("kv_pool_full", "Decode out of memory. Try to lower your batch size"),
    _failure("kv_pool_full", "Context size has been exceeded"),
)
