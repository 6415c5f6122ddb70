"""One metrics page: the needed lines only, over all names and shapes that vLLM has had."""

import contextlib
import csv

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.errors import CollectorError, Unreadable
from collectors.vllm.names import (
    ADAPTERS,
    CACHE_CONFIG,
    NAMES,
    OFFLOAD_CONFIG,
    SIMPLE_OFFLOAD_CONFIG,
    SLEEP_STATE,
    V0_ONLY,
)
from collectors.vllm.page import Page, parse_page
from tests.collectors.replay import FIXTURES, vllm

SOURCE = "http://host:8000/metrics"

# What is read of no release, and why; a star stands for every name that starts so.
IGNORED = {
    "vllm:gpu_prefix_cache_hit_rate": "V0 engine; the counters say it better",
    "vllm:cpu_prefix_cache_hit_rate": "V0 engine",
    "vllm:tokens_total": "V0 engine, one release; sum of the two token counters",
    "vllm:avg_*": "V0 engine; averages over an unknown window",
    "vllm:model_*": "V0 engine; latency",
    "vllm:time_in_queue_requests": "V0 engine; latency",
    "vllm:spec_decode_*": "says nothing about memory",
    "vllm:external_prefix_cache_*": "lookups in another tier, not in the pool",
    "vllm:num_requests_waiting_by_reason": "a split of num_requests_waiting; counting both would count twice",
    "vllm:num_requests_kv_fetch_by_stage": "transfer of a KV consumer",
    "vllm:prompt_tokens_*": "splits of prompt_tokens_total",
    "vllm:request_*": "per finished request",
    "vllm:iteration_tokens_total": "a histogram in spite of its name",
    "vllm:admission_rejections_total": "refusals before the scheduler, not for want of KV",
    "vllm:corrupted_requests_total": "says nothing about memory",
    "vllm:time_*": "latency",
    "vllm:inter_token_latency_seconds": "latency",
    "vllm:e2e_request_latency_seconds": "latency",
    "vllm:kv_block_*": "sampled lifetimes, only with a flag",
    "vllm:sleep_mode_*": "only with development endpoints; engine_sleep_state tells the state",
    "vllm:estimated_*": "a model's estimate",
    "vllm:kv_offload_*": "traffic to and from the host tier; what it holds is read",
    "vllm:simple_kv_offload_*": "traffic to and from the host tier; what it holds is read",
    "vllm:hisparse_*": "traffic to and from the host tier; what it holds is read",
    "vllm:nixl_*": "transfer",
    "vllm:mooncake_*": "transfer",
    "vllm:hf3fs_*": "transfer",
    "vllm:umbp_*": "transfer",
    "vllm:watermark_requests_total": "marks generated text; no memory watermark",
    "http_*": "the HTTP server's",
    "process_resident_memory_bytes": "of the API server only",
}


def page(name: str) -> Page:
    return parse_page(vllm(name), source=SOURCE)


def series() -> list[str]:
    with (FIXTURES / "vllm" / "series.csv").open(newline="", encoding="utf-8") as file:
        return [row["metric"] for row in csv.DictReader(file)]


def ignored_by(metric: str) -> list[str]:
    return [name for name in IGNORED if metric == name or (name.endswith("*") and metric.startswith(name[:-1]))]


def test_every_known_series_is_read_or_left_out_for_a_reason() -> None:
    """No series of any release is forgotten, none is both read and ignored, no reason is left over."""
    names = (name.removesuffix("_sum").removesuffix("_count") for names in NAMES.values() for name in names)
    labelled = (ADAPTERS, CACHE_CONFIG, OFFLOAD_CONFIG, SIMPLE_OFFLOAD_CONFIG, SLEEP_STATE, V0_ONLY)
    read = {f"vllm:{name}" for name in (*names, *labelled)}
    known = series()

    assert [metric for metric in known if metric not in read and not ignored_by(metric)] == []
    assert [metric for metric in known if metric in read and metric in IGNORED] == []
    assert read - set(known) == {"vllm:prompt_tokens_created"}
    assert [name for name in IGNORED if not any(name in ignored_by(metric) for metric in known)] == []


