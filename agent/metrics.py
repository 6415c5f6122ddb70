"""The catalogue of exported metrics: name, type, labels, meaning. Docs, exposition and tests are made from it."""

from typing import Literal

from msgspec import Struct

PREFIX = "vramscope_"
Type = Literal["gauge", "counter"]


class Metric(Struct, frozen=True, kw_only=True):
    """One metric. ``name`` is complete; ``help`` is one sentence with the unit."""

    name: str
    type: Type
    labels: tuple[str, ...]
    help: str


def _gauge(name: str, labels: str, help_text: str) -> Metric:
    return Metric(name=PREFIX + name, type="gauge", labels=tuple(labels.split()), help=help_text)


def _counter(name: str, labels: str, help_text: str) -> Metric:
    return Metric(name=PREFIX + name, type="counter", labels=tuple(labels.split()), help=help_text)


_OF_ANY_PROGRAM: tuple[tuple[str, Type, str], ...] = (  # as Prometheus' own clients name them, so without our prefix
    ("cpu_seconds_total", "counter", "CPU seconds of the agent, without its child that asks the driver."),
    ("resident_memory_bytes", "gauge", "Resident bytes of the agent, without its child that asks the driver."),
    ("start_time_seconds", "gauge", "When the agent started, seconds since the epoch."),
)

