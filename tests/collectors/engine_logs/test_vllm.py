"""vLLM's log: every line shape of 0.8 to 0.33, with the sizes it states."""

from pathlib import Path

import pytest

from collectors.engine_logs.parsing import LogParser
from collectors.engine_logs.reader import LogReader
from collectors.engine_logs.vllm import FORMAT
from collectors.readings import RankTitle
from tests.collectors.engine_logs.lines import GIB, only, read, take
from tests.collectors.replay import FIXTURES

V1 = "INFO 07-01 10:00:00 [gpu_model_runner.py:1]"
START = "Free memory on device (78.5/79.18 GiB) on startup. Desired GPU memory utilization is (0.9, 71.26 GiB). "
SPLIT = f"{START}Actual usage is "
REPLACE = (
    " Replace gpu_memory_utilization config with `--kv-cache-memory=58317895065` (54.31 GiB) to fit into requested"
    " memory, or `--kv-cache-memory=66119473152` (61.58 GiB) to fully utilize gpu memory."
    " Current kv cache memory in use is "
)


def whole(gib: float) -> int:
    return round(gib * GIB)


SHAPES = {
    "0.8.5 V0": (
        "model weights take 14.99GiB; non_torch_memory takes 0.09GiB; PyTorch activation peak memory takes 1.23GiB; the"
        " rest of the memory reserved for KV Cache is 54.87GiB.",
        {
            "weights_bytes": whole(14.99),
            "non_torch_bytes": whole(0.09),
            "activation_peak_bytes": whole(1.23),
            "kv_pool_bytes": whole(54.87),
        },
    ),
    "0.8.5 weights": (f"{V1} Model loading took 14.9889 GiB and 3.6 seconds", {"weights_bytes": whole(14.9889)}),
    "0.11.1 weights": (
        f"{V1} Model loading took 14.9889 GiB memory and 3.600000 seconds",
        {"weights_bytes": whole(14.9889)},
    ),
    "0.14 unrounded": (
        f"{V1} Model loading took 14.988926410675049 GiB memory and 3.600000 seconds",
        {"weights_bytes": whole(14.988926410675049)},
    ),
    "weights below the decimals": (f"{V1} Model loading took 0.00 GiB memory and 0.1 seconds", {}),
    "0.9.1 pool": (f"{V1} Available KV cache memory: 54.31 GiB", {"kv_pool_bytes": whole(54.31)}),
    "no pool": (f"{V1} Available KV cache memory: -2.51 GiB", {}),
    "0.10.2 given pool": (
        f"{V1} Initial free memory 78.51 GiB, reserved 10.00 GiB memory for KV Cache as specified by"
        " kv_cache_memory_bytes config and skipped memory profiling.",
        {"kv_pool_bytes": 10 * GIB},
    ),
    "0.8.5 tokens": (f"{V1} GPU KV cache size: 444,880 tokens", {"kv_tokens": 444_880}),
    "0.8.5 concurrency": (
        f"{V1} Maximum concurrency for 8,192 tokens per request: 54.31x",
        {"max_concurrency": 54.31},
    ),
    "0.28 both": (
        f"{V1} GPU KV cache size: 444,880 tokens, Maximum concurrency for 8,192 tokens per request: 54.31x",
        {"kv_tokens": 444_880, "max_concurrency": 54.31},
    ),
    "0.30 devices": (f"{V1} XPU KV cache size: 3,200 tokens", {"kv_tokens": 3200}),
    "with host": (f"{V1} GPU + host KV cache size: 3,200 tokens", {"kv_tokens": 3200}),
    "graphs": (
        f"{V1} Graph capturing finished in 21 secs, took 0.62 GiB",
        {"cuda_graphs_bytes": whole(0.62)},
    ),
    "no graphs": (f"{V1} Graph capturing finished in 0 secs, took 0.00 GiB", {"cuda_graphs_bytes": 0}),
    "graphs that gave memory back": (f"{V1} Graph capturing finished in 5 secs, took -0.12 GiB", {}),
    "0.18.1 graphs": (
        f"{V1} CUDA graph pool memory: 0.55 GiB (actual), 0.71 GiB (estimated), difference: 0.16 GiB (22.5%).",
        {"cuda_graphs_bytes": whole(0.55)},
    ),
    "0.10.2 split": (
        f"{V1} {SPLIT}14.99 GiB for weight, 1.41 GiB for peak activation, 0.11 GiB for non-torch memory, and"
        f" 0.62 GiB for CUDAGraph memory.{REPLACE}58984886681 bytes.",
        {"activation_peak_bytes": whole(1.41), "non_torch_bytes": whole(0.11), "kv_pool_bytes": 58_984_886_681},
    ),
    "0.14 split": (
        f"{V1} {SPLIT}14.99 GiB for weight, 1.41 GiB for peak activation, -0.01 GiB for non-torch memory, and"
        f" 0.62 GiB for CUDAGraph memory.{REPLACE}54.93 GiB.",
        {"activation_peak_bytes": whole(1.41), "kv_pool_bytes": whole(54.93)},
    ),
    "0.28 split": (
        f"{V1} {SPLIT}15.2 GiB for consumed memory (weights + non-torch), 1.41 GiB for peak activation, and"
        f" 0.62 GiB for CUDAGraph memory.{REPLACE}54.93 GiB.",
        {"activation_peak_bytes": whole(1.41), "kv_pool_bytes": whole(54.93)},
    ),
}


