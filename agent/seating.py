"""Which rank of which server sits on which device, and what of it is known in bytes. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.budget import Budget, RankBudget
from agent.reported import of_this_run
from collectors.readings import (
    Container,
    DeviceReading,
    LogReading,
    NodeReading,
    PoolReading,
    ProbeReading,
    ProcessTree,
    RankLog,
    RankTitle,
    ServerReading,
    ServerState,
)

_PORT = re.compile(r" --port[ =](\d{1,5})(?!\d)")


class ServerView(Struct, frozen=True, kw_only=True):
    """Everything known about one server at a tick. ``reading`` is None unless it is fresh."""

    name: str
    engine: str | None  # None: not known yet
    url: str
    state: ServerState
    reading: ServerReading | None = None
    tree: ProcessTree | None = None
    log: LogReading | None = None
    probes: tuple[ProbeReading, ...] = ()  # of its processes, and where these are not visible of its devices
    host_oom_kills: int | None = None
    container: Container | None = None
    titles: Mapping[int, RankTitle] = {}  # by pid
    devices: tuple[str, ...] = ()  # configured UUIDs, in rank order
    on_this_host: bool = True
    is_one_process: bool = False  # of an engine whose process holds all devices of its server
    processes_hidden: bool = False  # who listens on its port can't be seen; that nobody does is no such case
    tp: int = 1
    pp: int = 1
    dp: int = 1
    budget: Budget | None = None
    restarts: int = 0
    configured: bool = True
    model_path: str | None = None
    arguments: Mapping[str, int | float | str | bool | tuple[int, ...]] = {}
    growth_tokens_per_second: Mapping[tuple[str, str], float] = {}  # by replica and pool kind
    notes: tuple[str, ...] = ()


class Seat(Struct, frozen=True, kw_only=True):
    """One rank of a server on one device, the ``place``-th of those the server is seated on.

    ``is_part``: how the server divides its model over its devices is not known, since one process holds several or
    there are more of them than ranks.
    """

    server: str
    uuid: str
    rank: RankTitle | None
    pids: frozenset[int]
    place: int = 0
    is_part: bool = False


def seats(node: NodeReading, servers: Sequence[ServerView]) -> list[Seat]:
    """Which rank of which server sits on which device.

    By the pids that a server's process tree has on a device; where the driver or the host hides them, by the devices
    configured for the server in rank order; on a node with one device, by there being no other.
    """
    trees = {server.name: _pids(server) for server in servers}
    listed = [(device.uuid, pids) for device in node.devices if device.uuid and (pids := _listed(device))]
    return [
        seat
        for server in servers
        if server.state != "down"
        for seat in _seats(node, listed, server, _own(server, trees))
    ]


def _pids(server: ServerView) -> tuple[int, ...]:
    return tuple(process.pid for process in server.tree.processes) if server.tree else ()


def _own(server: ServerView, trees: Mapping[str, tuple[int, ...]]) -> frozenset[int]:
    """Its processes without those of servers that it started: each process is of the innermost."""
    own = trees[server.name]
    inner = (pids for name, pids in trees.items() if name != server.name and pids and pids[0] in own[1:])
    return frozenset(own).difference(*inner)


def _seats(
    node: NodeReading, listed: Sequence[tuple[str, frozenset[int]]], server: ServerView, own: frozenset[int]
) -> Iterator[Seat]:
    places = [(uuid, own & pids) for uuid, pids in listed if not own.isdisjoint(pids)]
    for number, (uuid, pids) in enumerate(places):
        rank = next((server.titles[pid] for pid in sorted(pids) if pid in server.titles), None)
        rank = rank or (_only_rank(server) if len(places) == 1 else None)
        is_part = _is_divided(server, len(places))
        yield Seat(server=server.name, uuid=uuid, rank=rank, pids=pids, place=number, is_part=is_part)
    if not places and (server.processes_hidden or (own and not _processes_visible(node))):
        configured = _configured(node, server)
        is_part = _is_divided(server, len(configured))
        for number, uuid in enumerate(configured):
            rank = _nth_rank(server, number)
            yield Seat(server=server.name, uuid=uuid, rank=rank, pids=frozenset(), place=number, is_part=is_part)


def _is_divided(server: ServerView, devices: int) -> bool:
    """Whether what each device has of the model is not known: no process says its rank, and there are too few ranks."""
    return not server.titles and devices > (1 if server.is_one_process else server.tp * server.pp * server.dp)


def _listed(device: DeviceReading) -> frozenset[int]:
    return frozenset(process.pid for process in device.processes.processes) if device.processes else frozenset()


def _processes_visible(node: NodeReading) -> bool:
    return any(device.processes and device.processes.processes for device in node.devices)


def _configured(node: NodeReading, server: ServerView) -> tuple[str, ...]:
    if server.devices:
        return server.devices
    only = node.devices[0].uuid if len(node.devices) == 1 else None
    return (only,) if only and server.on_this_host else ()


def _only_rank(server: ServerView) -> RankTitle | None:
    """The rank of a server that has one only, under the name its pages give it: one of a group has another than 0."""
    if not server.tp == server.pp == server.dp == 1:
        return None
    replicas = server.reading.replicas if server.reading else ()
    return RankTitle(tp_rank=0, pp_rank=0, replica=replicas[0].replica if len(replicas) == 1 else "0")


def _nth_rank(server: ServerView, number: int) -> RankTitle | None:
    replica, within = divmod(number, server.tp * server.pp)
    if replica >= server.dp:
        return None
    return RankTitle(tp_rank=within % server.tp, pp_rank=within // server.tp, replica=str(replica))


def rank_budget(server: ServerView, rank: RankTitle | None) -> RankBudget | None:
    """The budget of a rank; without a known rank only where all ranks are alike."""
    if server.budget is None or not server.budget.ranks:
        return None
    if rank is None:
        first = server.budget.ranks[0]
        alike = all((other.weights_bytes, other.kv) == (first.weights_bytes, first.kv) for other in server.budget.ranks)
        return first if alike else None
    wanted = (rank.tp_rank, rank.pp_rank)
    return next((budget for budget in server.budget.ranks if (budget.tp_rank, budget.pp_rank) == wanted), None)


def predicted_at(server: ServerView, seat: Seat) -> RankBudget | None:
    """The budget beside what lies at a seat; of one part of several only where that was planned."""
    is_whole = server.budget is not None and len(server.budget.ranks) == 1
    return None if seat.is_part and is_whole else rank_budget(server, seat.rank)


def pools_of(server: ServerView, rank: RankTitle | None) -> tuple[PoolReading, ...]:
    """The pools of a rank's replica; without a known rank only where the server has one replica."""
    pools = server.reading.pools if server.reading else ()
    if rank is None:
        return pools if len({pool.replica for pool in pools}) == 1 else ()
    return tuple(pool for pool in pools if pool.replica == rank.replica)


