"""Lines of a memory that ran out: their kind, their figures, and that the same one is counted once."""

# ruff: noqa: E501 - lines as engines write them

import tracemalloc

import pytest

from collectors.engine_logs.llama_cpp import LLAMA_CPP
from collectors.engine_logs.parsing import LogParser
from collectors.engine_logs.sglang import FORMAT as SGLANG
from collectors.engine_logs.vllm import FORMAT as VLLM
from tests.collectors.engine_logs.lines import GIB, MIB, read, take

TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of 79.25 GiB of"
    " which 512.00 MiB is free. Process 4711 has 78.75 GiB memory in use. Of the allocated memory 70.50 GiB is allocated by"
    " PyTorch, with 128.00 MiB allocated in private pools (e.g., CUDA Graphs), and 1.25 GiB is reserved by PyTorch but"
    " unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF"
)
TORCH_FIGURES = {
    "requested_bytes": round(2.5 * GIB),
    "device": 1,
    "total_bytes": round(79.25 * GIB),
    "free_bytes": 512 * MIB,
    "process_bytes": round(78.75 * GIB),
    "allocated_bytes": round(70.5 * GIB),
    "unallocated_bytes": round(1.25 * GIB),
}
LINES: dict[str, tuple[str, str, dict[str, int]]] = {
    "torch": (TORCH, "cuda_oom", TORCH_FIGURES),
    "torch of before 2.2": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 2.00"
        " GiB of which 1.00 MiB is free.",
        "cuda_oom",
        {"requested_bytes": 20 * MIB, "device": 0, "total_bytes": 2 * GIB, "free_bytes": MIB},
    ),
    "sampler": (
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
        "cuda_oom",
        {},
    ),
    "llama.cpp": (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1024.50 MiB on device 0: cudaMalloc failed: out of memory",
        "cuda_oom",
        {"requested_bytes": round(1024.5 * MIB), "device": 0},
    ),
    "TurboMind": (
        "RuntimeError: [TM][ERROR] CUDA runtime error: out of memory /lmdeploy/src/turbomind/core/allocator.cc:49",
        "cuda_oom",
        {},
    ),
    "TensorRT-LLM's runtime": (
        "[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, mMemPool->getPool(), mCudaStream->get()): out of memory",
        "cuda_oom",
        {},
    ),
    "TensorRT": (
        "[TRT] [E] [executionContext.cpp::initializeExecutionContext::625] Error Code 2: OutOfMemory (Requested size was 20132809216 bytes.)",
        "cuda_oom",
        {"requested_bytes": 20132809216},
    ),
    "TGI": (
        "RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens`",
        "cuda_oom",
        {},
    ),
    "LMDeploy without room": ("RuntimeError: No enough gpu memory for kv cache.", "no_cache_blocks", {}),
    "TensorRT-LLM, a prompt": (
        "[TensorRT-LLM][ERROR] Prompt length (5000) exceeds maximum input length (4096). Set log level to info and check",
        "context_refused",
        {"request_tokens": 5000, "context_tokens": 4096},
    ),
    "vLLM without room": (
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        "no_cache_blocks",
        {},
    ),
    "SGLang without room": (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "no_cache_blocks",
        {},
    ),
    "SGLang 0.5.14 without room": (
        "RuntimeError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static",
        "no_cache_blocks",
        {},
    ),
    "less free than wanted": (
        "ValueError: Free memory on device cuda:0 (10.5/79.25 GiB) on startup is less than desired GPU memory utilization"
        " (0.9, 71.33 GiB).",
        "start_refused",
        {"free_bytes": round(10.5 * GIB), "total_bytes": round(79.25 * GIB)},
    ),
    "vLLM context": (
        "ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed,"
        " which is larger than the available KV cache memory (9.5 GiB). Based on the available memory",
        "context_refused",
        {"context_tokens": 131072, "needed_bytes": 16 * GIB, "available_bytes": round(9.5 * GIB)},
    ),
    "vLLM V0 context": (
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV"
        " cache (73488). Try increasing `gpu_memory_utilization`",
        "context_refused",
        {"context_tokens": 131072, "available_tokens": 73488},
    ),
    "llama.cpp context": (
        "srv    send_error: request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "context_refused",
        {"request_tokens": 5000, "context_tokens": 4096},
    ),
    "SGLang capture": ("Exception: Capture cuda graph failed: CUDA error", "capture_failed", {}),
    "capture": (
        "RuntimeError: CUDA error: operation failed due to a previous error during capture",
        "capture_failed",
        {},
    ),
    "SGLang pool": (
        "KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_tokens_gained: 1024",
        "kv_pool_full",
        {"retracted_count": 3},
    ),
    "llama.cpp pool": (
        "6.19.708.567 E srv    send_error: task id = 4021, error: Context size has been exceeded.",
        "kv_pool_full",
        {},
    ),
}


