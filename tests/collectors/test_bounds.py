"""What no server can say of itself, by the door that each reading passes."""

import re

import msgspec
import pytest
from msgspec.structs import astuple

from collectors.bounds import MOST_BYTES, MOST_COUNT, MOST_TOKENS, bounded, whole
from collectors.readings import PoolReading, RankReport, ReplicaReading, ServerReading
from collectors.registry import ENGINES
from tests.collectors.reading import read_in_turn, read_once
from tests.collectors.replay import FIXTURES, reply

JSON = "application/json"
MOST = ServerReading(
    at=1.0,
    engine="vllm",
    state="serving",
    pools=(PoolReading(replica="0", used_ratio=1.0, capacity_tokens=MOST_TOKENS, pool_bytes=MOST_BYTES),),
    replicas=(ReplicaReading(replica="0", running_requests=0, prompt_tokens=MOST_COUNT, first_token_seconds=1e15),),
    ranks=(RankReport(weights_bytes=MOST_BYTES),),
    arguments={
        "max_model_len": -1,
        "dtype": "bfloat16",
        "gpu_memory_utilization": 0.9,
        "kv_cache_memory_bytes": MOST_BYTES,
    },
)


def test_what_can_be_is_passed_on() -> None:
    """The very same reading, at the bounds too."""
    assert bounded(MOST) is MOST


def test_what_can_not_be_is_not_known() -> None:
    """Each figure by itself, and one note for all."""
    reading = ServerReading(
        at=1.0,
        engine="vllm",
        state="serving",
        replicas=(ReplicaReading(replica="0", running_requests=10**300, waiting_requests=3, prompt_tokens=-7),),
        ranks=(RankReport(weights_bytes=1 << 90, cuda_graphs_bytes=5),),
        arguments={"max_model_len": 10**40, "num_gpu_blocks": MOST_COUNT, "dtype": "x" * 1000, "tp": 2},
        notes=("before",),
    )

    assert bounded(reading) == ServerReading(
        at=1.0,
        engine="vllm",
        state="serving",
        replicas=(ReplicaReading(replica="0", waiting_requests=3),),
        ranks=(RankReport(cuda_graphs_bytes=5),),
        arguments={"tp": 2},
        notes=(
            "before",
            "values beyond what can be, which are not shown: dtype, max_model_len, num_gpu_blocks, prompt_tokens "
            "and others",
        ),
    )


@pytest.mark.parametrize(
    "sizes",
    [
        {"capacity_tokens": MOST_TOKENS + 1, "blocks": 5, "used_tokens": 1},
        {"blocks": MOST_TOKENS, "block_size_tokens": 65536, "used_blocks": 1, "capacity_tokens": 1000},
        {"used_tokens": -1, "capacity_tokens": 1000},
    ],
)
def test_sizes_of_a_pool_are_known_together(sizes: dict[str, int]) -> None:
    """They are made of each other: where one can't be, the ratio is all that is left."""
    pool = PoolReading(replica="0", used_ratio=0.5, **sizes)  # type: ignore[arg-type] # numbers all

    reading = bounded(ServerReading(at=1.0, engine="vllm", state="serving", pools=(pool,)))

    assert reading.pools == (PoolReading(replica="0", used_ratio=0.5),)
    assert len(reading.notes) == 1


@pytest.mark.parametrize("value", [0, -1, MOST_TOKENS + 1, True, 1.0, "8", None, [8]])
def test_no_number_of_things(value: object) -> None:
    """Whatever JSON may have in its place."""
    assert whole(value) is None