def block_bytes(pool: PoolReading, budget: RankBudget | None) -> int | None:
    """Bytes of a block of this kind of pool on one rank, in its exact layout."""
    if budget is None:
        return None
    if pool.kind != "full":
        return budget.kv.apart_block_bytes.get(pool.kind)
    token, size = budget.kv.bytes_per_token, pool.block_size_tokens
    if budget.kv.bytes_per_block is None and isinstance(token, int) and size:
        return token * size  # how large a block is only the engine says
    return budget.kv.bytes_per_block


def pool_bytes(pool: PoolReading, budget: RankBudget | None) -> int | None:
    """Bytes of a pool on one rank: as the engine says, else its blocks times the exact bytes of a block."""
    if pool.pool_bytes is not None:
        return pool.pool_bytes
    block = block_bytes(pool, budget)
    return pool.blocks * block if pool.blocks is not None and block else None


def log_of(server: ServerView, seat: Seat) -> RankLog | None:
    """What the server's log says of the rank or device at this seat; of models that come and go, where only the one it
    tells of is there."""
    log = server.log
    if log is None or (log.several_models and not _is_alone(log, server.tree)) or not of_this_run(log, server.reading):
        return None
    if all(one.rank is None for one in log.ranks):
        return next((one for one in log.ranks if one.device == seat.place), None)
    if len(log.ranks) == 1 and server.tp == server.pp == server.dp == 1:
        return log.ranks[0]
    found = next((one for one in log.ranks if one.rank is not None and one.rank == seat.rank), None)
    return _spoken_for(found, log, seat.rank) if log.first_speaks and seat.rank is not None else found


def _is_alone(log: LogReading, tree: ProcessTree | None) -> bool:
    """Whether the process that loaded the log's newest model is the only one that holds any."""
    titles = (process.title for process in tree.processes) if tree else ()
    ports = [int(found[1]) for title in titles if (found := _PORT.search(title))]
    return log.port is not None and ports == [log.port]


def _comes_before(first: RankTitle | None, rank: RankTitle) -> bool:
    return first is not None and first.pp_rank == rank.pp_rank and first.tp_rank <= rank.tp_rank


def _spoken_for(found: RankLog | None, log: LogReading, rank: RankTitle) -> RankLog | None:
    """A rank whose weights and graphs the first of its stage tells: ranks of a stage are alike in both."""
    first = next((one for one in log.ranks if one.weights_bytes is not None and _comes_before(one.rank, rank)), None)
    if first is None:
        return found
    found = found or RankLog(rank=rank)
    graphs = first.cuda_graphs_bytes if found.cuda_graphs_bytes is None else found.cuda_graphs_bytes
    return replace(found, weights_bytes=found.weights_bytes or first.weights_bytes, cuda_graphs_bytes=graphs)


def budget_at(server: ServerView, seat: Seat) -> RankBudget | None:
    """The budget of what lies at a seat; None where it has only some of the model, for which is not known."""
    budget = rank_budget(server, seat.rank)
    held = server.reading.layers_on_devices if server.reading else None
    layers = sum(group.count for group in server.budget.model.layers) if server.budget else 0
    return None if seat.is_part or (held is not None and held <= layers) else budget
