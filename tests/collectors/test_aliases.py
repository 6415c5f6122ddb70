"""Every series that is known of an engine is read, or left out for a reason; those of vLLM beside its own tests."""

import csv
from collections.abc import Collection

import pytest

from collectors.dynamo_trtllm.reader import OWN_NAMES as DYNAMO
from collectors.llama_cpp.answers import NAMES as LLAMA_CPP
from collectors.lmdeploy import reader as lmdeploy
from collectors.sglang.page import FULL_NAMES as SGLANG
from collectors.tensorrt_llm.page import SERIES as TENSORRT_LLM
from collectors.tgi import reader as tgi
from collectors.triton.reader import SERIES as TRITON
from collectors.vllm.names import LMCACHE
from collectors.vllm.names import PREFIXES as VLLM_PREFIXES
from tests.collectors.replay import FIXTURES

READ: dict[str, Collection[str]] = {
    "sglang": SGLANG,
    "llama.cpp": [f"llamacpp:{name}" for name in LLAMA_CPP.values()],
    "ollama": ("/api/ps models[].size", "/api/ps models[].size_vram", "/api/ps models[].context_length"),
    "trtllm": TENSORRT_LLM.full_names,
    "triton": TRITON.full_names,
    "tgi": tgi.SERIES.full_names,
    "lmdeploy": lmdeploy.SERIES.full_names,
    "dynamo": [name for names in DYNAMO.values() for name in names],
    "vllm-ray": [f"{prefix}<name>" for prefix in VLLM_PREFIXES],
    "lmcache": LMCACHE,
    "mooncake": (),
}