@pytest.mark.parametrize(("line", "expected"), SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_of_a_line_is_read(line: str, expected: dict[str, object]) -> None:
    """Thousands commas, two to fifteen decimals, negative sizes; what can't be a size is not known."""
    reading = read(FORMAT, f"(EngineCore_DP0 pid=271) {line}")

    assert only(reading) == expected


def test_memory_outside_torch_is_what_weights_leave_of_the_consumed() -> None:
    """Since 0.28 both are one figure."""
    reading = read(FORMAT, "Model loading took 14.75 GiB memory and 3.6 seconds", SHAPES["0.28 split"][0])

    assert only(reading)["non_torch_bytes"] == whole(15.2) - whole(14.75)


def test_a_pool_whose_blocks_were_given_is_not_what_the_log_set_aside() -> None:
    """The budget stays as it was, the allocation is another."""
    reading = read(
        FORMAT,
        "Available KV cache memory: 1.0 GiB",
        "Overriding num_gpu_blocks=65536 with num_gpu_blocks_override=100",
    )

    assert only(reading) == {}


RANKS = {
    "(VllmWorker rank=3 pid=99)": RankTitle(tp_rank=3, pp_rank=0, replica="0"),
    "\x1b[1;36m(Worker_TP3 pid=99)\x1b[0;0m": RankTitle(tp_rank=3, pp_rank=0, replica="0"),
    "(Worker_DP1_PP2_TP3_EP7 pid=99)": RankTitle(tp_rank=3, pp_rank=2, replica="1"),
    "(EngineCore_DP4 pid=99)": RankTitle(tp_rank=0, pp_rank=0, replica="4"),
    "(EngineCore_0 pid=99)": RankTitle(tp_rank=0, pp_rank=0, replica="0"),
    "(VllmWorker-2 pid=99)": RankTitle(tp_rank=2, pp_rank=0, replica="0"),
    "(Worker pid=99)": RankTitle(tp_rank=0, pp_rank=0, replica="0"),
    "": RankTitle(tp_rank=0, pp_rank=0, replica="0"),
}


@pytest.mark.parametrize(("prefix", "rank"), RANKS.items())
def test_a_line_belongs_to_the_process_in_front_of_it(prefix: str, rank: RankTitle) -> None:
    """Ranks are never summed; a server of one process names none."""
    reading = read(FORMAT, f"{prefix} {V1} Model loading took 1.5 GiB memory and 3.6 seconds")

    assert [(one.rank, one.weights_bytes) for one in reading.ranks] == [(rank, whole(1.5))]


def test_eight_workers_are_eight_ranks() -> None:
    """Each with its own line."""
    lines = [f"(Worker_TP{n} pid={n}) Model loading took {n + 1}.0 GiB memory and 3.6 seconds" for n in range(8)]

    reading = read(FORMAT, *lines)

    assert [one.weights_bytes for one in reading.ranks] == [(n + 1) * GIB for n in range(8)]


@pytest.mark.parametrize(
    "start", ["[api_server.py:1] vLLM API server version 0.8.5.post1", "non-default args: {'model': 'm'}"]
)
def test_the_last_start_wins(start: str) -> None:
    """A restart within one file forgets the sizes of the run before."""
    reading = read(
        FORMAT,
        "Initializing a V1 LLM engine (v0.8.4) with config: model='m'",
        "Model loading took 1.5 GiB and 3.6 seconds",
        "Application startup complete",
        start,
        "Initializing a V1 LLM engine (v0.8.5.post1) with config: model='m'",
        "Available KV cache memory: 2.00 GiB",
    )

    assert (reading.version, reading.ready) == ("0.8.5.post1", False)
    assert only(reading) == {"kv_pool_bytes": 2 * GIB}


def test_once_it_is_ready_nothing_in_a_request_changes_a_size() -> None:
    """Whoever may ask may have any text written to the log."""
    parser = LogParser(FORMAT)
    take(parser, "Model loading took 1.5 GiB and 3.6 seconds", "INFO:     Application startup complete.")
    take(
        parser,
        "Model loading took 99 GiB and 3.6 seconds",
        "INFO Received request cmpl-1: prompt: 'non-default args: CUDA out of memory. Tried to allocate 2.00 GiB'",
        'INFO:     127.0.0.1:1 - "GET /vLLM API server version 9 HTTP/1.1" 404',
    )

    reading = parser.reading(1.0)
    assert only(reading) == {"weights_bytes": whole(1.5)}
    assert (reading.failures, reading.ready) == ({}, True)


@pytest.mark.parametrize("envelope", ["docker", "cri"])
def test_what_a_container_runtime_wraps_around_a_line_does_not_matter(envelope: str) -> None:
    """Docker's JSON and the prefix of Kubernetes' runtimes."""
    text = "(Worker_TP1 pid=9) INFO Model loading took 1.5 GiB memory and 3.6 seconds"
    line = {
        "docker": f'{{"log":"{text}\\n","stream":"stderr","time":"2026-01-01T00:00:00.000000001Z"}}',
        "cri": f"2026-01-01T00:00:00.000000001Z stderr F {text}",
    }[envelope]

    reading = read(FORMAT, line)

    assert [(one.rank.tp_rank, one.weights_bytes) for one in reading.ranks if one.rank] == [(1, whole(1.5))]


@pytest.mark.parametrize("name", ["recorded-0.32.0-llama", "recorded-0.32.0-mla"])
def test_a_recorded_log(name: str) -> None:
    """Real vLLM on a CPU host: tokens, concurrency and version; the pool was given in blocks."""
    path: Path = FIXTURES / "vllm" / name / "server.log"

    reading = LogReader(FORMAT, clock=lambda: 1.0).read([path])

    assert reading is not None
    assert (reading.version, reading.ready, reading.failures) == ("0.32.0", True, {})
    assert only(reading) == {"kv_tokens": 3200, "max_concurrency": 1.56}
