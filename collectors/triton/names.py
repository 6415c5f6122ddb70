"""Which sample of Triton's page carries which fact: the backend puts several units under one name, told by a label.

Source: triton-inference-server/tensorrtllm_backend ``README.md``, core ``metric_model_reporter.cc``.
"""

from collectors.series import Names

_BLOCKS, _REQUESTS, _GENERAL = (
    "nv_trt_llm_kv_cache_block_metrics",
    "nv_trt_llm_request_metrics",
    "nv_trt_llm_general_metrics",
)
_FIRST = "nv_inference_first_response_histogram_ms"

# The fraction among the blocks is not read: it does not follow from used and max of the same page.
NAMES: Names = {
    "blocks": ((_BLOCKS, "kv_cache_block_type", "max"),),
    "used_blocks": ((_BLOCKS, "kv_cache_block_type", "used"),),
    "free_blocks": ((_BLOCKS, "kv_cache_block_type", "free"),),
    "block_size": ((_BLOCKS, "kv_cache_block_type", "tokens_per"),),
    "running": ((_REQUESTS, "request_type", "active"),),
    "waiting": ((_REQUESTS, "request_type", "waiting"),),
    "iteration": ((_GENERAL, "general_type", "iteration_counter"),),
    "first_tokens": (f"{_FIRST}_count",),
    "first_token_milliseconds": (f"{_FIRST}_sum",),
}