# What is read of no release, and why; a star stands for every name that starts so.
IGNORED: dict[str, dict[str, str]] = {
    "sglang": {
        "sglang:startup_available_gpu_memory_gb": "of the device, before the start; the driver tells it",
        "sglang:swa_token_usage": "a ratio of counts that are read",
        "sglang:mamba_usage": "a ratio of counts that are read",
        "sglang:num_grammar_queue_reqs": "wait for a grammar, not for memory",
        "sglang:num_paused_reqs": "paused by an operator's call",
        "sglang:num_retracted_reqs": "those of one step; the counter is read",
        "sglang:num_retracted_input_tokens_total": "tokens of the requests that are counted",
        "sglang:num_retracted_output_tokens_total": "tokens of the requests that are counted",
        "sglang:num_retractions": "per finished request",
        "sglang:num_aborted_requests_total": "for any reason",
        "sglang:evicted_tokens_total": "up to 0.5.20 summed over tensor ranks",
        "sglang:eviction_duration_seconds": "latency",
        "sglang:load_back_*": "traffic from the host tier",
        "sglang:hicache_*": "traffic to the host tier; what it holds is read",
        "sglang:prefetched_tokens_total": "storage tier",
        "sglang:backuped_tokens_total": "storage tier",
        "sglang:cache_hit_rate": "of one batch; the counters say it better",
        "sglang:gen_throughput": "a rate of counters that are read",
        "sglang:decode_sum_seq_lens": "of one batch",
        "sglang:utilization": "load, not memory",
        "sglang:new_token_ratio": "a scheduler's estimate",
        "sglang:fwd_occupancy": "load, not memory",
        "sglang:inter_token_latency_seconds": "latency",
        "sglang:request_time_per_output_token_seconds": "latency",
        "sglang:e2e_request_latency_seconds": "latency",
        "sglang:queue_time_seconds": "latency",
        "sglang:avg_request_queue_latency": "latency",
        "sglang:prompt_tokens_histogram": "per finished request",
        "sglang:generation_tokens_histogram": "per finished request",
        "sglang:num_prefill_*": "queues of a prefill server's transfers",
        "sglang:num_decode_*": "queues of a decode server's transfers",
        "sglang:pending_prealloc_token_usage": "of a decode server's transfers",
        "sglang:num_transfer_failed_reqs_total": "transfer",
        "sglang:kv_transfer_*": "transfer",
        "sglang:streaming_session_held_tokens": "what is neither used, cached nor free",
        "sglang:num_streaming_sessions": "says nothing about memory",
        "sglang:lora_pool_utilization": "a ratio of counts that are read",
        "sglang:is_cuda_graph": "of one batch",
        "sglang:startup_time_seconds": "latency",
        "sglang:engine_startup_time": "latency",
        "sglang:routing_key_*": "says nothing about memory",
        "sglang:eplb_balancedness": "load, not memory",
        "sglang:http_requests_*": "the HTTP server's",
        "sglang:get_loads_duration_seconds": "latency",
        "sglang:func_latency_seconds": "latency",
        "sglang:max_running_requests_under_SLO": "a limit that operators set",
        "sglang:encoder_cache_size_mb": "of an encoder's server",
        "sglang:spec_*": "says nothing about memory",
        "sglang_*": "of another page, of the load endpoint, with the same facts",
    },
    "llama.cpp": {
        "llamacpp:prompt_seconds_total": "latency",
        "llamacpp:tokens_predicted_seconds_total": "latency",
        "llamacpp:n_decode_total": "says nothing about memory",
        "llamacpp:n_tokens_max": "the longest request so far",
        "llamacpp:n_busy_slots_per_decode": "an average",
        "llamacpp:prompt_tokens_seconds": "an average that begins anew with every scrape",
        "llamacpp:predicted_tokens_seconds": "an average that begins anew with every scrape",
        "llamacpp:kv_cache_usage_ratio": "until mid 2025; counts idle slots' prompts as used",
        "llamacpp:kv_cache_tokens": "until mid 2025; counts idle slots' prompts as used",
        "llamacpp:spec_decode_*": "says nothing about memory",
    },
    "ollama": {"/api/ps models[].expires_at": "when it will unload says nothing about now"},
    "trtllm": {
        "/metrics JSON: *": "each look takes the records away from others",
        "request_queue_time_seconds": "latency",
        "e2e_request_latency_seconds": "latency",
        "time_per_output_token_seconds": "latency",
        "trtllm_request_queue_time_seconds": "latency",
        "trtllm_e2e_request_latency_seconds": "latency",
        "trtllm_time_per_output_token_seconds": "latency",
        "trtllm_iteration_latency_seconds": "latency",
        "trtllm_kv_cache_hit_rate": "cumulative from the warm-up on; the counters say it better",
        "trtllm_kv_cache_iter_*": "of one iteration",
        "trtllm_kv_cache_reused_blocks_total": "in blocks; tokens are read",
        "trtllm_kv_cache_missed_blocks_total": "in blocks; tokens are read",
        "trtllm_kv_cache_gen_alloc_blocks_total": "blocks handed out, not those held",
        "trtllm_kv_cache_onboard_bytes_total": "transfer",
        "trtllm_kv_cache_offload_bytes_total": "transfer",
        "trtllm_kv_cache_intra_device_copy_bytes_total": "transfer",
        "trtllm_prompt_cache_hit_tokens_total": "a split of prompt_cached_tokens_total by tier",
        "trtllm_gpu_memory_usage_bytes": "of the whole device, neighbours included; the driver tells it by process",
        "trtllm_cpu_memory_usage_bytes": "host memory",
        "trtllm_pinned_memory_usage_bytes": "host memory",
        "trtllm_max_*": "limits",
        "trtllm_num_context_requests": "a split of those that run",
        "trtllm_num_generation_requests": "a split of those that run",
        "trtllm_num_scheduled_requests": "a split of those that run",
        "trtllm_num_paused_requests": "how many are paused, not how often: no counter of preemptions",
        "trtllm_total_context_tokens": "of one iteration",
        "trtllm_request_error_total": "says nothing about memory",
        "trtllm_model_config_info": "what its command line says",
        "trtllm_parallel_config_info": "what its command line says",
        "trtllm_speculative_config_info": "what its command line says",
        "trtllm_kv_cache_config_info": "what its command line says",
    },
    "triton": {
        "nv_trt_llm_runtime_memory_metrics": "small buffers, of the runtime's share",
        "nv_trt_llm_inflight_batcher_metrics": "of one iteration",
        "nv_gpu_*": "of the whole device; the driver tells it",
        "nv_pinned_memory_pool_used_bytes": "host memory",
        "nv_inference_pending_request_count": "counts a request for each step of an ensemble",
        "nv_inference_request_*": "says nothing about memory",
        "nv_inference_count": "says nothing about memory",
        "nv_inference_exec_count": "says nothing about memory",
        "nv_inference_queue_duration_us": "latency",
        "nv_inference_compute_infer_duration_us": "latency",
        "nv_cache_num_hits_per_model": "a cache of answers, not of KV",
    },
    "tgi": {
        "tgi_request_success": "says nothing about memory",
        "tgi_request_failure": "for any reason",
        "tgi_batch_inference_*": "batches, not memory",
        "tgi_batch_concat*": "batches, not memory",
        "tgi_batch_next_size": "a histogram of 1,024 buckets",
        "tgi_batch_forward_duration": "latency",
        "tgi_batch_decode_duration": "latency",
        "tgi_batch_filter_duration": "latency",
        "tgi_request_max_new_tokens": "what was asked for, not what is held",
        "tgi_request_skipped_tokens": "says nothing about memory",
        "tgi_request_duration": "latency",
        "tgi_request_queue_duration": "latency",
        "tgi_request_inference_duration": "latency",
        "tgi_request_validation_duration": "latency",
        "tgi_request_mean_time_per_token_duration": "latency",
    },
    "lmdeploy": {
        "lmdeploy:prefix_cache_hit_rate": "the counters say it better",
        "lmdeploy:num_api_requests_*": "of the HTTP server, before the engine",
        "lmdeploy:num_requests_succeeded": "says nothing about memory",
        "lmdeploy:num_requests_failed": "for any reason",
        "lmdeploy:num_requests_finished": "says nothing about memory",
        "lmdeploy:num_requests_completed": "says nothing about memory",
        "lmdeploy:num_requests_unfinished": "of the HTTP server; running and waiting are read",
        "lmdeploy:request_*": "per finished request",
        "lmdeploy:iteration_tokens_total": "a histogram in spite of its name",
        "lmdeploy:time_per_output_token_seconds": "latency",
        "lmdeploy:e2e_request_latency_seconds": "latency",
        "lmdeploy:iter_token_latency": "latency",
        "lmdeploy:spec_decode_*": "says nothing about memory",
    },
    "dynamo": {
        "dynamo_component_kv_cache_hit_rate": "a rate of counters that are read",
        "dynamo_component_kvstats_gpu_prefix_cache_hit_rate": "a rate of counters that are read",
        "dynamo_frontend_*": "the router's view of all workers; each worker is read itself",
        "kvbm_*": "transfer between tiers",
    },
    "vllm-ray": {},
    "lmcache": {"lmcache:*": "traffic and hits of its tiers; what they hold is read"},
    "mooncake": {"master_*": "a store outside the engine", "segment_*": "a store outside the engine"},
}