LONG = "9" * 40
SGLANG = 'sglang:num_running_reqs{tp_rank="0"} 1\nsglang:num_used_tokens{tp_rank="0"} 5\n'
LOAD = '{"loads":[{"dp_rank":0,"num_running_reqs":1e300,"num_waiting_reqs":1,"memory":{"weight_gb":1e20}}]}'
BLOCKS = 'vllm:cache_config_info{num_gpu_blocks="1099511627776",block_size="65536"} 1\n'
CASES: list[tuple[str, dict[str, str], str]] = [
    ("vllm", {"/metrics": f"vllm:kv_cache_usage_perc 0.5\n{BLOCKS}"}, "capacity_tokens"),
    (
        "vllm",
        {
            "/metrics": "vllm:num_requests_running 1\n",
            "/v1/models": f'{{"data":[{{"id":"m","max_model_len":{LONG}}}]}}',
        },
        "max_model_len",
    ),
    ("sglang", {"/metrics": f'{SGLANG}sglang:weight_memory_usage_gb{{tp_rank="0"}} 9e15\n'}, "weights_bytes"),
    ("sglang", {"/metrics": f'{SGLANG}sglang:max_total_num_tokens{{tp_rank="0"}} 2e13\n'}, "capacity_tokens"),
    ("sglang", {"/v1/loads": LOAD, "/server_info": '{"version":"0.5.23"}'}, "num_running_reqs, weight_gb"),
    ("sglang", {"/v1/loads": LOAD.replace("1e20", "1e308"), "/server_info": '{"version":"0.5"}'}, "weight_gb"),
    (
        "tensorrt_llm",
        {"/prometheus/metrics": "trtllm_kv_cache_max_blocks 1e12\ntrtllm_kv_cache_tokens_per_block 64\n"},
        "capacity_tokens",
    ),
    (
        "llama_cpp",
        {"/props": f'{{"total_slots":1,"default_generation_settings":{{"n_ctx":{LONG}}}}}'},
        "max_model_len",
    ),
    ("ollama", {"/api/ps": f'{{"models":[{{"name":"m","context_length":{LONG}}}]}}'}, "context_length"),
    ("ollama", {"/api/ps": '{"models":[{"name":"m","context_length":-5}]}'}, "context_length"),
    ("tgi", {"/metrics": "tgi_batch_max_total_tokens 1e13\n"}, "capacity_tokens"),
]


@pytest.mark.parametrize(("engine", "answers", "name"), CASES)
def test_what_no_server_can_say_is_absent_and_noted(engine: str, answers: dict[str, str], name: str) -> None:
    """Integers of forty digits, and products of two numbers that could be: what is left can be recorded."""
    kinds = {path: "text/plain" if path.endswith("metrics") else "application/json" for path in answers}

    replies = {path: reply(text, content_type=kinds[path]) for path, text in answers.items()}
    (reading,), _ = read_in_turn(engine, [(1000.0, replies)], flags={"num-parallel": 2})

    assert any(note.startswith("values beyond what can be") and name in note for note in reading.notes)
    assert msgspec.msgpack.encode(reading)
    assert all(pool.capacity_tokens is None for pool in reading.pools)
    assert "999999" not in repr(reading)


PAGES = [
    ("vllm", "0.33.0/metrics.txt"),
    ("vllm", "recorded-0.32.0-llama/metrics_growing.txt"),
    ("sglang", "recorded-0.5.23/metrics_growing.txt"),
    ("sglang", "shapes/beside.txt"),
    ("sglang", "shapes/hybrid.txt"),
    ("tensorrt_llm", "1.3/metrics.txt"),
    ("triton", "25.06/metrics.txt"),
    ("tgi", "3.3.7/metrics.txt"),
    ("lmdeploy", "0.14/metrics.txt"),
    ("lightllm", "1.1/metrics.txt"),
    ("nim", "1.14/metrics.txt"),
    ("dynamo_trtllm", "1.6/metrics.txt"),
    ("llama_cpp", "recorded-7e4c0a9/metrics_busy_t3.txt"),
]


@pytest.mark.parametrize(("engine", "page"), PAGES)
@pytest.mark.parametrize("value", ["-7", "NaN", "-Inf"])
def test_what_is_negative_is_not_known(engine: str, page: str, value: str) -> None:
    """No series of any engine goes below 0; the server serves."""
    text = re.sub(r"^(\w.*) \S+$", rf"\1 {value}", (FIXTURES / engine / page).read_text(), flags=re.M)
    answers = {path: reply(text) for path in ENGINES[engine].paths if path.endswith("metrics")}
    beside = {"/props": reply('{"total_slots":1}', content_type=JSON)}

    reading = read_once(engine, answers | beside)

    records = (*reading.pools, *reading.replicas, *reading.ranks, *reading.offload, *reading.adapters)
    figures = [figure for record in records for figure in astuple(record) if type(figure) in (int, float) and figure]
    assert figures == []
