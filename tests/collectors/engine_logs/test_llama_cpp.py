"""llama.cpp's log and Ollama's: buffers by device, trials of the fit that do not count, the table at the end."""

# ruff: noqa: E501 - lines as engines write them

import re
from pathlib import Path

import pytest

from collectors.engine_logs.llama_cpp import LLAMA_CPP, OLLAMA
from collectors.engine_logs.reader import LogReader
from collectors.readings import RankLog
from tests.collectors.engine_logs.lines import GIB, MIB, read
from tests.collectors.replay import FIXTURES

BUFFERS = (
    "load_tensors:   CPU_Mapped model buffer size =   304.28 MiB",
    "load_tensors:        CUDA0 model buffer size =   974.50 MiB",
    "load_tensors:        CUDA1 model buffer size =  1401.00 MiB",
    "llama_context:  CUDA_Host  output buffer size =     2.32 MiB",
    "llama_kv_cache_unified:      CUDA0 KV buffer size =   512.00 MiB",
    "llama_kv_cache_unified:      CUDA1 KV buffer size =   640.00 MiB",
    "llama_memory_recurrent:      CUDA1 RS buffer size =    75.00 MiB",
    "llama_context:      CUDA0 compute buffer size =   304.75 MiB",
    "llama_context:  CUDA_Host compute buffer size =    26.01 MiB",
)


def test_buffers_belong_to_the_device_they_name() -> None:
    """What is on the host counts for no device; window and full caches have lines of their own and are summed."""
    reading = read(LLAMA_CPP, *BUFFERS, BUFFERS[5])

    assert reading.ranks == (
        RankLog(
            device=0,
            weights_bytes=round(974.5 * MIB),
            kv_pool_bytes=512 * MIB,
            activations_bytes=round(304.75 * MIB),
        ),
        RankLog(device=1, weights_bytes=1401 * MIB, kv_pool_bytes=1280 * MIB, state_bytes=75 * MIB),
    )


def test_a_trial_of_the_fit_does_not_count() -> None:
    """The model is laid out once without being loaded, with the same lines."""
    done = "llama_params_fit: fitting params to free memory took 0.42 seconds"

    assert read(LLAMA_CPP, *BUFFERS, done, *BUFFERS).ranks == read(LLAMA_CPP, *BUFFERS).ranks


@pytest.mark.parametrize(
    "line",
    [
        "llama_memory_breakdown_print: |   - CUDA0 (RTX 4090) | 24080 = 9436 + (14193 = 13169 +      38 +     985) +         451 |",
        "common_memory_breakdown_print: | - CUDA0 (GTX 1080 Ti) | 11165 = 8702 + (14192 = 13169 + 38 + 985) + 17592186036877 |",
    ],
)
def test_the_table_at_the_end_of_a_run(line: str) -> None:
    """Model, context and compute; what it can't account for is absurd at times and not read."""
    assert read(LLAMA_CPP, line).ranks == (
        RankLog(device=0, weights_bytes=13169 * MIB, kv_pool_bytes=38 * MIB, activations_bytes=985 * MIB),
    )


def test_ollamas_own_runner() -> None:
    """Sizes by device in the largest unit that fits, and of the model that was loaded last; said in JSON too."""
    lines = (
        'time=2025-08-24T08:26:00.310Z level=INFO source=backend.go:310 msg="model weights" device=CUDA0 size="4.3 GiB"',
        'time=2025-08-24T08:26:00.310Z level=INFO source=backend.go:321 msg="kv cache" device=CUDA0 size="936.0 MiB"',
        'time=2025-08-24T08:26:00.310Z level=INFO source=backend.go:332 msg="compute graph" device=CUDA0 size="98.0 MiB"',
        'time=2025-08-24T08:26:00.310Z level=INFO source=backend.go:337 msg="compute graph" device=CPU size="8.0 MiB"',
    )
    expected = RankLog(device=0, weights_bytes=round(4.3 * GIB), kv_pool_bytes=936 * MIB, activations_bytes=98 * MIB)
    wrapped = ['{"log":"' + line.replace('"', '\\"') + '\\n","stream":"stderr"}' for line in lines]

    for one in (lines, (*lines, *lines), wrapped):
        reading = read(OLLAMA, 'level=INFO msg="starting runner" cmd="ollama runner"', *one)
        assert reading.ranks == (expected,)
        assert reading.several_models


@pytest.mark.parametrize(("build", "compute_mib"), [("b7710", 17.52), ("b11549", 9.53)])
def test_a_recorded_start(tmp_path: Path, build: str, compute_mib: float) -> None:
    """Real servers on a CPU host, read as if that were a GPU: the trial in front of the real layout does not count."""
    recorded = (FIXTURES / "llama_cpp" / f"start-{build}.log").read_text()
    path = tmp_path / "log"
    path.write_text(re.sub(r" CPU(_Mapped)? (?=\w+ buffer size)", " CUDA0 ", recorded))

    reading = LogReader(LLAMA_CPP, clock=lambda: 1.0).read([path])

    assert reading is not None
    assert (reading.ready, reading.hint) == (True, None)
    assert reading.ranks == (
        RankLog(
            device=0,
            weights_bytes=round(10.16 * MIB),
            kv_pool_bytes=round(4.75 * MIB),
            activations_bytes=round(compute_mib * MIB),
        ),
    )


def test_a_log_without_sizes_says_what_to_do() -> None:
    """Newer builds hide these lines by default; nothing is said before the start is over."""
    start = "0.00.016.123 I srv    load_model: loading model '/m.gguf'"
    ready = "0.00.869.779 I srv          init: listening on http://127.0.0.1:18998"

    assert "--verbosity 4" in (read(LLAMA_CPP, start, ready).hint or "")
    assert read(LLAMA_CPP, start).hint is None
    assert read(LLAMA_CPP, start, BUFFERS[0], ready).hint is None


def test_recorded_logs_of_a_host_without_a_gpu_tell_no_device() -> None:
    """Everything is on the CPU there."""
    for path in sorted((FIXTURES / "llama_cpp").glob("budget-*/*.log")):
        reading = LogReader(LLAMA_CPP, clock=lambda: 1.0).read([path])

        assert reading is not None
        assert (reading.ranks, reading.failures, reading.hint) == ((), {}, None)
