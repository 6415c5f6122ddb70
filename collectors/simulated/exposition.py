"""The exposition of a simulated engine: series, labels and shape of vLLM 0.32, made by the library vLLM itself uses."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from collectors.simulated.engine import Engine, Histogram
from collectors.simulated.sizing import blocks_of
from collectors.simulated.story import Server

_LABELS = ("engine", "model_name")
_REASONS = ("stop", "length", "abort", "error", "repetition")
_CACHE_CONFIG = {
    "_block_size_resolved": "True",
    "cache_dtype": "auto",
    "cache_hit_alignment_tokens": "None",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "enable_prefix_caching": "True",
    "hash_block_size": "None",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_cache_layout": "None",
    "kv_cache_memory_bytes": "None",
    "kv_offloading_backend": "native",
    "kv_offloading_size": "None",
    "kv_sharing_fast_prefill": "False",
    "mamba_block_size": "None",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_page_size_padded": "None",
    "mamba_ssm_cache_dtype": "float32",
    "num_cpu_blocks": "None",
    "num_gpu_blocks_override": "None",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": "None",
    "replayssm_buffer_len": "16",
    "skip_page_size_padded": "None",
    "sliding_window": "None",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
    "user_specified_block_size": "False",
}


class Exposition(Struct, frozen=True, kw_only=True):
    """One scrape: the engine as it stands, and when it and its API process began (wall clock, seconds)."""

    server: Server
    engine: Engine
    process_started_at: float
    created_at: float

    def text(self) -> str:
        """Prometheus text format."""
        return generate_latest(_Families(self)).decode()

    def families(self) -> Iterator[Metric]:
        """All metric families in the order of vLLM's own page."""
        counters, engine = self.engine.counters, self.engine
        started = GaugeMetricFamily(
            "process_start_time_seconds", "Start time of the process since unix epoch in seconds."
        )
        started.add_metric([], self.process_started_at)
        yield started
        yield self._gauge("num_requests_running", len(engine.running))
        yield self._gauge("num_requests_waiting", len(engine.waiting))
        yield self._gauges("num_requests_waiting_by_reason", "reason", {"capacity": len(engine.waiting), "deferred": 0})
        awake = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
        yield self._gauges("engine_sleep_state", "sleep_state", awake)
        yield self._gauge("kv_cache_usage_perc", engine.usage)
        yield self._counter("prefix_cache_queries", counters.prefix_queries)
        yield self._counter("prefix_cache_hits", 0)
        yield self._counter("num_preemptions", counters.preemptions)
        yield self._counter("prompt_tokens", counters.prompt_tokens)
        yield self._counter("generation_tokens", counters.generation_tokens)
        finished = {reason: counters.finished if reason == "stop" else 0 for reason in _REASONS}
        yield self._counters("request_success", "finished_reason", finished)
        yield self._histogram("request_prompt_tokens", counters.request_prompt_tokens)
        yield self._histogram("request_generation_tokens", counters.request_generation_tokens)
        yield self._histogram("iteration_tokens_total", counters.iteration_tokens)
        yield self._histogram("time_to_first_token_seconds", counters.time_to_first_token)
        yield self._histogram("e2e_request_latency_seconds", counters.latency)
        yield self._histogram("request_queue_time_seconds", counters.queue_time)
        yield self._histogram("request_num_preemptions", counters.request_preemptions)
        yield self._cache_config()

    @property
    def _common(self) -> list[str]:
        return ["0", self.server.model.name]

    def _gauge(self, name: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", _help(name), labels=_LABELS)
        family.add_metric(self._common, value)
        return family

    def _gauges(self, name: str, label: str, values: dict[str, int]) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", _help(name), labels=(*_LABELS, label))
        for key, value in values.items():
            family.add_metric([*self._common, key], value)
        return family

    def _counter(self, name: str, value: int) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", _help(name), labels=_LABELS)
        family.add_metric(self._common, value, created=self.created_at)
        return family

    def _counters(self, name: str, label: str, values: dict[str, int]) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", _help(name), labels=(*_LABELS, label))
        for key, value in values.items():
            family.add_metric([*self._common, key], value, created=self.created_at)
        return family

    def _histogram(self, name: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(f"vllm:{name}", _help(name), labels=_LABELS)
        total, buckets = 0, []
        for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
            total += count
            buckets.append((str(bound), float(total)))
        family.add_metric(self._common, buckets, histogram.sum)
        family.add_sample(f"vllm:{name}_created", dict(zip(_LABELS, self._common, strict=True)), self.created_at)
        return family

    def _cache_config(self) -> Metric:
        engine, arguments = self.engine, self.server.arguments
        concurrency = engine.blocks / blocks_of(engine.max_model_len, engine.block_size)
        labels = _CACHE_CONFIG | {
            "engine": "0",
            "block_size": str(engine.block_size),
            "effective_attention_block_size": str(engine.block_size),
            "gpu_memory_utilization": str(arguments.gpu_memory_utilization),
            "kv_cache_max_concurrency": str(concurrency),
            "kv_cache_size_tokens": str(int(concurrency * engine.max_model_len)),
            "num_gpu_blocks": str(engine.blocks),
        }
        family = GaugeMetricFamily("vllm:cache_config_info", _help("cache_config_info"), labels=tuple(labels))
        family.add_metric(tuple(labels.values()), 1)
        return family


class _Families(Collector):
    def __init__(self, exposition: Exposition) -> None:
        self._exposition = exposition

    def collect(self) -> Iterator[Metric]:
        return self._exposition.families()


def models(server: Server, created_at: float) -> dict[str, Any]:
    """What /v1/models answers."""
    card = {
        "id": server.model.name,
        "object": "model",
        "created": int(created_at),
        "owned_by": "vllm",
        "root": server.model.name,
        "parent": None,
        "max_model_len": server.arguments.max_model_len,
    }
    return {"object": "list", "data": [card]}


def _help(name: str) -> str:
    return f"{name.replace('_', ' ')} of the simulated engine."
