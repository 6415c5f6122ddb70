"""TensorRT-LLM's log, of the PyTorch backend and of engines that were built, and that of a Triton which serves one.

Of an engine TensorRT says what it holds on the device once it is loaded, and the runtime what its execution context
takes. Source: NVIDIA/TensorRT-LLM, ``_torch/pyexecutor/_util.py``, ``cpp/tensorrt_llm/runtime/tllmRuntime.cpp`` and
``batch_manager/kvCacheManager.cpp``, 0.11 to 1.3; ``[MemUsageChange]`` lines of TensorRT 8.6 to 10;
triton-inference-server/core, ``src/pinned_memory_manager.cc``, and server, ``src/http_server.cc``.
"""

import re

from collectors.engine_logs.shapes import LogFormat, Where, shape
from collectors.readings import RankTitle

_SIZE = r"-?\d{1,7}(?:\.\d{1,20})?"
_RANK = re.compile(r"\[RANK (?P<rank>\d{1,6})\]")


def _where(line: str) -> Where:
    """The rank among all of the server, which is the tensor rank as long as there is no pipeline."""
    found = _RANK.search(line[:200])
    return RankTitle(tp_rank=int(found["rank"]) if found else 0, pp_rank=0, replica="0")


_OF_RUNTIME = (
    shape(
        "in engine deserialization:",
        r"TensorRT-managed allocation in engine deserialization: CPU \+\d{1,9}, GPU \+(?P<weights_mib>\d{1,9}),",
        versions="with an engine that was built",
    ),
    shape(
        "for execution context memory",
        rf"Allocated (?P<activations_mib>{_SIZE}) MiB for execution context memory",
        versions="with an engine that was built",
    ),
    shape(
        "for max tokens in paged KV cache",
        rf"Allocated (?P<kv_pool_gib>{_SIZE}) GiB for max tokens in paged KV cache \((?P<kv_count>\d{{1,15}})\)",
    ),  # a small pool for the trial run first, then the real one
)
FORMAT = LogFormat(
    title="TensorRT-LLM",
    starts=(b"TensorRT-LLM version:", b"TensorRT LLM version:"),
    ready=(b"Application startup complete",),
    where=_where,
    shapes=(
        shape("LLM version:", r"TensorRT[- ]LLM version: (?P<version>[\w.+-]{1,40})"),
        shape(
            "after loading model weights (inside torch)",
            rf"\(inside torch\) in memory usage profiling: (?P<weights_gib>{_SIZE}) GiB",
        ),
        shape(
            "allocated during inference (inside torch)",
            rf"\(inside torch\) in memory usage profiling: (?P<activation_peak_gib>{_SIZE}) GiB",
        ),
        shape(
            "Memory used outside torch",
            rf"NCCL and CUDA graphs\) in memory usage profiling: (?P<non_torch_gib>{_SIZE}) GiB",
        ),
        shape(
            "Estimated max memory in KV cache",
            rf"Estimated max memory in KV cache\s{{0,4}}: (?P<kv_pool_gib>{_SIZE}) GiB",
        ),
        *_OF_RUNTIME,
    ),
)
TRITON = LogFormat(
    title="Triton",
    starts=(b"Pinned memory pool is created at",),
    ready=(b"Started HTTPService at", b"Started GRPCInferenceService at"),
    where=_where,
    shapes=_OF_RUNTIME,
)
