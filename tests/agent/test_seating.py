"""Which rank sits on which device, and whose pool is its own."""

import pytest

from agent.seating import ServerView, pools_of, seats
from collectors.readings import (
    DeviceReading,
    NodeReading,
    PoolReading,
    ProcessesReading,
    ProcessMemory,
    ProcessTree,
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
