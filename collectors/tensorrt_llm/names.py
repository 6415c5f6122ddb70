"""Which exposed series carries which fact, over TensorRT-LLM 1.1 to 1.3. The newest name first.

Up to 1.2 names had no prefix, and there were none of the cache. Source: NVIDIA/TensorRT-LLM
``tensorrt_llm/metrics/collector.py``.
"""

from collectors.series import Names

NAMES: Names = {
    "used_ratio": ("trtllm_kv_cache_utilization",),
    "blocks": ("trtllm_kv_cache_max_blocks",),
    "free_blocks": ("trtllm_kv_cache_free_blocks",),
    "used_blocks": ("trtllm_kv_cache_used_blocks",),
    "block_size": ("trtllm_kv_cache_tokens_per_block",),
    "host_ratio": ("trtllm_kv_cache_host_utilization",),
    "running": ("trtllm_num_requests_running",),
    "waiting": ("trtllm_num_requests_waiting",),
    "prompt_tokens": ("trtllm_prompt_tokens_total",),
    "generation_tokens": ("trtllm_generation_tokens_total",),
    "cached_tokens": ("trtllm_prompt_cached_tokens_total",),
    "first_tokens": ("trtllm_time_to_first_token_seconds_count", "time_to_first_token_seconds_count"),
    "first_token_seconds": ("trtllm_time_to_first_token_seconds_sum", "time_to_first_token_seconds_sum"),
}

# One of these moves whenever a request ends, which is when all others are written.
ENDED = ("trtllm_request_success_total", "trtllm_num_requests_completed_total", "request_success_total")
