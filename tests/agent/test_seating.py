"""Which rank sits on which device, and whose pool is its own."""

import pytest

from agent.memory.breakdown import Part
from agent.seating import ServerView, named_parts, pools_of, seats
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
