"""vLLM's log, 0.8 to 0.33. Source: vllm-project/vllm, ``v1/worker/gpu_worker.py``, ``v1/worker/gpu_model_runner.py``,
``v1/core/kv_cache_utils.py``, ``worker/worker.py``. Sizes are GiB with 2 to 15 decimals, and may be negative.
"""

import re

from collectors.engine_logs.shapes import LogFormat, Where, shape
from collectors.readings import RankTitle

_SIZE = r"-?\d{1,7}(?:\.\d{1,20})?"
_PROCESS = re.compile(
    r"\([A-Za-z]{1,20}(?P<ranks>(?:_[A-Z]{0,5}\d{1,6}){0,8})(?:-(?P<number>\d{1,6}))?(?: rank=(?P<rank>\d{1,6}))?"
    r" pid=\d{1,10}\)"
)
_RANK = re.compile(r"_([A-Z]*)(\d+)")


def _where(line: str) -> Where:
    """The process in front of a line: ``(Worker_PP0_TP1 pid=7)``, ``(EngineCore_DP1 pid=7)``, ``(VllmWorker rank=1``.

    A line without one is of a server that is a single process.
    """
    found = _PROCESS.search(line[:200])
    if found is None:
        return RankTitle(tp_rank=0, pp_rank=0, replica="0")
    ranks = {kind or "DP": int(number) for kind, number in _RANK.findall(found["ranks"])}
    tensor = found["rank"] or found["number"] or ranks.get("TP", 0)
    return RankTitle(tp_rank=int(tensor), pp_rank=ranks.get("PP", 0), replica=str(ranks.get("DP", 0)))


FORMAT = LogFormat(
    title="vLLM",
    starts=(b"vLLM API server version", b"non-default args:"),
    ready=(b"Application startup complete", b"Starting vLLM API server", b"Starting vLLM server"),
    where=_where,
    first_speaks=True,  # weights, pool and graphs, by info_once in 0.32
    shapes=(
        shape("LLM engine (v", r"LLM engine \(v(?P<version>[\w.+-]{1,40})\)"),
        shape("vLLM API server version", r"vLLM API server version (?P<version>[\w.+-]{1,40})"),
        shape("Model loading took", rf"Model loading took (?P<weights_gib>{_SIZE}) GiB(?: memory)? and", versions="V1"),
        shape(
            "Available KV cache memory",
            rf"Available KV cache memory: (?P<kv_pool_gib>{_SIZE}) GiB",
            versions="0.9.1 and newer",
        ),
        shape(
            "memory for KV Cache as specified",
            rf"reserved (?P<kv_pool_gib>{_SIZE}) GiB memory for KV Cache as specified",
            versions="0.10.2 and newer, with --kv-cache-memory-bytes",
        ),
        shape(
            "Overriding num_gpu_blocks",
            r"Overriding num_gpu_blocks=\d{1,12} with num_gpu_blocks_override=(?P<override_count>\d{1,12})",
            versions="V1, with --num-gpu-blocks-override",
        ),
        shape(
            "KV cache size:",
            r"[A-Z]{1,5}(?: \+ host)? KV cache size: (?P<kv_count>[\d,]{1,20}) tokens",
            versions="V1; since 0.28 in one line with the next, since 0.30 with other devices' words",
        ),
        shape(
            "Maximum concurrency for",
            r"Maximum concurrency for [\d,]{1,20} tokens per request: (?P<concurrency_times>[\d.]{1,20})x",
        ),
        shape(
            "Graph capturing finished",
            rf"Graph capturing finished in [\d.]{{1,12}} secs, took (?P<cuda_graphs_gib>{_SIZE}) GiB",
        ),
        shape(
            "CUDA graph pool memory",
            rf"CUDA graph pool memory: (?P<cuda_graphs_gib>{_SIZE}) GiB \(actual\)",
            versions="0.18.1 and newer",
        ),
        shape(
            "GiB for peak activation",
            rf"(?:Actual usage is (?:{_SIZE} GiB for weight|(?P<consumed_gib>{_SIZE}) GiB for consumed memory"
            rf" \(weights \+ non-torch\)), )(?P<activation_peak_gib>{_SIZE}) GiB for peak activation,"
            rf"(?: (?P<non_torch_gib>{_SIZE}) GiB for non-torch memory,)?",
            versions="0.10.2 and newer; weights and non-torch memory as one since 0.28",
        ),
        shape(
            "Current kv cache memory in use is",
            rf"Current kv cache memory in use is (?:(?P<kv_pool_bytes>\d{{1,15}}) bytes|(?P<kv_pool_gib>{_SIZE}) GiB)",
            versions="in bytes 0.10.2 to 0.13, in GiB since",
        ),
        shape(
            "model weights take",
            rf"model weights take (?P<weights_gib>{_SIZE})GiB; non_torch_memory takes (?P<non_torch_gib>{_SIZE})GiB;"
            rf" PyTorch activation peak memory takes (?P<activation_peak_gib>{_SIZE})GiB;"
            rf" the rest of the memory reserved for KV Cache is (?P<kv_pool_gib>{_SIZE})GiB",
            versions="V0",
        ),
    ),
)