CATALOGUE: tuple[Metric, ...] = (
    _gauge("build_info", "version python", "The agent itself; always 1."),
    _gauge("device_info", "gpu uuid name driver memory_kind", "A device; always 1; join by gpu."),
    _gauge("server_info", "server engine version model url", "A server that is not down; always 1; join by server."),
    _gauge("server_device_info", "server gpu tp_rank pp_rank replica", "Which rank sits on which device; always 1."),
    _gauge(
        "server_container_info",
        "server container container_id pod namespace unit",
        "The container or unit the server runs in; always 1; join by server.",
    ),
    _gauge("server_state", "server state", "1 for the state the server is in: loading, serving, sleeping, down."),
    _gauge("memory_total_bytes", "gpu", "Total memory of the device in bytes, as the driver says."),
    _gauge("memory_free_ratio", "gpu", "Free share of the device's total memory, 0-1."),
    _gauge("headroom_ratio", "gpu", "Share of the device left for temporaries and fragmentation, 0-1."),
    _gauge("memory_bytes", "gpu server component", "Bytes of a component; those of a device sum to its total."),
    _gauge("memory_evidence_info", "gpu server component evidence", "How a component's bytes are known; always 1."),
    _gauge("memory_overattributed_bytes", "gpu server", "Bytes of named parts that did not fit and were cut."),
    _gauge("memory_unexplained_bytes", "gpu server", "Bytes of live runtime above the budget's high bound."),
    _gauge(
        "process_memory_bytes", "gpu pid name", "Bytes that a process holds on the device; only with --per-process."
    ),
    _gauge("memory_used_max_bytes", "gpu window", "Highest used bytes (total - free) within the window."),
    _gauge("memory_free_min_bytes", "gpu window", "Lowest free bytes within the window."),
    _gauge("device_lost", "gpu", "1 if the GPU was there and is lost or gone (for ten minutes), else 0."),
    _counter("device_ecc_uncorrected_total", "gpu", "Uncorrectable ECC errors since the driver was loaded."),
    _gauge("device_row_remap_pending", "gpu", "1 if a row remap waits for the GPU's next reset, else 0."),
    _gauge("device_row_remap_failure", "gpu", "1 if a row remap failed, so that the GPU needs service, else 0."),
    _counter("device_xid_errors_total", "gpu xid", "Driver errors that concern memory, since the agent's start."),
    _gauge("host_memory_total_bytes", "", "The host's memory in bytes, where a GPU shares it."),
    _gauge("host_memory_available_bytes", "", "Of that, available without swapping, in bytes."),
    _counter("host_memory_pressure_seconds_total", "kind", "Seconds in which some or all tasks waited for memory."),
    _gauge("budget_bytes", "gpu server component bound", "Predicted bytes of a component."),
    _gauge("budget_fits", "server", "1 if the pool is positive and holds one full-length request, else 0."),
    _gauge("kv_pool_bytes", "gpu server replica pool", "Bytes of the KV pool that a rank holds on the device."),
    _gauge("kv_capacity_tokens", "server replica pool", "Tokens the pool can hold; the smallest rank decides."),
    _gauge("kv_bytes_per_token", "server replica pool", "KV bytes of one further token of a request on one rank."),
    _gauge("kv_max_request_tokens", "server", "Longest request the server admits, in tokens."),
    _gauge("kv_max_request_bytes", "server", "KV bytes that one such request needs on one rank."),
    _gauge(
        "kv_tokens",
        "server replica pool state",
        "Tokens of the pool by state: used, cached, free, available or reserved.",
    ),
    _gauge("kv_used_ratio", "server replica pool", "Share of the pool held by live requests, 0-1."),
    _gauge("kv_growth_tokens_per_second", "server replica pool", "Net growth of used tokens over the last 3 minutes."),
    _gauge(
        "kv_exhaustion_seconds",
        "server replica pool bound",
        "Seconds until the pool is full, likely at its growth and early at the soonest;"
        " 0 while requests lose their place in it, and two minutes longer.",
    ),
    _gauge(
        "kv_exhaustion_probability",
        "server replica pool window",
        "Forecast probability, 0-1, that the pool runs out within the window; 1 once it has.",
    ),
    _gauge("kv_running_mean_tokens", "server replica pool", "Mean tokens of the pool that a running request holds."),
    _gauge(
        "kv_running_longest_tokens", "server replica pool", "Tokens that the longest running request holds, where told."
    ),
    _gauge(
        "kv_long_request_tokens",
        "server replica pool",
        "Tokens beyond which a request is long, as nine in ten that ended were not.",
    ),
    _gauge(
        "kv_long_requests_ratio",
        "server replica pool",
        "Share, at least, of the tokens added by running requests that is in long ones, 0-1.",
    ),
    _gauge(
        "device_exhaustion_seconds",
        "gpu bound",
        "Seconds until the device is full at the present creep of its memory; likely, and early at the soonest.",
    ),
    _gauge(
        "risk_level", "server gpu reason", "Risk: 0 ok, 1 watch, 2 at risk, 3 critical; of each reason that is not ok."
    ),
    _gauge("fragmentation_ratio", "kind gpu server replica bound", "Share of memory lost to fragmentation, 0-1."),
    _gauge(
        "transient_peak_bytes", "gpu server", "Highest bytes that temporaries of the rank have taken since its start."
    ),
    _gauge("transient_room_bytes", "gpu server", "Bytes that temporaries of the rank could take now."),
    _gauge("server_requests", "server replica state", "Requests by state: running, waiting."),
    _counter("server_preemptions_total", "server replica", "Requests preempted for want of KV since the engine began."),
    _counter("server_refusals_total", "server replica", "Requests seen to fail for want of KV, at least."),
    _counter("server_oom_events_total", "server kind", "Times that memory ran out, by its log and control group."),
    _counter("server_prompt_tokens_total", "server replica", "Prompt tokens processed since the engine began."),
    _counter("server_generation_tokens_total", "server replica", "Tokens generated since the engine began."),
    _counter("server_prefix_hit_tokens_total", "server replica", "Tokens found in the prefix cache."),
    _counter("server_prefix_query_tokens_total", "server replica", "Tokens looked up in the prefix cache."),
    _counter("server_first_tokens_total", "server replica", "Requests that have had their first token."),
    _counter("server_first_token_seconds_total", "server replica", "Seconds that these waited for it, in all."),
    _gauge("server_start_time_seconds", "server", "When the engine started, seconds since the epoch."),
    _counter("server_restarts_total", "server", "Restarts of the server seen by this agent."),
    _gauge(
        "server_upgrade_delta_bytes",
        "gpu server component from_version to_version",
        "Settled bytes of the server's present run minus those of the run before.",
    ),
    _gauge("settings_last_reload_success", "", "1 if the last reload of the settings succeeded, else 0."),
    _gauge("settings_last_reload_timestamp_seconds", "", "Last successful (re)load of the settings, since the epoch."),
    _gauge("web_config_current", "", "1 if the web config is in force as its files are now, else 0."),
    _counter("recorder_dropped_readings_total", "", "Readings that the recorder left out, since the agent's start."),
    _counter("recorder_bundles_total", "", "Recordings that were kept, since the agent's start."),
    _gauge("recording_start_timestamp_seconds", "", "In a replay only: when the recording begins, since the epoch."),
    _gauge("collector_success", "collector target", "1 if the source's last collection succeeded, else 0."),
    _gauge("collector_duration_seconds", "collector target", "How long the source's last collection took."),
    _gauge("collector_last_success_timestamp_seconds", "collector target", "Last success, seconds since the epoch."),
    _counter("collector_failures_total", "collector target reason", "Failed collections of the source by reason."),
    *(Metric(name=f"process_{name}", type=kind, labels=(), help=text) for name, kind, text in _OF_ANY_PROGRAM),
)

BY_NAME = {metric.name: metric for metric in CATALOGUE}
