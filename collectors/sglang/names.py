"""Which exposed series carries which fact, over SGLang 0.4.6 to 0.5.23. Newest name first: the first present counts.

All names have the prefix ``sglang:``. What its names and messages call GB is GiB.
"""

from typing import Literal

PREFIX = "sglang:"

Field = Literal[
    "capacity",
    "used",
    "cached",
    "free",
    "used_ratio",
    "page_size",
    "pages",
    "window_capacity",
    "window_used",
    "window_cached",
    "window_free",
    "state_used",
    "state_cached",
    "state_free",
    "context",
    "running",
    "waiting",
    "retracted",
    "weights_gib",
    "pool_gib",
    "host_used",
    "host_capacity",
    "host_states_used",
    "host_states",
    "adapters_used",
    "adapters",
]

# Gauges and counters of a scheduler: one of each rank that reports.
NAMES: dict[Field, tuple[str, ...]] = {
    "capacity": ("max_total_num_tokens",),
    "used": ("kv_used_tokens", "num_used_tokens"),
    "cached": ("kv_evictable_tokens",),
    "free": ("kv_available_tokens",),
    "used_ratio": ("full_token_usage", "token_usage"),
    "page_size": ("page_size",),
    "pages": ("num_pages",),
    "window_capacity": ("max_total_num_tokens_swa",),
    "window_used": ("swa_used_tokens",),
    "window_cached": ("swa_evictable_tokens",),
    "window_free": ("swa_available_tokens",),
    "state_used": ("mamba_used_tokens",),
    "state_cached": ("mamba_evictable_tokens",),
    "state_free": ("mamba_available_tokens",),
    "context": ("context_len",),
    "running": ("num_running_reqs",),
    "waiting": ("num_queue_reqs",),
    "retracted": ("num_retracted_requests_total", "total_retracted_reqs"),
    "weights_gib": ("weight_memory_usage_gb",),
    "pool_gib": ("kv_cache_memory_usage_gb",),
    "host_used": ("hicache_host_used_tokens",),
    "host_capacity": ("hicache_host_total_tokens",),
    "host_states_used": ("hicache_host_mamba_used_states",),
    "host_states": ("hicache_host_mamba_total_states",),
    "adapters_used": ("lora_pool_slots_used",),
    "adapters": ("lora_pool_slots_total",),
}

RequestField = Literal[
    "prompt_tokens", "generation_tokens", "cached_tokens", "finished", "first_tokens", "first_token_seconds"
]

# Of the process that takes requests: they name no replica, and tokens are counted when a request ends.
REQUEST_NAMES: dict[RequestField, str] = {
    "prompt_tokens": "prompt_tokens_total",
    "generation_tokens": "generation_tokens_total",
    "cached_tokens": "cached_tokens_total",
    "finished": "num_requests_total",
    "first_tokens": "time_to_first_token_seconds_count",
    "first_token_seconds": "time_to_first_token_seconds_sum",
}

# Tokens as they are computed, by ``mode``; since 0.5.8.
LIVE_TOKENS = "realtime_tokens_total"
LiveField = Literal["computed", "cached", "decoded"]
LIVE_MODES: dict[str, LiveField] = {"prefill_compute": "computed", "prefill_cache": "cached", "decode": "decoded"}

GRAPHS = "graph_memory_usage_gb"  # one sample for each phase
PAGES_INFO = "cache_config_info"  # 0.5.9 to 0.5.10: pages and their size are labels