UNLISTED = {"vllm-ray": ["vllm:<name>"]}


def series(engine: str) -> list[str]:
    with (FIXTURES / "engine_series.csv").open(newline="", encoding="utf-8") as file:
        return [row["metric"] for row in csv.DictReader(file) if row["engine"] == engine]


def ignored_by(engine: str, metric: str) -> list[str]:
    stars = [name for name in IGNORED[engine] if name.endswith("*") and metric.startswith(name[:-1])]
    return [*(name for name in IGNORED[engine] if name == metric), *stars]


def test_the_list_is_of_these_engines() -> None:
    """None is forgotten."""
    with (FIXTURES / "engine_series.csv").open(newline="", encoding="utf-8") as file:
        listed = {row["engine"] for row in csv.DictReader(file)}

    assert listed == READ.keys() == IGNORED.keys()


@pytest.mark.parametrize("engine", READ)
def test_every_known_series_is_read_or_left_out_for_a_reason(engine: str) -> None:
    """None is forgotten or both read and ignored; nothing is read that is not known, and no reason is left over."""
    known = series(engine)
    names = {name if name in known else name.removesuffix("_sum").removesuffix("_count") for name in READ[engine]}

    assert [metric for metric in known if metric not in names and not ignored_by(engine, metric)] == []
    assert [metric for metric in known if metric in names and metric in IGNORED[engine]] == []
    assert sorted(names - set(known)) == UNLISTED.get(engine, [])
    assert [name for name in IGNORED[engine] if not any(name in ignored_by(engine, metric) for metric in known)] == []
