"""TensorRT-LLM's log, of the PyTorch backend. Source: NVIDIA/TensorRT-LLM, ``_torch/pyexecutor/_util.py``."""

import re

from collectors.engine_logs.shapes import LogFormat, Where, shape
from collectors.readings import RankTitle

_SIZE = r"-?\d{1,7}(?:\.\d{1,20})?"
_RANK = re.compile(r"\[RANK (?P<rank>\d{1,6})\]")


def _where(line: str) -> Where:
    """The rank among all of the server, which is the tensor rank as long as there is no pipeline."""
    found = _RANK.search(line[:200])
    return RankTitle(tp_rank=int(found["rank"]) if found else 0, pp_rank=0, replica="0")


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
        shape(
            "for max tokens in paged KV cache",
            rf"Allocated (?P<kv_pool_gib>{_SIZE}) GiB for max tokens in paged KV cache \((?P<kv_count>\d{{1,15}})\)",
        ),  # a small pool for the trial run first, then the real one
    ),
)
