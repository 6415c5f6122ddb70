"""The probe inside real engines on CPU: in each of their processes, to their ends, and what it costs them.

Their torch has no CUDA: a stand-in tells the probe's thread, and no other, what an allocator would.
"""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median, quantiles

import psutil
import pytest

from collectors.probe_files import ProbeFiles
from collectors.readings import ServerProcess
from tests.engines.cuda_stand_in import ACTIVE_BYTES, ALLOCATIONS, MIB, POOL_BYTES, RESERVED_BYTES
from tests.engines.probe_site import install
from tests.engines.tiny_models import make_llama
from tests.engines.vllm_server import SMALL_POOL, VllmServer, wait_until
from tests.engines.watched_sglang import WatchedSglang
from tests.probe.said import REPORTING, Said, awaited, files, of_pid, said

pytestmark = pytest.mark.engines

SECONDS = 60.0
FULL = {
    "allocated": ACTIVE_BYTES,
    "allocated_peak": ACTIVE_BYTES,
    "active": ACTIVE_BYTES,
    "active_peak": ACTIVE_BYTES,
    "reserved": RESERVED_BYTES,
    "reserved_peak": RESERVED_BYTES,
    "requested": ACTIVE_BYTES,
    "inactive_split": MIB,
    "private_pools": POOL_BYTES,
    "alloc_retries": 0,
    "ooms": 0,
    "device_allocs": ALLOCATIONS,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("probe") / "site")


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory, as where it writes by default."""
    with tempfile.TemporaryDirectory(prefix="vramscope-test-", dir="/dev/shm") as path:
        yield Path(path) / "files"


def variables(site: Path, folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(site), "VRAMSCOPE_PROBE_DIRECTORY": str(folder)}


def test_every_process_of_vllm(vllm_command: Path, site: Path, folder: Path, tmp_path: Path) -> None:
    """API server, core and both workers have the full set; a killed worker, a restart and an end go as without it."""
    model = make_llama(tmp_path / "tiny-llama")
    server = VllmServer(
        command=vllm_command,
        model=model.path,
        name="tiny-llama",
        log=tmp_path / "vllm.log",
        arguments=(*SMALL_POOL, "--tensor-parallel-size", "2"),
        variables={**variables(site, folder), "VLLM_CPU_OMP_THREADS_BIND": "0|1"},
    )
    with server:
        assert server.complete("before", max_tokens=8) == 8
        found = of_engine(server.processes(), folder)
        titles = sorted(name for name in found if name.startswith("VLLM::"))
        assert titles == ["VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"]
        assert len(found) == 4
        _costs_little(found, folder)

        _kill_and_see_it_end(server.processes(), "VLLM::Worker_TP1")
        assert words_of_the_probe(server.log_text()) == []
        server.kill()
        server.start()
        again = of_engine(server.processes(), folder)
        assert server.complete("again", max_tokens=8) == 8
        assert {of_pid(folder, one.pid) for one in again.values()} == set(files(folder))

    assert words_of_the_probe(server.log_text()) == []


def test_every_process_of_sglang(sglang_python: Path, site: Path, folder: Path, tmp_path: Path) -> None:
    """HTTP server, scheduler and detokenizer have the full set; a killed scheduler ends the server as without it."""
    with WatchedSglang(sglang_python, tmp_path, variables=variables(site, folder)) as server:
        assert server.complete("before", max_tokens=8) == 8
        main = psutil.Process(server.pid)
        processes = [main, *main.children(recursive=True)]
        found = of_engine(processes, folder)
        assert sorted(name for name in found if "::" in name) == ["sglang::detokenizer", "sglang::scheduler"]
        assert len(found) == 3
        _costs_little(found, folder)

        _kill_and_see_it_end(processes, "sglang::scheduler")
    assert words_of_the_probe(server.log.read_text(errors="replace")) == []


def test_an_end_that_is_asked_for(vllm_command: Path, site: Path, folder: Path, tmp_path: Path) -> None:
    """Offline, with a core of its own: the answer and the code are vLLM's, no file of a living process is left."""
    model = make_llama(tmp_path / "tiny-llama")
    code = """
import sys, vllm
if __name__ == "__main__":
    engine = vllm.LLM(model=sys.argv[1], enforce_eager=True, max_model_len=512, max_num_seqs=8)
    (answer,) = engine.generate("a", vllm.SamplingParams(max_tokens=5, ignore_eos=True))
    print("RESULT", len(answer.outputs[0].token_ids))
"""
    done = _in_vllm(
        vllm_command, variables(site, folder), tmp_path, "-c", code, str(model.path), VLLM_ENABLE_V1_MULTIPROCESSING="1"
    )

    assert (done.returncode, _result(done.stdout)) == (0, "5"), done.stderr[-2000:]
    assert words_of_the_probe(done.stderr) == []
    assert not [path for path in files(folder) if psutil.pid_exists(said(path).pid)]


