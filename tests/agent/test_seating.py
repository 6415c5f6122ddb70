"""Which rank sits on which device, and whose pool is its own."""

import pytest

from agent.memory.breakdown import Part
from agent.named import named_parts
from agent.seating import Seat, ServerView, log_of, pools_of, seats
from collectors.engine_logs.llama_cpp import OLLAMA
from collectors.engine_logs.vllm import FORMAT as VLLM
from collectors.readings import (
    DeviceReading,
    LogReading,
    NodeReading,
    PoolReading,
    ProcessesReading,
    ProcessMemory,
    ProcessTree,
    RankLog,
    RankTitle,
    ReplicaReading,
    ServerProcess,
    ServerReading,
)
from tests.collectors.engine_logs.lines import GIB, read

PROCESSES = ProcessesReading(at=1.0, processes=(ProcessMemory(pid=7, used_bytes=1),))
NODE = NodeReading(at=1.0, driver_version="590", devices=(DeviceReading(index=0, uuid="GPU-a", processes=PROCESSES),))
TREE = ProcessTree(at=1.0, processes=(ServerProcess(pid=7, started_at=0.0, title="python -m vllm"),))


@pytest.mark.parametrize("replica", ["0", "3", "abc/0"])
def test_the_only_rank_of_a_server_has_its_only_pool(replica: str) -> None:
    """Behind an external balancer, or under Ray, a server's one replica has another name than 0."""
    reading = ServerReading(
        at=1.0,
        engine="vllm",
        state="serving",
        pools=(PoolReading(replica=replica, blocks=10),),
        replicas=(ReplicaReading(replica=replica),),
    )
    server = ServerView(
        name="chat", engine="vllm", url="http://127.0.0.1:1", state="serving", reading=reading, tree=TREE
    )

    (seat,) = seats(NODE, [server])

    assert seat.rank is not None
    assert seat.rank.replica == replica
    assert pools_of(server, seat.rank) == reading.pools[:1]


def test_a_pool_that_only_the_log_sizes_is_filled_by_its_ratio() -> None:
    """As LMDeploy's: the endpoint says how full, the log of this run how large; without either nothing is known."""
    size = 1000
    rank = RankLog(rank=RankTitle(tp_rank=0, pp_rank=0, replica="0"), kv_pool_bytes=size)
    log = LogReading(at=1.0, engine="LMDeploy", ready=True, ranks=(rank,))

    def parts(pool: PoolReading, log: LogReading | None) -> tuple[Part, ...]:
        reading = ServerReading(at=1.0, engine="lmdeploy", state="serving", pools=(pool,))
        server = ServerView(
            name="chat",
            engine="lmdeploy",
            url="http://127.0.0.1:1",
            state="serving",
            reading=reading,
            tree=TREE,
            log=log,
        )
        return named_parts(server, seats(NODE, [server])[0])

    found = {
        part.component: (part.bytes, part.evidence) for part in parts(PoolReading(replica="0", used_ratio=0.25), log)
    }
    assert found == {"kv_used": (250, "reported"), "kv_available": (750, "reported")}
    assert parts(PoolReading(replica="0"), log) == ()
    assert parts(PoolReading(replica="0", used_ratio=0.25), None) == ()


def vllm() -> ServerView:
    """A server of four ranks, of which the log names the first one's weights."""
    lines = [
        "(Worker_TP0 pid=1) Model loading took 2.0 GiB memory and 3.6 seconds",
        "(Worker_TP0 pid=1) Graph capturing finished in 5 secs, took 0.50 GiB",
        "(Worker_TP1 pid=2) CUDA graph pool memory: 0.25 GiB (actual), 0.71 GiB (estimated), difference: 0.46 GiB",
    ]
    return ServerView(
        name="chat", engine="vllm", url="http://127.0.0.1:1", state="serving", tp=2, pp=2, log=read(VLLM, *lines)
    )


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        (RankTitle(tp_rank=0, pp_rank=0, replica="0"), (2 * GIB, GIB // 2)),
        (RankTitle(tp_rank=1, pp_rank=0, replica="0"), (2 * GIB, GIB // 4)),
        (RankTitle(tp_rank=1, pp_rank=0, replica="1"), (2 * GIB, GIB // 2)),
        (RankTitle(tp_rank=0, pp_rank=1, replica="0"), None),
    ],
)
def test_the_first_rank_of_a_node_speaks_for_its_stage(rank: RankTitle, expected: tuple[int, int] | None) -> None:
    """vLLM 0.32 logs weights and graphs once on each node; a rank's own line wins, another stage is not alike."""
    found = log_of(vllm(), Seat(server="chat", uuid="GPU-a", rank=rank, pids=frozenset()))

    assert (found and (found.weights_bytes, found.cuda_graphs_bytes)) == expected


@pytest.mark.parametrize(
    ("runners", "known"),
    [
        (("ollama runner --model /b/sha256-a --port 36491",), True),
        (("llama-server --model /b/sha256-a --port=36491 -c 4096",), True),
        (("ollama runner --model /b/sha256-b --port 40000",), False),
        (("ollama runner --model /b/x --port 36491", "ollama runner --model /b/y --port 40000"), False),
        ((), False),
    ],
)
@pytest.mark.parametrize("words", ["runner", "llama-server", "llama server"])
def test_sizes_of_a_model_that_is_the_only_one_loaded(words: str, runners: tuple[str, ...], known: bool) -> None:
    """Ollama's log tells of the model that was loaded last, by the port of its runner."""
    log = read(
        OLLAMA,
        f'level=INFO msg="starting {words}" cmd="/usr/bin/ollama runner --model /b/x --port 36491"',
        "system_info: n_threads = 8",
        "load_tensors:        CUDA0 model buffer size =  1024.00 MiB",
    )
    titles = ("ollama serve", *runners)
    tree = ProcessTree(
        at=1.0, processes=tuple(ServerProcess(pid=7 + n, started_at=0.0, title=text) for n, text in enumerate(titles))
    )
    server = ServerView(
        name="chat", engine="ollama", url="http://127.0.0.1:1", state="serving", tree=tree, log=log, is_one_process=True
    )

    found = log_of(server, Seat(server="chat", uuid="GPU-a", rank=None, pids=frozenset({8})))

    assert (found.weights_bytes if found else None) == (GIB if known else None)


def test_a_server_that_another_one_started_keeps_its_processes() -> None:
    """What a supervisor with a port of its own started is no part of the supervisor, wherever both are seated."""
    child = ServerProcess(pid=8, started_at=0.0, title="python -m vllm")
    held = tuple(
        DeviceReading(
            index=index,
            uuid=uuid,
            processes=ProcessesReading(at=1.0, processes=(ProcessMemory(pid=pid, used_bytes=1),)),
        )
        for index, (uuid, pid) in enumerate((("GPU-a", 7), ("GPU-b", 8)))
    )
    trees = {"outer": (*TREE.processes, child), "inner": (child,)}
    views = [
        ServerView(
            name=name,
            engine="vllm",
            url="",
            state="serving",
            tree=ProcessTree(at=1.0, processes=pids),
            is_one_process=True,
        )
        for name, pids in trees.items()
    ]

    seated = seats(NodeReading(at=1.0, driver_version="590", devices=held), views)

    assert [(seat.server, seat.uuid, set(seat.pids), seat.is_part) for seat in seated] == [
        ("outer", "GPU-a", {7}, False),
        ("inner", "GPU-b", {8}, False),
    ]
