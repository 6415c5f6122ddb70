"""Whole nodes with servers whose pool is not planned: flags say which ranks there are, and what one rank holds."""

from pathlib import Path

from agent.snapshot import Snapshot
from collectors.simulated.state import NodeState
from tests.collectors.replay import FIXTURES
from tests.test_engine_nodes import Served, observed
from tests.test_nodes import GIB, RESIDUAL, WHOLE, closed, h100, held

TRTLLM = {"/prometheus/metrics": (FIXTURES / "tensorrt_llm" / "1.3" / "metrics.txt").read_text(encoding="utf-8")}
TGI = {
    "/metrics": (FIXTURES / "tgi" / "3.3.7" / "metrics.txt").read_text(encoding="utf-8"),
    "/info": (FIXTURES / "tgi" / "3.3.7" / "info.json").read_text(encoding="utf-8"),
}


def gpus(count: int, size: int, *, seen: bool = True) -> NodeState:
    """GPUs on each of which process 101, 102, ... holds memory, as far as the driver shows it."""
    return NodeState(
        devices=tuple(h100(number, size + RESIDUAL) for number in range(count)),
        gpu_processes=tuple(held(number, 101 + number, size) for number in range(count)) if seen else (),
    )


def titles(count: int, title: str) -> dict[int, str]:
    return {100: title, **{101 + number: "python" for number in range(count)}}


def parts_of(found: Snapshot, gpu: int) -> dict[str, int]:
    return {name.removesuffix(" chat"): size for name, size in closed(found.devices[gpu]).items() if "chat" in name}


def predicted(found: Snapshot, gpu: int) -> dict[str, int]:
    return {line.component: line.bytes for line in found.devices[gpu].budget}


def test_one_rank_holds_the_checkpoint(tmp_path: Path) -> None:
    """Its weights are the checkpoint's bytes; all else that it holds is runtime, for its pool is not known in bytes."""
    server = Served(
        engine="tensorrt_llm", titles=titles(1, "trtllm-serve /m"), documents=TRTLLM, flags={"max_batch_size": 8}
    )

    found = observed(tmp_path, gpus(1, 60 * GIB), server)

    assert parts_of(found, 0) == {"weights": WHOLE, "runtime": 60 * GIB - WHOLE}
    assert predicted(found, 0) == {"weights": WHOLE}
    (rank,) = found.servers[0].ranks
    assert (rank.tp_rank, rank.pp_rank, rank.pool_bytes) == (0, 0, {})
    assert "KV pool and runtime: how tensorrt_llm sizes them is not known here" in found.servers[0].notes


def test_ranks_that_share_a_checkpoint(tmp_path: Path) -> None:
    """Flags say that there are four: none of them is taken for the whole, and what each holds is only predicted."""
    server = Served(engine="tensorrt_llm", titles=titles(4, "trtllm-serve /m"), documents=TRTLLM, flags={"tp_size": 4})

    found = observed(tmp_path, gpus(4, 60 * GIB), server)

    for number in range(4):
        assert parts_of(found, number) == {"runtime": 60 * GIB}
        assert WHOLE // 4 <= predicted(found, number)["weights"] < WHOLE // 4 + (1 << 20)
    assert found.servers[0].arguments["tp"] == 4
    assert [rank.tp_rank for rank in found.servers[0].ranks] == [None] * 4


def test_ranks_by_the_order_of_configured_devices(tmp_path: Path) -> None:
    """Where the processes are hidden: two stages of two ranks each, as the flags say."""
    server = Served(
        engine="tensorrt_llm",
        titles={},
        documents=TRTLLM,
        flags={"tensor-parallel-size": 2, "pipeline-parallel-size": 2},
        devices=tuple(f"GPU-{number}" for number in range(4)),
    )

    found = observed(tmp_path, gpus(4, 60 * GIB, seen=False), server)

    ranks = {rank.gpu: (rank.pp_rank, rank.tp_rank) for rank in found.servers[0].ranks}
    assert ranks == {"0": (0, 0), "1": (0, 1), "2": (1, 0), "3": (1, 1)}


def test_more_devices_than_ranks_are_known(tmp_path: Path) -> None:
    """TGI takes all GPUs unless it is told otherwise: without a flag nothing is said of what each of them holds."""
    server = Served(engine="tgi", titles=titles(4, "text-generation-launcher"), documents=TGI)

    found = observed(tmp_path, gpus(4, 60 * GIB), server)

    assert [parts_of(found, number) for number in range(4)] == [{"runtime": 60 * GIB}] * 4
    assert [predicted(found, number) for number in range(4)] == [{}] * 4


def test_weights_that_are_quantised_while_they_load(tmp_path: Path) -> None:
    """The checkpoint's bytes are not theirs."""
    server = Served(
        engine="tgi",
        titles=titles(1, "text-generation-launcher"),
        documents=TGI,
        flags={"num-shard": 1, "quantize": "eetq"},
    )

    found = observed(tmp_path, gpus(1, 60 * GIB), server)

    assert parts_of(found, 0) == {"runtime": 60 * GIB}
