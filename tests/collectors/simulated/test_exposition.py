"""What a simulated engine says about itself: the shape of a recorded vLLM 0.32, and numbers that agree with it."""

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from collectors.model_files import read_model
from collectors.simulated.scenario import load_scenario
from collectors.simulated.simulation import Simulation, write_model

RECORDED = Path(__file__).parents[2] / "fixtures" / "vllm" / "recorded-0.32.0-llama" / "metrics_preempting.txt"
SERVER = "reasoner"


def page(seconds: float) -> str:
    simulation = Simulation(load_scenario("reasoning"))
    simulation.advance(seconds)
    text = simulation.metrics_text(SERVER)
    assert text is not None
    return text


def samples(text: str) -> dict[str, float]:
    """Value by series, without the labels that all series share."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key not in ("engine", "model_name")}
            found[sample.name + (json.dumps(labels) if labels else "")] = sample.value
    return found


def shapes(text: str) -> set[tuple[str, tuple[str, ...]]]:
    """Name and label names of every series, buckets aside (their bounds depend on the model's length)."""
    found = set()
    for line in text.splitlines():
        name, _, labels = line.partition("{")
        if labels and not name.startswith("#") and not name.endswith("_bucket"):
            found.add((name, tuple(re.findall(r'(\w+)="', labels))))
    return found


def types(text: str) -> set[str]:
    return {line for line in text.splitlines() if line.startswith("# TYPE vllm:")}


def test_series_and_labels_are_those_of_a_recorded_server() -> None:
    """Every series a simulated engine shows exists in the recording, with the same type and the same labels."""
    recorded = RECORDED.read_text(encoding="utf-8")

    shown = page(200)

    assert shapes(shown) - shapes(recorded) == set()
    assert types(shown) - types(recorded) == set()
    assert "vllm:cache_config_info" in {name for name, _ in shapes(shown)}


def test_cache_config_states_the_pool() -> None:
    """Blocks, block size, and tokens as the engine counts them: concurrency at full length times that length."""
    (line,) = [line for line in page(200).splitlines() if line.startswith("vllm:cache_config_info{")]
    labels = dict(re.findall(r'(\w+)="([^"]*)"', line))

    assert (labels["num_gpu_blocks"], labels["block_size"], labels["cache_dtype"]) == ("7702", "16", "auto")
    assert (labels["gpu_memory_utilization"], labels["kv_cache_memory_bytes"]) == ("0.4", "None")
    assert float(labels["kv_cache_max_concurrency"]) == 7702 / 7168  # ceil(114688 / 16) blocks for one request
    assert labels["kv_cache_size_tokens"] == "123232"


def test_numbers_agree_with_the_engine() -> None:
    """Gauges are the scheduler's own state, histograms count what finished, `_created` is when serving began."""
    simulation = Simulation(load_scenario("reasoning"), stamp=lambda seconds: 1000.0 + seconds)
    simulation.advance(850)
    engine = simulation.life(SERVER).engine
    assert engine is not None

    shown = samples(simulation.metrics_text(SERVER) or "")

    assert shown["vllm:kv_cache_usage_perc"] == 1 - (7701 - engine.used_blocks) / 7701
    assert shown["vllm:num_requests_running"] == len(engine.running) > 0
    assert shown["vllm:num_requests_waiting"] == len(engine.waiting) > 0
    assert shown['vllm:num_requests_waiting_by_reason{"reason": "capacity"}'] == len(engine.waiting)
    assert shown["vllm:num_preemptions_total"] == engine.counters.preemptions > 0
    assert shown["vllm:request_generation_tokens_count"] == engine.counters.finished
    assert shown['vllm:request_success_total{"finished_reason": "stop"}'] == engine.counters.finished
    assert shown['vllm:engine_sleep_state{"sleep_state": "awake"}'] == 1
    unfinished = shown["vllm:generation_tokens_total"] - shown["vllm:request_generation_tokens_sum"]
    assert unfinished == sum(request.generated_tokens for request in (*engine.running, *engine.waiting))
    assert shown["process_start_time_seconds"] < shown["vllm:prompt_tokens_created"] < 1000 + 90


def test_version_and_models_answer_as_the_server_does() -> None:
    """The model's name and length, and the version that decides how the rest is read."""
    simulation = Simulation(load_scenario("reasoning"))

    (model,) = simulation.models(SERVER)["data"]

    assert simulation.version(SERVER) == {"version": "0.32.0"}
    assert (model["id"], model["max_model_len"], model["parent"]) == ("reasoner-8b", 114688, None)


def test_model_directory_tells_its_bytes(tmp_path: Path) -> None:
    """The reader of model files finds the config as given, and the checkpoint's bytes in its index."""
    model = load_scenario("reasoning").servers[0].model
    write_model(model, tmp_path / "model")

    read = read_model(tmp_path / "model")

    assert read.config == model.config
    assert (read.tensor_bytes, read.tensor_source) == (16_060_522_496, "index")
