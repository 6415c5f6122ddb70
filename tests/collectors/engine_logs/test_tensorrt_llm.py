"""TensorRT-LLM's log: what its trial run measures, and the pool that it allocates then."""

from collectors.engine_logs.tensorrt_llm import FORMAT, TRITON
from collectors.readings import RankTitle
from tests.collectors.engine_logs.lines import GIB, MIB, only, read

AT = "[01/01/2026-10:00:00] [TRT-LLM]"
LINES = (
    "[TensorRT-LLM] TensorRT-LLM version: 1.2.0",
    f"{AT} [I] Memory used after loading model weights (inside torch) in memory usage profiling: 14.99 GiB",
    f"{AT} [I] Memory used after loading model weights (outside torch) in memory usage profiling: 2.50 GiB",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.01 GiB for max tokens in paged KV cache (8256).",
    f"{AT} [I] Memory dynamically allocated during inference (inside torch) in memory usage profiling: 1.25 GiB",
    f"{AT} [I] Memory used outside torch (e.g., NCCL and CUDA graphs) in memory usage profiling: 0.75 GiB",
    f"{AT} [I] Estimated max memory in KV cache : 52.50 GiB",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 52.25 GiB for max tokens in paged KV cache (427104).",
)


def test_a_start() -> None:
    """The pool is the one that was allocated last; what is outside torch after the trial run counts."""
    reading = read(FORMAT, *LINES)

    assert reading.version == "1.2.0"
    assert only(reading) == {
        "weights_bytes": round(14.99 * GIB),
        "activation_peak_bytes": round(1.25 * GIB),
        "non_torch_bytes": round(0.75 * GIB),
        "kv_pool_bytes": round(52.25 * GIB),
        "kv_tokens": 427104,
    }


def test_ranks_are_named_where_there_are_several() -> None:
    """In front of the message."""
    reading = read(FORMAT, *(LINES[1].replace("[TRT-LLM]", f"[TRT-LLM] [RANK {n}]") for n in range(2)))

    assert [one.rank for one in reading.ranks] == [RankTitle(tp_rank=n, pp_rank=0, replica="0") for n in range(2)]


def test_a_negative_share_is_not_known() -> None:
    """Seen where the trial run needed less than was loaded."""
    assert only(read(FORMAT, LINES[4].replace("1.25", "-0.25"))) == {}


BUILT = (
    "I1010 10:23:04.070078 43399 pinned_memory_manager.cc:277] \"Pinned memory pool is created at '0x725f9a000000'\"",
    "[TensorRT-LLM][INFO] Loaded engine size: 15321 MiB",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 928.77 MiB for execution context memory.",
    "[TensorRT-LLM][INFO] [MemUsageChange] TensorRT-managed allocation in engine deserialization: CPU +0, GPU +15316,"
    " now: CPU 0, GPU 15316 (MiB)",
    "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 31.84 GiB",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (263008)",
    'I1010 10:23:40.000000 43399 http_server.cc:4725] "Started HTTPService at 0.0.0.0:8000"',
)
OF_ENGINE = {
    "weights_bytes": 15316 * MIB,
    "activations_bytes": round(928.77 * MIB),
    "kv_pool_bytes": round(16.05 * GIB),
    "kv_tokens": 263008,
}


def test_an_engine_in_triton() -> None:
    """What TensorRT holds on the device, not the size of its file; then nothing changes any more."""
    reading = read(TRITON, *BUILT, BUILT[3].replace("+15316", "+1"))

    assert (only(reading), reading.ready, reading.version) == (OF_ENGINE, True, None)
    assert read(TRITON, *BUILT, BUILT[0]).ranks == ()


def test_an_engine_in_trtllm_serve() -> None:
    """The same lines."""
    assert only(read(FORMAT, LINES[0], *BUILT[1:-1])) == OF_ENGINE
