"""Whole nodes with servers whose pool is not planned: flags say which ranks there are, and what one rank holds."""

from pathlib import Path

from agent.snapshot import Snapshot
from collectors.simulated.state import NodeState
from tests.collectors.replay import FIXTURES
from tests.collectors.tensorrt_llm.engines import engine_folder
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


_IDLE = (FIXTURES / "triton" / "25.06" / "metrics_idle.txt").read_text(encoding="utf-8")
_BLOCK = 'kv_cache_block_type="{}",model="tensorrt_llm",version="1"}} {}'
TRITON = {"/metrics": _IDLE.replace(_BLOCK.format("used", 0), _BLOCK.format("used", 250))}


def test_an_engine_that_was_built_tells_weights_and_the_bytes_of_its_blocks(tmp_path: Path) -> None:
    """In Triton, which shows 250 of 1,000 blocks of 64 tokens: 24 layers of 2 heads of 64 in 2 bytes."""
    folder = engine_folder(tmp_path, 2 * GIB)
    server = Served(engine="triton", titles=titles(1, "tritonserver"), documents=TRITON, engine_folder=folder)

    found = observed(tmp_path, gpus(1, 60 * GIB), server)

    block = 64 * 24 * 2 * 2 * 64 * 2
    kv = {"kv_used": 250 * block, "kv_available": 750 * block}
    assert parts_of(found, 0) == {"weights": 2 * GIB, **kv, "runtime": 60 * GIB - 2 * GIB - 1000 * block}
    (pool,) = found.servers[0].pools
    assert (pool.pool_bytes, pool.bytes_per_token) == (1000 * block, block // 64)


def test_an_engine_for_several_gpus_says_how_many_ranks_it_has(tmp_path: Path) -> None:
    """Without any flag: each of two has a file of its own, of which the larger stands for both."""
    folder = engine_folder(tmp_path, 2 * GIB, 3 * GIB, tp=2)
    server = Served(engine="triton", titles=titles(2, "tritonserver"), documents=TRITON, engine_folder=folder)

    found = observed(tmp_path, gpus(2, 60 * GIB), server)

    assert found.servers[0].arguments["tp"] == 2
    assert [parts_of(found, number)["weights"] for number in range(2)] == [3 * GIB] * 2
