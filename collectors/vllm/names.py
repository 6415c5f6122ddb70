"""Which exposed series carries which fact, over vLLM 0.6 to 0.33. Newest name first: the first one present counts."""

from typing import Literal

from collectors.readings import Tier

Field = Literal[
    "used_ratio",
    "running",
    "waiting",
    "preemptions",
    "prompt_tokens",
    "generation_tokens",
    "finished",
    "finished_prompt_tokens",
    "finished_generation_tokens",
    "prefix_queries",
    "prefix_hits",
    "prefix_queries_old",
    "prefix_hits_old",
    "first_tokens",
    "first_token_seconds",
    "multimodal_queries",
    "multimodal_hits",
    "swap_ratio",
    "offload_ratio",
    "simple_offload_blocks",
    "hisparse_ratio",
    "created_at",
]

# ``prefix_*_old`` counts blocks in 0.8 and tokens from 0.9 on, so the version has to be known before it is used.
NAMES: dict[Field, tuple[str, ...]] = {
    "used_ratio": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    "running": ("num_requests_running",),
    "waiting": ("num_requests_waiting",),
    "preemptions": ("num_preemptions_total",),
    "prompt_tokens": ("prompt_tokens_total",),
    "generation_tokens": ("generation_tokens_total",),
    "finished": ("request_generation_tokens_count",),
    "finished_prompt_tokens": ("request_prompt_tokens_sum",),
    "finished_generation_tokens": ("request_generation_tokens_sum",),
    "prefix_queries": ("prefix_cache_queries_total",),
    "prefix_hits": ("prefix_cache_hits_total",),
    "prefix_queries_old": ("gpu_prefix_cache_queries_total",),
    "prefix_hits_old": ("gpu_prefix_cache_hits_total",),
    "first_tokens": ("time_to_first_token_seconds_count",),
    "first_token_seconds": ("time_to_first_token_seconds_sum",),
    "multimodal_queries": ("mm_cache_queries_total",),
    "multimodal_hits": ("mm_cache_hits_total",),
    "swap_ratio": ("cpu_cache_usage_perc",),
    "offload_ratio": ("kv_offload_cpu_cache_usage_perc",),
    "simple_offload_blocks": ("simple_kv_offload_used_blocks",),
    "hisparse_ratio": ("hisparse_host_cache_usage_perc",),
    "created_at": ("prompt_tokens_created",),
}

PREFIX_TOKENS_SINCE = (0, 9)

CACHE_CONFIG = "cache_config_info"
SLEEP_STATE = "engine_sleep_state"
OFFLOAD_CONFIG = "kv_offload_config_info"  # since 0.33, from the first step on
SIMPLE_OFFLOAD_CONFIG = "simple_kv_offload_info"
ADAPTERS = "lora_requests_info"  # names no engine; of several label sets the newest is the live one, its value a time
V0_ONLY = "num_requests_swapped"  # the engine up to 0.9 could swap requests out; only its pages have this

# Ray Serve re-exports the series under its own prefix; with a colon until 0.10, with an underscore after.
PREFIXES = ("vllm:", "ray_vllm:", "ray_vllm_")

PROCESS_START = "process_start_time_seconds"

# LMCache exports from within vLLM: bytes that a worker keeps, by tier.
LMCACHE: dict[str, Tier] = {
    "lmcache:local_cache_usage": "host",
    "lmcache:local_storage_usage": "disk",
    "lmcache:remote_cache_usage": "remote",
}
