"""What a server's log says beside what is read and computed: the closed sum, the budget, and whom it is about."""

# ruff: noqa: E501 - lines as engines write them

from pathlib import Path

import pytest

from agent.named import named_parts
from agent.seating import Seat, ServerView
from agent.snapshot import Snapshot
from collectors.readings import LogReading, PoolReading, RankLog, RankTitle, ReplicaReading, ServerReading
from collectors.simulated.state import NodeState
from tests.test_nodes import BLOCK, GIB, RESERVED, RESIDUAL, WHOLE, Served, closed, h100, held, nothing_is_cut, observed

MIB = 2**20
TITLES = {100: "vllm serve m", 101: "VLLM::EngineCore"}
FREE = 81559 * MIB - RESERVED - RESIDUAL
LOG = (
    "(APIServer pid=1) non-default args: {}",
    "(EngineCore_DP0 pid=2) Initializing a V1 LLM engine (v0.32.0) with config: model='m'",
    "(EngineCore_DP0 pid=2) Model loading took 15.5 GiB memory and 3.6 seconds",
    "(EngineCore_DP0 pid=2) Available KV cache memory: 20.25 GiB",
    "(EngineCore_DP0 pid=2) Graph capturing finished in 21 secs, took 0.75 GiB",
    "(EngineCore_DP0 pid=2) Free memory on device (78.5/79.18 GiB) on startup. Desired GPU memory utilization is (0.9, 71.26"
    " GiB). Actual usage is 15.75 GiB for consumed memory (weights + non-torch), 1.5 GiB for peak activation, and 0.75 GiB"
    " for CUDAGraph memory. Current kv cache memory in use is 20.25 GiB.",
    "(APIServer pid=1) INFO:     Application startup complete.",
)


def one(folder: Path, *log: str, holds: int = 40 * GIB, **fields: object) -> Snapshot:
    """A server that is alone on a GPU."""
    state = NodeState(devices=(h100(0, holds + RESIDUAL),), gpu_processes=(held(0, 101, holds),))
    served = Served(titles=TITLES, used_blocks=(500,), blocks=8_000, log=log, **fields)  # type: ignore[arg-type]
    return observed(folder, state, served)


def rest(**parts: int) -> dict[str, int]:
    known = {name.replace("__", " "): size for name, size in parts.items()}
    return known | {"other_processes": 0, "reserved": RESERVED, "hidden": RESIDUAL, "free": FREE - 40 * GIB}


def test_what_is_reported_comes_before_what_is_computed(tmp_path: Path) -> None:
    """Weights and graphs of the log; the pool of exact blocks; the peak of a trial run is no part."""
    found = one(tmp_path, *LOG)

    assert closed(found.devices[0]) == rest(
        weights__chat=round(15.5 * GIB),
        kv_used__chat=500 * BLOCK,
        kv_available__chat=7_500 * BLOCK,
        cuda_graphs__chat=GIB * 3 // 4,
        runtime__chat=40 * GIB - round(16.25 * GIB) - 8_000 * BLOCK,
    )
    evidence = {part.component: part.evidence for part in found.devices[0].components if part.server}
    assert (evidence["weights"], evidence["cuda_graphs"], evidence["kv_used"]) == ("reported", "reported", "computed")
    assert nothing_is_cut(found.devices)
    assert found.servers[0].log is not None
    assert found.servers[0].log.ranks[0].activation_peak_bytes == GIB * 3 // 2


def test_the_budget_is_calibrated_by_the_log_of_the_same_run(tmp_path: Path) -> None:
    """Graphs and memory outside torch are exact then; lines and live components stand for the same bytes."""
    ranges = {(line.component, line.bound): line.bytes for line in one(tmp_path).devices[0].budget}
    found = one(tmp_path, *LOG)

    lines = {(line.component, line.bound): line.bytes for line in found.devices[0].budget}
    assert lines["cuda_graphs", "likely"] == GIB * 3 // 4
    assert ("cuda_graphs", "likely") not in ranges
    context = 518 * MIB
    assert lines["runtime", "likely"] == round(1.5 * GIB) + GIB // 4 + context
    assert lines["runtime", "high"] < ranges["runtime", "high"]
    assert "the runtime budget is calibrated from the start-up log of vLLM 0.32.0" in found.servers[0].notes