@pytest.mark.parametrize(("line", "kind", "figures"), LINES.values(), ids=LINES.keys())
def test_every_line_has_its_kind_and_figures(line: str, kind: str, figures: dict[str, int]) -> None:
    """In the log of any engine: the same libraries run below all of them."""
    for log in (VLLM, SGLANG, LLAMA_CPP):
        reading = read(log, f"(Worker_TP1 pid=9) ERROR 01-01 10:00:00 [core.py:1] {line}")

        assert reading.failures == {kind: 1}
        assert reading.last_failure is not None
        assert (reading.last_failure.kind, reading.last_failure.figures) == (kind, figures)


def test_one_exception_that_several_processes_write_counts_once() -> None:
    """Worker, engine core and API server each write it, and what it caused; the figures are kept."""
    parser = LogParser(VLLM)
    for second, prefix in enumerate(("(Worker pid=3)", "(EngineCore_DP0 pid=2)", "(APIServer pid=1)")):
        take(parser, f"{prefix} {TORCH}", f"{prefix} {LINES['sampler'][0]}", at=100.0 + second)

    reading = parser.reading(103.0)
    assert reading.failures == {"cuda_oom": 1}
    assert reading.last_failure is not None
    assert (reading.last_failure.at, reading.last_failure.figures) == (100.0, TORCH_FIGURES)

    take(parser, TORCH.replace("2.50 GiB", "2.75 GiB"), at=104.0)
    take(parser, TORCH, at=120.0)
    assert parser.reading(120.0).failures == {"cuda_oom": 3}


def test_each_retraction_counts() -> None:
    """That line is written once for each."""
    line = LINES["SGLang pool"][0]

    assert read(SGLANG, line, line, line).failures == {"kv_pool_full": 3}


def test_room_that_is_made_of_kept_prefixes_is_no_failure() -> None:
    """llama.cpp b11549 writes these whenever a slot's kept prefix gives way to a request; nothing has failed."""
    lines = (
        "0.44.616.089 W decode: failed to find a memory slot for batch of size 6",
        "0.44.616.140 W srv  try_clear_id: purging slot 14 with 546 tokens",
        "0.44.616.339 W srv        decode: failed to find free space in the KV cache, retrying with smaller batch size,"
        " off = 0, n_batch = 2048, ret = 1",
    )

    assert read(LLAMA_CPP, *lines).failures == {}


def test_a_restart_forgets_sizes_but_not_failures() -> None:
    """A server that dies and starts again in a loop is counted each time."""
    parser = LogParser(VLLM)
    for second in (0.0, 60.0, 120.0):
        take(
            parser,
            "non-default args: {}",
            "Model loading took 9 GiB and 1 seconds",
            LINES["vLLM without room"][0],
            at=second,
        )
    take(parser, "non-default args: {}", at=180.0)

    reading = parser.reading(180.0)
    assert (reading.failures, reading.ranks) == ({"no_cache_blocks": 3}, ())


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {number}.00 MiB. GPU 0 has",
        "srv  send_error: task id = 1, error: request ({number} tokens) exceeds the available context size (64 tokens)",
    ],
)
def test_any_number_of_failures_is_counted_in_bounded_memory(line: str) -> None:
    """A log of thousands at once, each another: only the last few are what the next is compared with."""
    parser = LogParser(VLLM)
    tracemalloc.start()
    try:
        for number in range(1, 5001):
            parser.take(line.format(number=number).encode(), 0.0)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert sum(parser.reading(0.0).failures.values()) == 5000
    assert held < 200_000
