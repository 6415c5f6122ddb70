"""Series of others that the dashboards draw, with their labels; a panel may ask for no others. Each has its source."""

PROMETHEUS = {
    # https://prometheus.io/docs/concepts/jobs_instances/#automatically-generated-labels-and-time-series
    "up": {"job", "instance"},
    "scrape_duration_seconds": {"job", "instance"},
    "scrape_samples_scraped": {"job", "instance"},
    # https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/#inspecting-alerts-during-runtime
    "ALERTS": {"job", "instance", "alertname", "alertstate", "severity", "gpu", "server"},
}

ENGINES = {
    # vLLM 0.6.6 and newer: vllm/v1/metrics/loggers.py
    "vllm:time_to_first_token_seconds_bucket": {"job", "instance", "model_name", "engine", "le"},
    # SGLang 0.4.6 and newer: python/sglang/srt/metrics/collector.py
    "sglang:time_to_first_token_seconds_bucket": {"job", "instance", "model_name", "le"},
    # LMDeploy 0.9.2 and newer: lmdeploy/metrics/loggers.py
    "lmdeploy:time_to_first_token_seconds_bucket": {"job", "instance", "model_name", "engine", "le"},
    # TensorRT-LLM 1.3 and newer: tensorrt_llm/metrics/collector.py; its model_name says nothing
    "trtllm_time_to_first_token_seconds_bucket": {"job", "instance", "model_name", "engine_type", "le"},
}
