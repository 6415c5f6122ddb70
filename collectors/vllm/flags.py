"""The flags of ``vllm serve`` that say something about memory, parallelism or where it answers, vLLM 0.6 to 0.33.

All other flags are read over; of those it matters only whether a value follows. Source: vllm-project/vllm,
``engine/arg_utils.py``, ``entrypoints/openai/cli_args.py`` and the parser that 0.32 builds.
"""

from typing import Literal

Kind = Literal["whole", "size", "number", "text", "object", "switch", "first", "several"]

KINDS: dict[str, Kind] = {
    # which model, and where it answers
    "model": "text",
    "revision": "text",
    "download-dir": "text",
    "served-model-name": "first",
    "host": "text",
    "port": "whole",
    "uds": "text",
    "ssl-certfile": "text",
    "headless": "switch",
    "grpc": "switch",
    # parallelism
    "tensor-parallel-size": "whole",
    "pipeline-parallel-size": "whole",
    "data-parallel-size": "whole",
    "data-parallel-size-local": "whole",
    "data-parallel-rank": "whole",
    "data-parallel-start-rank": "whole",
    "data-parallel-backend": "text",
    "data-parallel-external-lb": "switch",
    "data-parallel-hybrid-lb": "switch",
    "data-parallel-multi-port-external-lb": "switch",
    "decode-context-parallel-size": "whole",
    "prefill-context-parallel-size": "whole",
    "enable-expert-parallel": "switch",
    "api-server-count": "whole",
    "nnodes": "whole",
    "node-rank": "whole",
    "distributed-executor-backend": "text",
    "disable-custom-all-reduce": "switch",
    "enable-eplb": "switch",
    "eplb-config": "object",
    "enable-dbo": "switch",
    # weights
    "dtype": "text",
    "quantization": "text",
    "load-format": "text",
    "runner": "text",
    "convert": "text",
    "task": "text",
    "hf-overrides": "object",
    "cpu-offload-gb": "number",
    "language-model-only": "switch",
    "speculative-config": "object",
    "speculative-model": "text",
    "num-speculative-tokens": "whole",
    "spec-method": "text",
    "spec-model": "text",
    "spec-tokens": "whole",
    "enable-lora": "switch",
    "max-loras": "whole",
    "max-lora-rank": "whole",
    "lora-dtype": "text",
    "fully-sharded-loras": "switch",
    "enable-sleep-mode": "switch",
    # KV cache
    "gpu-memory-utilization": "number",
    "kv-cache-memory-bytes": "size",
    "kv-cache-dtype": "text",
    "block-size": "whole",
    "num-gpu-blocks-override": "whole",
    "max-model-len": "size",
    "enable-prefix-caching": "switch",
    "disable-hybrid-kv-cache-manager": "switch",
    "disable-sliding-window": "switch",
    "kv-sharing-fast-prefill": "switch",
    "swap-space": "number",
    "kv-offloading-size": "number",
    "kv-transfer-config": "object",
    "mamba-cache-dtype": "text",
    "mamba-ssm-cache-dtype": "text",
    "mamba-cache-mode": "text",
    "mamba-block-size": "whole",
    # temporaries
    "max-num-batched-tokens": "size",
    "max-num-seqs": "whole",
    "enable-chunked-prefill": "switch",
    "async-scheduling": "switch",
    "enforce-eager": "switch",
    "optimization-level": "whole",
    "compilation-config": "object",
    "cudagraph-capture-sizes": "several",
    "max-cudagraph-capture-size": "whole",
    "max-seq-len-to-capture": "whole",
    "limit-mm-per-prompt": "object",
    "skip-mm-profiling": "switch",
    "attention-backend": "text",
    # what it reports
    "disable-log-stats": "switch",
}

ALIASES = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "dpl": "data-parallel-size-local",
    "dpn": "data-parallel-rank",
    "dpr": "data-parallel-start-rank",
    "dpb": "data-parallel-backend",
    "dpe": "data-parallel-external-lb",
    "dph": "data-parallel-hybrid-lb",
    "dpm": "data-parallel-multi-port-external-lb",
    "dcp": "decode-context-parallel-size",
    "pcp": "prefill-context-parallel-size",
    "ep": "enable-expert-parallel",
    "asc": "api-server-count",
    "n": "nnodes",
    "r": "node-rank",
    "q": "quantization",
    "sc": "speculative-config",
    "cc": "compilation-config",
    "device-memory-utilization": "gpu-memory-utilization",
    "kv-cache-memory": "kv-cache-memory-bytes",
    "cuda-graph-sizes": "cudagraph-capture-sizes",
}

# Flags without a value that say nothing about memory: a model may stand right behind one.
OTHER_SWITCHES = frozenset(
    """
    trust-remote-code trust-request-chat-template trust-request-mm-kwargs return-tokens-as-token-ids
    enable-auto-tool-choice exclude-tools-when-tool-choice-none enable-prompt-tokens-details enable-per-request-metrics
    enable-server-load-tracking enable-force-include-usage enable-tokenizer-info-endpoint enable-log-outputs
    enable-log-deltas enable-log-requests disable-log-requests log-error-stack tokens-only enable-scale-out
    disable-uvicorn-access-log allow-credentials enable-ssl-refresh enable-request-id-headers disable-fastapi-docs
    enable-offline-docs enable-flash-late-interaction allow-deprecated-quantization enable-return-routed-experts
    disable-cascade-attn skip-tokenizer-init enable-prompt-embeds enable-cumem-allocator use-tqdm-on-load numa-bind
    enable-batch-sharded-sampling enable-ep-weight-filter enable-elastic-ep disable-nccl-for-dp-synchronization
    ray-workers-use-nsight enable-mm-embeds mm-encoder-only interleave-mm-strings enable-tower-connector-lora
    kv-cache-metrics cudagraph-metrics enable-layerwise-nvtx-tracing enable-mfu-metrics disable-chunked-mm-input
    enable-logging-iteration-details scheduler-reserve-full-isl enable-flashinfer-autotune aggregate-engine-logging
    disable-frontend-multiprocessing enable-reasoning use-v2-block-manager disable-async-output-proc calculate-kv-scales
    disable-mm-preprocessor-cache multi-step-stream-outputs enable-prompt-adapter worker-use-ray enable-lora-bias
    """.split()  # noqa: SIM905 - a table of words
)