def test_a_step_takes_as_long_with_it_as_without(
    vllm_command: Path, site: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks of steps in turn, ten files a second in one of each pair: the same tokens; the ratio is printed."""
    model = make_llama(tmp_path / "tiny-llama")
    program = str(Path(__file__).with_name("step_times.py"))
    done = _in_vllm(
        vllm_command, variables(site, folder), tmp_path, program, str(model.path), str(folder), str(SECONDS),
        VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_PLUGINS="none",
        VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]

    rows = json.loads(_result(done.stdout))
    with capsys.disabled():
        for name, at in (("seconds", 0), ("seconds of CPU", 1)):
            ratios = [row["with"][at] / row["without"][at] for row in rows]
            low, middle, high = quantiles(ratios, n=4)
            milliseconds = median(row["without"][at] for row in rows) * 1000
            print(
                f"\nvLLM, {name} of a step ({milliseconds:.2f} ms), the probe at 0.1 s / none: "
                f"median {middle:.4f}, quartiles {low:.4f} to {high:.4f}, {len(ratios)} pairs"
            )

    assert all(row["with"][2] == row["without"][2] for row in rows)


def of_engine(processes: Iterable[psutil.Process], folder: Path) -> dict[str, Said]:
    """What the probe of each process says, by the process's title; fails if one has none or not the full set.

    The agent reads the same: it finds the directory though titles have overwritten the environment that names it.
    """
    found = {}
    for process in processes:
        line = process.cmdline()
        if any("multiprocessing.resource_tracker" in word for word in line):
            continue  # of Python, it loads no plugin
        one = awaited(of_pid(folder, process.pid), lambda one: one.state == REPORTING, seconds=SECONDS)
        assert (one.pid, [device.known for device in one.devices]) == (process.pid, [FULL])
        assert one.torch.startswith("2.13.")
        found[line[0]] = one
    reader = ProbeFiles()
    pids = {one.pid for one in found.values()}
    read = reader.read(reader.find(ServerProcess(pid=pid, started_at=0.0, title="") for pid in pids))
    assert ({one.pid for one in read.readings}, read.faults) == (pids, {})
    assert {one.active_bytes for one in read.readings} == {ACTIVE_BYTES}
    return found


def words_of_the_probe(log: str) -> list[str]:
    """Lines that name it, but for an engine's own word that it has loaded a plugin."""
    return [line for line in log.splitlines() if "vramscope_probe" in line and " plugin" not in line]


def _costs_little(before: dict[str, Said], folder: Path) -> None:
    """By its own clock, below 0.1 % of a core in each process, at its default of a second."""
    for name, first in before.items():
        last = _after(of_pid(folder, first.pid), first.sequence + 10)
        ratio = (last.cpu_ns - first.cpu_ns) / (last.written_ns - first.written_ns)
        print(f"{name}: the probe uses {ratio:.4%} of a core")
        assert (last.interval_ms, ratio < 0.001) == (1000, True), f"{name}: {ratio:.4%}"


def _after(path: Path, sequence: int) -> Said:
    return awaited(path, lambda one: one.sequence >= sequence, seconds=SECONDS)


def _kill_and_see_it_end(processes: list[psutil.Process], title: str) -> None:
    """SIGKILL to the one of that title: the engine ends by itself."""
    (victim,) = (process for process in processes if process.cmdline()[:1] == [title])
    victim.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(_runs, processes)), SECONDS, what="the engine's own end")


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _in_vllm(
    command: Path, variables: Mapping[str, str], folder: Path, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | variables | more
    environment |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        ["nice", "-n", "5", str(command.with_name("python")), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        cwd=folder,
    )


def _result(out: str) -> str:
    return next(line for line in out.splitlines() if line.startswith("RESULT ")).removeprefix("RESULT ")