VERSIONS = ["0.6.6", "0.8.5", "0.9.2", "0.10.2", "0.11.2", "0.19.1", "0.20.2", "0.24.0", "0.33.0"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_release_gives_the_same_facts(version: str) -> None:
    """Renamed series end up under one name."""
    found = page(f"{version}/metrics.txt")

    assert found.models == ("meta-llama/Llama-3.1-8B-Instruct",)
    assert found.replicas == ("0",)
    assert found.values["used_ratio"] == {"0": pytest.approx(0.25, abs=0.002)}
    assert found.values["running"] == {"0": 3.0}
    assert found.values["waiting"] == {"0": 1.0}
    assert found.values["preemptions"] == {"0": 2.0}
    assert found.values["prompt_tokens"] == {"0": 5000.0}
    assert found.values["generation_tokens"] == {"0": 7000.0}
    assert found.cache_config["0"]["num_gpu_blocks"] == "1000"
    assert found.sleep is None
    assert found.v0 is (version == "0.6.6")


def test_with_both_names_only_the_new_one_counts() -> None:
    """The old gauge says 0.9 here and is not looked at; nothing is added up."""
    found = page("shapes/both_names.txt")

    assert found.values["used_ratio"] == {"0": 1 - 749 / 999}
    assert found.values["prefix_queries"] == {"0": 4800.0}


def test_several_api_servers_count_as_their_maximum() -> None:
    """With a pid label only one series of each replica is alive, the others are 0."""
    found = page("shapes/api_server_pids.txt")

    assert found.replicas == ("0", "1")
    assert found.values["used_ratio"] == {"0": 1 - 749 / 999, "1": 1 - 499 / 999}
    assert found.values["running"] == {"0": 3.0, "1": 6.0}


def test_without_an_engine_label_there_is_one_replica() -> None:
    """The label came with 0.8.5."""
    assert page("shapes/no_engine_label.txt").replicas == ("0",)


@pytest.mark.parametrize("shape", ["ray_colon", "ray_underscore"])
def test_series_under_rays_prefix_are_the_same_series(shape: str) -> None:
    """Ray Serve re-exports everything with a prefix."""
    found = page(f"shapes/{shape}.txt")

    assert found.values["used_ratio"] == {"0": 1 - 749 / 999}
    assert found.values["generation_tokens"] == {"0": 7000.0}
    assert found.cache_config["0"]["block_size"] == "16"


def test_ray_replicas_on_one_page_are_kept_apart() -> None:
    """Each has an engine 0 of its own."""
    found = page("shapes/ray_replicas.txt")

    assert found.values["running"] == {"abc/0": 3.0, "xyz/0": 6.0}


def test_replicas_are_in_the_order_of_their_numbers() -> None:
    """10 comes after 9."""
    text = "".join(f'vllm:num_requests_running{{engine="{rank}"}} 1\n' for rank in (10, 2, 0))

    assert parse_page(text, source=SOURCE).replicas == ("0", "2", "10")


def test_values_that_are_no_numbers_are_not_known() -> None:
    """NaN, infinities and negative counts leave nothing behind."""
    found = page("shapes/not_finite.txt")

    assert found.values["running"] == {}
    assert found.values["waiting"] == {}
    assert found.values["used_ratio"] == {}
    assert found.values["preemptions"] == {}
    assert found.values["prompt_tokens"] == {"0": 5000.0}


def test_a_created_sample_is_a_time_and_never_a_value() -> None:
    """It dates the start where the process time is missing."""
    text = 'vllm:prompt_tokens_total{engine="0"} 7\nvllm:prompt_tokens_created{engine="0"} 1.75e+09\n'
    found = parse_page(text, source=SOURCE)

    assert found.values["prompt_tokens"] == {"0": 7.0}
    assert found.started_at == 1.75e9


def test_the_process_start_is_preferred_over_created() -> None:
    """The process is older than its counters."""
    assert page("0.33.0/metrics.txt").started_at == 1.75e9
    assert page("0.19.1/metrics.txt").started_at is None


def test_escaped_labels_are_unescaped() -> None:
    """Quotes, commas, braces, line breaks and backslashes in label values."""
    found = page("shapes/escaped_labels.txt")

    assert found.models == ('org/quo"te {x},y=z',)
    assert found.cache_config["0"]["kv_cache_dtype_skip_layers"] == '["a, b", {c=d}]'
    assert found.cache_config["0"]["note"] == "two\nlines \\ end"
    assert found.values["running"] == {"0": 3.0}


def test_markup_in_a_model_name_stays_text() -> None:
    """It is passed on as it is; whoever renders it escapes it."""
    assert page("shapes/script_name.txt").models == ("<script>alert(1)</script>",)


@pytest.mark.parametrize("end", ["# EOF", "# EOF\n"])
def test_an_open_metrics_page_is_read(end: str) -> None:
    """Units, types without ``_total``, exemplars and created times change nothing; ``# EOF`` may end the page."""
    found = parse_page(vllm("shapes/openmetrics.txt").removesuffix("# EOF\n") + end, source=SOURCE)

    expected = page("0.33.0/metrics.txt")
    assert found.values == expected.values
    assert (found.replicas, found.models, found.started_at) == (expected.replicas, expected.models, 1.75e9)
    assert found.cache_config["0"]["kv_cache_size_tokens"] == "16000"


def test_the_rust_front_end_says_less() -> None:
    """No configuration, no sleep state, no time of its start."""
    found = page("shapes/rust_frontend.txt")

    assert found.values["running"] == {"0": 3.0}
    assert found.values["generation_tokens"] == {"0": 7000.0}
    assert (found.cache_config, found.sleep, found.started_at) == ({}, None, None)


def test_rays_replicas_are_told_apart_by_their_workers() -> None:
    """Before 0.12 there is no ReplicaId; a single worker needs no name in front."""
    assert page("shapes/ray_workers.txt").values["running"] == {"0a1b/0": 3.0, "2c3d/0": 6.0}
    assert page("shapes/ray_colon.txt").replicas == ("0",)


def test_two_models_on_one_page_are_kept_apart() -> None:
    """Each has an engine 0; nothing of one is taken for the other's."""
    found = page("shapes/two_models.txt")

    assert found.models == ("org/a", "org/b")
    assert found.replicas == ("org/a/0", "org/b/0")
    assert found.values["running"] == {"org/a/0": 3.0, "org/b/0": 6.0}


def test_names_of_replicas_are_bounded() -> None:
    """They end up as label values."""
    text = "".join(
        f'vllm:num_requests_running{{model_name="{name * 9000}",engine="{name * 9000}"}} 1\n' for name in "ab"
    )

    assert [len(name) for name in parse_page(text, source=SOURCE).replicas] == [257, 257]


def test_adapters_are_no_models_of_their_own() -> None:
    """LoRA adapters stand in labels of one series, whose value is a time."""
    found = page("shapes/lora.txt")

    assert found.models == ("meta-llama/Llama-3.1-8B-Instruct",)
    assert found.replicas == ("0",)


def test_one_rank_of_a_group_keeps_its_number() -> None:
    """Behind an external balancer each rank has a port of its own."""
    assert page("shapes/dp_external.txt").replicas == ("3",)


@pytest.mark.parametrize(
    ("shape", "sleep"),
    [("sleeping", "weights_offloaded"), ("sleeping_discarded", "discard_all"), ("paused", None), ("lora", None)],
)
def test_levels_of_sleep(shape: str, sleep: str | None) -> None:
    """A pause (level 0) gives up no memory; a page without the series is of a server that is awake."""
    assert page(f"shapes/{shape}.txt").sleep == sleep


def test_of_two_configurations_the_known_values_count() -> None:
    """One API server knows the blocks, the other says None."""
    found = page("shapes/api_server_one_knows.txt")

    assert found.cache_config["0"]["num_gpu_blocks"] == "1000"
    assert found.disputed == frozenset()


def test_two_configurations_that_disagree_are_not_believed() -> None:
    """A label set of an earlier run is still there: which one is alive is not known."""
    found = page("shapes/multiproc_left_over.txt")

    assert found.disputed == {"num_gpu_blocks"}
    assert "num_gpu_blocks" not in found.cache_config["0"]
    assert found.cache_config["0"]["block_size"] == "16"


@pytest.mark.parametrize("text", ["", "<html>hello</html>\n", vllm("shapes/log_stats_disabled.txt")])
def test_a_page_without_vllm_series_has_no_replicas(text: str) -> None:
    """Statistics switched off, or another server altogether."""
    assert parse_page(text, source=SOURCE).replicas == ()


def test_a_page_full_of_nan_still_names_its_replicas() -> None:
    """It is a server of which nothing is known, not one without statistics."""
    text = "".join(f'vllm:{name}{{engine="0",model_name="m"}} NaN\n' for names in NAMES.values() for name in names)
    found = parse_page(text, source=SOURCE)

    assert found.replicas == ("0",)
    assert all(values == {} for values in found.values.values())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('vllm:num_requests_running{engine="0"} 12', "truncated"),
        ('vllm:num_requests_running{engine="0\n', "malformed"),
        ('vllm:num_requests_running{engine="0"} twelve\n', "malformed"),
        ('vllm:num_requests_running{engine="0"}\n', "malformed"),
        ("vllm:num_requests_running 1\n" * 5000, "too_large"),
        ("vllm:num_requests_running{a=" + "x" * 70000 + "} 1\n", "too_large"),
        ("".join(f'vllm:num_requests_running{{engine="{rank}"}} 1\n' for rank in range(513)), "too_large"),
    ],
)
def test_a_page_that_cannot_be_used_is_one_sentence(text: str, reason: str) -> None:
    """Empty, another site, cut off, malformed, or built to keep the parser busy."""
    with pytest.raises(Unreadable, match=r"^http://host:8000/metrics [^\n]*$") as caught:
        parse_page(text, source=SOURCE)

    assert caught.value.reason == reason


@settings(max_examples=150, deadline=None)
@given(
    st.text(),
    st.sampled_from(["", "vllm:num_requests_running", "vllm:cache_config_info{", 'vllm:kv_cache_usage_perc{engine="']),
)
def test_no_page_raises_anything_but_a_collector_error(text: str, start: str) -> None:
    """Whatever stands on the page, alone or behind a name that is needed."""
    with contextlib.suppress(CollectorError):
        parse_page(f"{start}{text}\n", source=SOURCE)