def test_what_does_not_fit_is_cut_and_seen(tmp_path: Path) -> None:
    """A log may be wrong, or of another server: components still close and what was cut is exported."""
    found = one(tmp_path, *(line.replace("took 0.75", "took 30.75") for line in LOG))

    parts = closed(found.devices[0])
    room = 40 * GIB - round(15.5 * GIB) - 8_000 * BLOCK
    assert (parts["cuda_graphs chat"], parts["runtime chat"]) == (room, 0)
    assert found.devices[0].overattributed_bytes["chat"] == round(30.75 * GIB) - room


@pytest.mark.parametrize("change", [("(v0.32.0)", "(v0.31.0)"), ("EngineCore_DP0", "Worker_TP5")])
def test_the_log_of_another_run_or_rank_says_nothing_here(tmp_path: Path, change: tuple[str, str]) -> None:
    """Another version than answers; ranks that this server does not have."""
    flags = {"tensor-parallel-size": 8} if change[1] == "Worker_TP5" else {}
    found = one(tmp_path, *(line.replace(*change) for line in LOG), flags=flags)

    parts = closed(found.devices[0])
    assert parts["weights chat"] != round(15.5 * GIB)
    assert "cuda_graphs chat" not in parts


def test_each_rank_has_its_own_figures(tmp_path: Path) -> None:
    """TP=2: what one rank's line says is not the other's."""
    state = NodeState(
        devices=tuple(h100(index, 40 * GIB + RESIDUAL) for index in range(2)),
        gpu_processes=tuple(held(index, 110 + index, 40 * GIB) for index in range(2)),
    )
    titles = {100: "vllm serve m", 101: "VLLM::EngineCore", 110: "VLLM::Worker_TP0", 111: "VLLM::Worker_TP1"}
    log = [f"(Worker_TP{n} pid=9) Model loading took {8 + n}.5 GiB memory and 3.6 seconds" for n in range(2)]
    found = observed(tmp_path, state, Served(titles=titles, used_blocks=(500,), blocks=8_000, log=tuple(log)))

    assert [closed(device)["weights chat"] for device in found.devices] == [round(8.5 * GIB), round(9.5 * GIB)]


def test_the_pool_of_an_unknown_model_is_what_the_log_set_aside(tmp_path: Path) -> None:
    """By the share of blocks in use."""
    found = one(tmp_path, *LOG, config={"model_type": "never-heard-of"}, tensor_bytes=WHOLE)

    parts = closed(found.devices[0])
    assert parts["kv_used chat"] + parts["kv_available chat"] == round(20.25 * GIB)
    assert parts["kv_used chat"] == round(20.25 * GIB) * 500 // 8_000
    evidence = {part.component: part.evidence for part in found.devices[0].components if part.server}
    assert evidence["kv_available"] == "reported"


def test_devices_of_one_process_in_the_order_of_their_seats() -> None:
    """A log that tells devices and no ranks; one that tells of several models tells nothing about any."""
    log = LogReading(
        at=1.0,
        engine="llama.cpp",
        ranks=tuple(RankLog(device=n, weights_bytes=n + 5, activations_bytes=n + 1) for n in range(2)),
    )
    server = ServerView(
        name="chat",
        engine="llama_cpp",
        url="",
        state="serving",
        reading=ServerReading(
            at=1.0,
            engine="llama_cpp",
            state="serving",
            pools=(PoolReading(replica="0"),),
            replicas=(ReplicaReading(replica="0"),),
        ),
        log=log,
    )
    where = [
        Seat(
            server="chat", uuid=f"GPU-{n}", rank=RankTitle(tp_rank=0, pp_rank=0, replica="0"), pids=frozenset(), place=n
        )
        for n in range(3)
    ]

    parts = [{part.component: part.bytes for part in named_parts(server, seat)} for seat in where]
    assert parts == [{"weights": 5, "activations": 1}, {"weights": 6, "activations": 2}, {}]
