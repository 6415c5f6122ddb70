"""The board: what a tick makes of readings that are fresh, stale, missing or contradicting."""

import json
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from agent.board import Board
from agent.memory.arguments import Arguments
from agent.processes import with_names
from agent.snapshot import Device, Server
from agent.watch import ServerFacts, ServerWatch
from collectors.engine_search import ENGINE_UNKNOWN
from collectors.readings import (
    DeviceReading,
    Fault,
    MemoryReading,
    ModelFiles,
    NodeReading,
    PoolReading,
    ProcessesReading,
    ProcessMemory,
    ProcessTree,
    ReplicaReading,
    ServerProcess,
    ServerReading,
)
from collectors.run import Outcome
from collectors.vllm.titles import rank_of

T = TypeVar("T")
GIB = 2**30
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
WEIGHTS = 16_060_522_496
BLOCK = 16 * 131_072
BLOCKS = 8192


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """One board over servers, with shortcuts that hand readings in."""

    def __init__(self, *facts: ServerFacts, pace: float = 1.0) -> None:
        self.clock = Clock()
        self.wall_offset = 1e9
        self.watches = [ServerWatch(one, rank_of=rank_of) for one in facts]
        self.board = Board(
            self.watches,
            memory_interval_seconds=1.0,
            clock=self.clock,
            wall=lambda: self.clock.now + self.wall_offset,
            pace=pace,
        )

    def node(self, *devices: DeviceReading) -> None:
        self.board.took_node(NodeReading(at=self.clock.now, driver_version="580", devices=devices))

    def server(self, number: int = 0, **fields: object) -> None:
        reading = msgspec.structs.replace(serving(self.clock.now), **fields)
        self.board.took_server(self.watches[number], self.outcome(reading))

    def refuse(self, number: int = 0, *, reason: str = "refused") -> None:
        fault = Fault(reason=reason, message="nothing listens")
        self.board.took_server(
            self.watches[number], Outcome(value=None, fault=fault, duration_seconds=0.0, at=self.clock.now)
        )

    def tree(self, *pids: int, number: int = 0) -> None:
        processes = tuple(ServerProcess(pid=pid, started_at=1.0, title="VLLM::EngineCore") for pid in pids)
        tree = ProcessTree(at=self.clock.now, processes=processes) if pids else None
        self.board.took_tree(self.watches[number], self.outcome(tree))

    def hide(self, number: int = 0) -> None:
        fault = Fault(reason="permission", message="hidden from us")
        outcome: Outcome[ProcessTree | None] = Outcome(value=None, fault=fault, duration_seconds=0.0, at=self.clock.now)
        self.board.took_tree(self.watches[number], outcome)

    def model(self, number: int = 0, config: dict[str, object] = LLAMA) -> None:
        files = ModelFiles(path="/m", config=config, tensor_bytes=WEIGHTS, tensor_source="index")
        self.board.took_model(self.watches[number], self.outcome(files))

    def outcome(self, value: T) -> Outcome[T]:
        return Outcome(value=value, fault=None, duration_seconds=0.01, at=self.clock.now)

    def device(self, number: int = 0) -> Device:
        return self.board.tick().snapshot.devices[number]

    def servers(self) -> tuple[Server, ...]:
        return self.board.tick().snapshot.servers


def facts(name: str = "chat", **fields: object) -> ServerFacts:
    known = {"name": name, "engine": "vllm", "url": "http://127.0.0.1:8000", "given": Arguments()}
    return ServerFacts(**(known | fields))  # type: ignore[arg-type] # fields are those of the record


def gpu(
    clock: Clock, *, index: int = 0, used: dict[int, int | None] | None = None, free: int = 20 * GIB, **fields: object
) -> DeviceReading:
    listed = tuple(ProcessMemory(pid=pid, used_bytes=count) for pid, count in (used or {}).items())
    known: dict[str, object] = {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "H100",
        "memory": MemoryReading(at=clock.now, total_bytes=80 * GIB, free_bytes=free, reserved_bytes=GIB // 2),
        "processes": None if used is None else ProcessesReading(at=clock.now, processes=listed),
    }
    return DeviceReading(**(known | fields))  # type: ignore[arg-type] # fields are those of the record


def serving(at: float) -> ServerReading:
    pool = PoolReading(
        replica="0",
        used_ratio=1000 / (BLOCKS - 1),
        capacity_tokens=BLOCKS * 16,
        used_tokens=16_000,
        available_tokens=BLOCKS * 16 - 16_000,
        blocks=BLOCKS,
        used_blocks=1000,
        block_size_tokens=16,
    )
    replica = ReplicaReading(
        replica="0",
        running_requests=10,
        waiting_requests=0,
        preemptions=0,
        prompt_tokens=100,
        generation_tokens=200,
    )
    return ServerReading(
        at=at,
        engine="vllm",
        state="serving",
        version="0.32.0",
        model="llama",
        started_at=5e8,
        pools=(pool,),
        replicas=(replica,),
        arguments={"block_size": 16, "max_model_len": 131072, "gpu_memory_utilization": 0.9},
    )


@pytest.fixture
def bench() -> Bench:
    return Bench(facts())


def closed(device: Device) -> dict[str, int]:
    assert sum(part.bytes for part in device.components) == device.total_bytes
    assert all(part.bytes >= 0 for part in device.components)
    return {part.component: part.bytes for part in device.components}


def test_every_byte_beside_a_server(bench: Bench) -> None:
    """Weights from the checkpoint, pool from reported blocks, runtime the rest of its processes, budget beside."""
    bench.node(gpu(bench.clock, used={7: 40 * GIB, 9: 3 * GIB}))
    bench.server()
    bench.tree(5, 7)
    bench.model()

    device = bench.device()

    assert closed(device) == {
        "weights": WEIGHTS,
        "kv_used": 1000 * BLOCK,
        "kv_available": (BLOCKS - 1000) * BLOCK,
        "runtime": 40 * GIB - WEIGHTS - BLOCKS * BLOCK,
        "other_processes": 3 * GIB,
        "reserved": GIB // 2,
        "hidden": 80 * GIB - 20 * GIB - GIB // 2 - 43 * GIB,
        "free": 20 * GIB,
    }
    budget = {(line.component, line.bound): line.bytes for line in device.budget}
    assert budget["weights", "likely"] == WEIGHTS
    assert budget["runtime", "low"] < budget["runtime", "likely"] < budget["runtime", "high"]
    assert device.headroom_ratio is not None
    assert device.unexplained_bytes == {"chat": max(0, closed(device)["runtime"] - budget["runtime", "high"])}


def test_pool_and_request_figures(bench: Bench) -> None:
    """Exact bytes of the pool and per token; one full-length request; nothing of it guessed."""
    bench.node(gpu(bench.clock, used={7: 40 * GIB}))
    bench.server()
    bench.tree(7)
    bench.model()

    server = bench.servers()[0]

    assert server.pools[0].pool_bytes == BLOCKS * BLOCK
    assert server.pools[0].bytes_per_token == 131_072
    assert (server.max_request_tokens, server.max_request_bytes) == (131_072, 131_072 * 131_072)
    assert server.ranks[0].pool_bytes == {"full": BLOCKS * BLOCK}


@pytest.mark.parametrize("pace", [1.0, 30.0])
def test_growth_is_by_the_seconds_of_the_node(pace: float) -> None:
    """As forecasts are, so that tokens left by growth is time left, however fast a simulated node lives."""
    watch = ServerWatch(facts(), rank_of=rank_of)
    for second in range(60):
        reading = serving(float(second))
        watch.took(replace(reading, pools=(replace(reading.pools[0], used_tokens=300 * second),)), pace=pace)

    assert watch.view().growth_tokens_per_second == {("0", "full"): pytest.approx(300 / pace)}


def test_growth_is_known_after_half_a_minute_of_the_node() -> None:
    """That is four seconds of one that lives ten times as fast; a fall is forgotten as soon."""
    watch = ServerWatch(facts(), rank_of=rank_of)

    def growth(second: int, used: int) -> float | None:
        pools = (replace(serving(0.0).pools[0], used_tokens=used),)
        watch.took(replace(serving(float(second)), pools=pools), pace=10.0)
        return watch.view().growth_tokens_per_second.get(("0", "full"))

    rising = [growth(second, 50_000 + 2000 * second) for second in range(6)]
    assert rising[:2] == [None, None]
    assert rising[-1] == pytest.approx(200.0)

    fallen = [growth(6 + second, 5000) for second in range(6)]
    assert fallen[-1] == pytest.approx(0.0)


GEMMA = LLAMA | {"model_type": "gemma2", "sliding_window": 4096, "head_dim": 128, "query_pre_attn_scalar": 128}


@pytest.mark.parametrize(("estimated", "tokens"), [(True, None), (False, BLOCKS * 16)])
def test_blocks_of_several_groups_are_no_tokens(bench: Bench, estimated: bool, tokens: int | None) -> None:
    """Windows and full layers draw from one pool: its bytes are exact, blocks x block size are no tokens."""
    bench.node(gpu(bench.clock, used={7: 40 * GIB}))
    pools = tuple(replace(pool, capacity_is_estimate=estimated) for pool in serving(0).pools)
    bench.server(pools=pools)
    bench.tree(7)
    bench.model(config=GEMMA)

    server = bench.servers()[0]

    pool = server.pools[0]
    assert (pool.pool_bytes, pool.capacity_tokens) == (BLOCKS * 16 * 65_536, tokens)
    assert (pool.used_tokens is None, pool.growth_tokens_per_second) == (estimated, None)
    assert pool.bytes_per_token == 65_536
    assert server.fragmentation == ()
    assert (json.loads(bench.board.history_json())["pools"] == []) is estimated


def test_without_a_model_its_processes_are_runtime(bench: Bench) -> None:
    """No layout, no bytes: pool tokens stay, headroom and unexplained are absent."""
    bench.node(gpu(bench.clock, used={7: 40 * GIB}))
    bench.server()
    bench.tree(7)

    device = bench.device()

    assert closed(device)["runtime"] == 40 * GIB
    assert (device.headroom_ratio, device.unexplained_bytes, device.budget) == (None, {}, ())
    assert bench.servers()[0].pools[0].used_tokens == 16_000


def test_unknown_architecture_is_no_guess(bench: Bench) -> None:
    """A model type that is not known gives no KV bytes and says why."""
    bench.node(gpu(bench.clock, used={7: 40 * GIB}))
    bench.server()
    bench.tree(7)
    bench.model(config=LLAMA | {"model_type": "novel_attention", "architectures": ["NovelForCausalLM"]})

    device = bench.device()

    assert "kv_used" not in closed(device)
    assert bench.servers()[0].pools[0].pool_bytes is None
    assert any("novel_attention" in note for note in bench.servers()[0].notes)


def test_an_absurd_config_fails_the_model_and_nothing_else(bench: Bench) -> None:
    """No budget, and why; everything that does not need one goes on."""
    bench.node(gpu(bench.clock, used={7: 40 * GIB}))
    bench.server()
    bench.tree(7)
    bench.model(config=LLAMA | {"num_hidden_layers": -3})

    server = bench.servers()[0]

    failed = {(c.name, c.target): c.error or "" for c in bench.board.published.snapshot.collectors if not c.success}
    assert "num_hidden_layers" in failed["model", "chat"]
    assert server.pools[0].used_tokens == 16_000
    assert closed(bench.device())["runtime"] == 40 * GIB


class Trap(dict[str, object]):
    """A config that fails as no config is known to."""

    def __init__(self, armed: bool) -> None:
        super().__init__(LLAMA)
        self.armed = armed

    def keys(self) -> Any:
        if self.armed:
            raise ZeroDivisionError("secret")
        return super().keys()


TRAPPED = Trap.keys.__code__.co_firstlineno + 2


def test_a_bug_in_the_prediction_of_one_server_is_a_note_of_it(caplog: pytest.LogCaptureFixture) -> None:
    """The tick goes on with all else, and the traceback is logged once."""
    bench = Bench(facts("chat"), facts("code"))
    config = Trap(armed=False)
    for number in (0, 1):
        bench.server(number)
    bench.model(0, config)
    bench.model(1)
    config.armed = True

    ticks = [bench.servers() for _ in range(3)]

    assert [[note for note in server.notes if note.startswith("no budget")] for server in ticks[-1]] == [
        [f"no budget: /m: ZeroDivisionError at test_board.py:{TRAPPED}; this is a bug of vramscope, please report it"],
        [],
    ]
    assert [line.exc_info is not None for line in caplog.records if line.levelname == "ERROR"] == [True]


def test_a_model_that_fails_in_a_way_nobody_foresaw(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """It is a failure of the model's collector; what was known of an earlier one is not kept."""
    bench.server()
    bench.model()
    bench.model(config=Trap(armed=True))

    server = bench.servers()[0]

    failed = {(c.name, c.target): c.error for c in bench.board.published.snapshot.collectors if not c.success}
    assert failed["model", "chat"] == (
        f"collector model of chat failed with ZeroDivisionError at test_board.py:{TRAPPED}; this is a bug of vramscope,"
        " please report it"
    )
    assert bench.watches[0].model is None
    assert server.pools[0].used_tokens == 16_000
    assert [line.exc_info is not None for line in caplog.records if line.levelname == "ERROR"] == [True]


def test_an_answer_that_fails_in_a_way_nobody_foresaw(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """It is a failure of the endpoint; the traceback is logged once, and the next answer that can be used heals it."""
    bench.server()
    for _ in range(3):
        bench.server(pools=(None,))
    failing, collectors = bench.servers()[0], bench.board.published.snapshot.collectors
    bench.server()

    assert (failing.state, failing.pools) == ("down", ())
    assert [c.failures["bug"] for c in collectors if c.name == "endpoint"] == [3]
    assert [line.exc_info is not None for line in caplog.records if line.levelname == "ERROR"] == [True]
    assert bench.servers()[0].state == "serving"
    assert all(c.success for c in bench.board.published.snapshot.collectors if c.name == "endpoint")


def test_invisible_processes_on_a_single_device(bench: Bench) -> None:
    """In a container without the host's pids: computed parts stay, the rest is hidden."""
    bench.node(gpu(bench.clock, used={}))
    bench.server()
    bench.hide()
    bench.model()

    parts = closed(bench.device())

    assert (parts["weights"], parts["kv_used"]) == (WEIGHTS, 1000 * BLOCK)
    assert "runtime" not in parts
    assert "other_processes" not in parts


def test_a_server_whose_processes_just_died_claims_nothing(bench: Bench) -> None:
    """Its last answer is a moment old, but nobody listens any more: its parts are not laid into what others left."""
    bench.node(gpu(bench.clock, used={9: 3 * GIB}))
    bench.server()
    bench.tree()
    bench.model()

    assert set(closed(bench.device())) == {"other_processes", "reserved", "hidden", "free"}


def test_a_crash_takes_answer_and_processes_in_one_tick(bench: Bench) -> None:
    """Nothing listens any more and its processes are gone: what it said a moment ago is not current."""
    bench.node(gpu(bench.clock, used={7: 40 * GIB}))
    bench.server()
    bench.tree(7)
    bench.model()
    bench.tree()

    server = bench.servers()[0]

    assert (server.state, server.pools) == ("down", ())
    assert set(closed(bench.device())) == {"other_processes", "reserved", "hidden", "free"}


def test_a_server_that_is_on_no_gpu_claims_none(bench: Bench) -> None:
    """Its processes are known and hold nothing here: it runs on the CPU."""
    bench.node(gpu(bench.clock, used={9: 30 * GIB}))
    bench.server()
    bench.tree(7)
    bench.model()

    assert closed(bench.device())["other_processes"] == 30 * GIB
    assert bench.servers()[0].devices == ()


def test_refused_endpoint_with_living_processes_is_loading(bench: Bench) -> None:
    """What the endpoint said is gone within the tick; its processes are still its own."""
    bench.node(gpu(bench.clock, used={7: 40 * GIB}))
    bench.server()
    bench.tree(7)
    bench.model()
    bench.refuse()

    device = bench.device()
    server = bench.servers()[0]

    assert closed(device)["runtime"] == 40 * GIB
    assert (server.state, server.pools, server.version) == ("loading", (), None)
    assert device.unexplained_bytes == {}


def test_what_loads_is_beside_no_budget(bench: Bench) -> None:
    """Its runtime has weights in it: the budget is there, and no part is to be like it until it serves."""
    bench.node(gpu(bench.clock, used={7: 30 * GIB}))
    bench.model()
    bench.tree(7)
    loading = bench.device()
    bench.server()
    serves = bench.device()

    assert {line.component for line in loading.budget} >= {"weights", "runtime"}
    assert {part.budget_bytes for part in loading.components} == {None}
    assert {part.component: part.budget_bytes for part in serves.components}["weights"] == WEIGHTS


def test_a_dead_server_is_down_and_owns_nothing(bench: Bench) -> None:
    """Name and state are all that is left."""
    bench.node(gpu(bench.clock, used={9: GIB}))
    bench.server()
    bench.tree(7)
    bench.refuse()
    bench.tree()

    server = bench.servers()[0]

    assert (server.state, server.pools, server.counters.preemptions, server.devices) == ("down", (), None, ())
    assert "runtime" not in closed(bench.device())


def test_a_server_that_was_not_asked_yet_is_in_no_state(bench: Bench) -> None:
    """Until it has answered or has not, it is neither down nor anything else; its processes are its own at once."""
    assert bench.board.published.snapshot.servers == ()
    bench.node(gpu(bench.clock, used={7: GIB}))
    assert bench.servers() == ()

    bench.tree(7)
    assert [server.state for server in bench.servers()] == ["loading"]
    assert closed(bench.device())["runtime"] == GIB

    bench.tree()
    bench.refuse()
    assert [server.state for server in bench.servers()] == ["down"]


def test_a_restart_is_counted_and_clears_the_history(bench: Bench) -> None:
    """A new start time after a time without answers; the pool's past is not drawn on."""
    for _ in range(60):
        bench.server()
        bench.clock.now += 1
    bench.refuse()
    bench.server(started_at=6e8)

    server = bench.servers()[0]

    assert server.restarts == 1
    assert server.pools[0].growth_tokens_per_second is None


def test_a_counter_that_went_back_is_a_restart_too(bench: Bench) -> None:
    """Where the engine does not tell when it started."""
    bench.server(started_at=None)
    replica = serving(0.0).replicas[0]
    bench.server(started_at=None, replicas=(msgspec.structs.replace(replica, generation_tokens=5),))

    assert bench.servers()[0].restarts == 1


def test_a_crash_loop_while_it_loads(bench: Bench) -> None:
    """New processes are restarts before the endpoint ever answers, and raise the risk; what it then says adds none."""
    bench.node(gpu(bench.clock, used={}))
    for _ in range(60):
        bench.server()
        bench.clock.now += 1
    bench.tree(7)
    assert bench.servers()[0].restarts == 0

    told = []
    for pid in (8, 9, 10):
        bench.tree()
        bench.refuse()
        bench.clock.now += 5
        bench.board.tick()
        bench.tree(pid)
        server = bench.servers()[0]
        told.append((server.state, server.restarts, server.risk and server.risk.reason))
        bench.clock.now += 5
    bench.server(started_at=6e8)
    bench.tree(10)
    back = bench.servers()[0]

    assert told == [("loading", 1, None), ("loading", 2, None), ("loading", 3, "restart_loop")]
    assert (back.state, back.restarts, back.risk and back.risk.level) == ("serving", 3, "at_risk")
    assert back.pools[0].growth_tokens_per_second is None


def test_new_processes_end_what_the_old_ones_said(bench: Bench) -> None:
    """Started anew between two looks: the answer of a moment ago and the growth of its pool are of the former run."""
    bench.tree(7)
    for _ in range(60):
        bench.server()
        bench.clock.now += 1
    bench.tree(9)

    loading = bench.servers()[0]
    bench.server(started_at=6e8)
    back = bench.servers()[0]

    assert (loading.state, loading.pools, loading.restarts) == ("loading", (), 1)
    assert (back.restarts, back.pools[0].growth_tokens_per_second) == (1, None)


def test_a_guest_on_the_gpu_of_a_server_that_is_down(bench: Bench) -> None:
    """It can't come back, and its GPU says why: where it lived and what it needs is remembered, and not exported."""

    def passes(*, guest: int, own: int) -> None:
        used: dict[int, int | None] = {9: guest, **({7: own} if own else {})}
        for _ in range(30):
            bench.node(gpu(bench.clock, used=used, free=80 * GIB - GIB // 2 - guest - own))
            bench.board.looked_for("", None, 0.01)
            bench.board.tick()
            bench.clock.now += 1

    bench.model()
    bench.tree(7)
    bench.server()
    passes(guest=0, own=40 * GIB)
    bench.tree()
    passes(guest=70 * GIB, own=0)
    down = bench.board.tick().snapshot

    assert down.servers[0].risk is not None
    assert (down.servers[0].state, down.servers[0].devices, down.servers[0].budget_fits) == ("down", (), None)
    assert (down.servers[0].risk.level, down.servers[0].risk.reason) == ("at_risk", "budget_mismatch")
    assert down.servers[0].risk.numbers["needed_bytes"] > WEIGHTS
    assert down.devices[0].budget == ()
    assert down.devices[0].risk is not None
    assert down.devices[0].risk.reason == "foreign_process"


def test_what_the_endpoint_told_is_kept_when_the_processes_follow(bench: Bench) -> None:
    """The restart was noticed by its answer; the new processes come a pass later."""
    bench.tree(7)
    bench.server()
    bench.clock.now += 1
    bench.server(started_at=6e8)
    bench.clock.now += 1
    bench.tree(9)

    server = bench.servers()[0]

    assert (server.state, server.restarts, server.pools[0].used_tokens) == ("serving", 1, 16_000)


def test_stale_device_readings_are_dropped(bench: Bench) -> None:
    """Three intervals without a pass: no device, rather than a frozen one."""
    bench.node(gpu(bench.clock, used={}))
    bench.clock.now += 2.9
    assert len(bench.board.tick().snapshot.devices) == 1

    bench.clock.now += 0.2
    snapshot = bench.board.tick().snapshot
    assert snapshot.devices == ()
    assert {c.error for c in snapshot.collectors if c.name == "nvml"} == {
        "no reading of the devices for more than 3 s; the driver or its reader is slow"
    }


def test_one_failing_device_costs_only_its_own_components(bench: Bench) -> None:
    """The other device's sum stays; the failure is a collector's record with the device as target."""
    fault = Fault(reason="gpu_lost", message="GPU 1 is lost")
    bench.node(gpu(bench.clock, used={}), gpu(bench.clock, index=1, memory=None, memory_fault=fault))

    snapshot = bench.board.tick().snapshot

    assert closed(snapshot.devices[0])
    assert snapshot.devices[1].components == ()
    failed = {(c.name, c.target): c.error for c in snapshot.collectors if not c.success}
    assert failed == {("nvml", "GPU-1"): "GPU 1 is lost"}


def test_no_driver_keeps_the_servers(bench: Bench) -> None:
    """Engine figures do not need a GPU."""
    bench.board.lost_node(Fault(reason="no_library", message="no NVML on this host"))
    bench.server()

    snapshot = bench.board.tick().snapshot

    assert snapshot.devices == ()
    assert snapshot.servers[0].pools[0].used_tokens == 16_000
    assert bench.board.not_ready() is None


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_step_of_the_wall_clock_changes_nothing_but_the_date(bench: Bench, step: float) -> None:
    """Ages, growth, restarts, freshness and extremes run on the monotonic clock."""
    for _ in range(60):
        bench.node(gpu(bench.clock, used={7: 40 * GIB}))
        bench.server()
        bench.clock.now += 1
    before = bench.board.tick().snapshot

    bench.wall_offset += step
    after = bench.board.tick().snapshot

    assert after.time == before.time + step
    assert msgspec.structs.replace(after, time=before.time) == before
    assert (bench.board.not_ready(), bench.board.not_healthy()) == (None, None)


def test_extremes_between_scrapes(bench: Bench) -> None:
    """The highest use of the last minute and since the start, and the lowest free that goes with it."""
    for free in (20, 5, 30):
        bench.node(gpu(bench.clock, used={}, free=free * GIB))
        bench.clock.now += 40
    bench.node(gpu(bench.clock, used={}, free=40 * GIB))

    device = bench.device()

    assert device.used_max_bytes == {"60s": 50 * GIB, "start": 75 * GIB}
    assert device.free_min_bytes == {"60s": 30 * GIB, "start": 5 * GIB}


def test_extremes_begin_anew_when_the_total_changes(bench: Bench) -> None:
    """With ECC switched on there is less than was once used: what is known of another total says nothing."""
    bench.node(gpu(bench.clock, used={}, free=2 * GIB))
    bench.clock.now += 1
    smaller = MemoryReading(at=bench.clock.now, total_bytes=76 * GIB, free_bytes=70 * GIB, reserved_bytes=GIB)
    bench.node(gpu(bench.clock, used={}, memory=smaller))

    device = bench.device()

    assert device.used_max_bytes == {"60s": 6 * GIB, "start": 6 * GIB}
    assert device.free_min_bytes == {"60s": 70 * GIB, "start": 70 * GIB}


def test_tensor_parallel_ranks_are_alike() -> None:
    """TP=2 by process titles: half the weights on each, the pool on both."""
    bench = Bench(facts(given=Arguments(tp=2)))
    bench.node(gpu(bench.clock, used={7: 30 * GIB}), gpu(bench.clock, index=1, used={8: 30 * GIB}))
    bench.server()
    processes = tuple(
        ServerProcess(pid=pid, started_at=1.0, title=title)
        for pid, title in ((5, "vllm serve"), (7, "VLLM::Worker_TP0"), (8, "VLLM::Worker_TP1"))
    )
    bench.board.took_tree(bench.watches[0], bench.outcome(ProcessTree(at=0.0, processes=processes)))
    bench.model()

    first, second = bench.board.tick().snapshot.devices

    assert closed(first)["weights"] == closed(second)["weights"]
    assert WEIGHTS / 2 <= closed(first)["weights"] < WEIGHTS * 0.51
    assert closed(first)["kv_used"] == 1000 * BLOCK // 2
    ranks = bench.servers()[0].ranks
    assert [(rank.gpu, rank.tp_rank) for rank in ranks] == [("0", 0), ("1", 1)]


def test_two_servers_with_invisible_pids_share_a_device() -> None:
    """Each keeps what is computed for it, the rest is hidden."""
    bench = Bench(facts("a", devices=("GPU-0",)), facts("b", url="http://127.0.0.1:8001", devices=("GPU-0",)))
    bench.node(gpu(bench.clock, used=None))
    for number in (0, 1):
        bench.server(number)
        bench.hide(number)
        bench.model(number)

    device = bench.device()

    assert sum(part.bytes for part in device.components) == device.total_bytes
    assert {(p.server, p.component) for p in device.components} >= {("a", "weights"), ("b", "kv_used"), ("", "hidden")}
    assert "runtime" not in {part.component for part in device.components}


def test_readiness_says_why(bench: Bench) -> None:
    """Nothing yet; all failing; a tick that stopped."""
    assert bench.board.not_ready() == "nothing collected yet"

    bench.board.lost_node(Fault(reason="no_library", message="no NVML on this host"))
    bench.board.tick()
    assert bench.board.not_ready() == "nvml: no NVML on this host"

    bench.node()
    bench.board.tick()
    assert bench.board.not_ready() is None

    bench.clock.now += 11
    assert bench.board.not_ready() == bench.board.not_healthy() == "no tick for 11 s"


def test_how_long_the_driver_took_is_told(bench: Bench) -> None:
    """Of the pass, of each device and of its list of processes; nothing where it is not known, as in old recordings."""
    slow = gpu(bench.clock, used={7: GIB}, memory_duration_seconds=0.002, processes_duration_seconds=1.5)
    devices = (slow, gpu(bench.clock, index=1, used={8: GIB}))
    at = bench.clock.now
    bench.board.took_node(NodeReading(at=at, driver_version="580", devices=devices, duration_seconds=1.51))

    collectors = {(c.name, c.target): c.duration_seconds for c in bench.board.tick().snapshot.collectors}

    assert collectors == {
        ("nvml", ""): 1.51,
        ("nvml", "GPU-0"): 0.002,
        ("nvml", "GPU-1"): None,
        ("processes", "GPU-0"): 1.5,
        ("processes", "GPU-1"): None,
    }
    assert b'collector_duration_seconds{collector="processes",target="GPU-0"} 1.5\n' in bench.board.metrics


def test_a_server_whose_engine_is_not_known_is_there() -> None:
    """Loading while something answers, down when nothing does; its engine is null, and no budget is that of another."""
    bench = Bench(facts(engine=None))
    bench.refuse(reason=ENGINE_UNKNOWN)
    (answering,) = bench.servers()
    page = bench.board.metrics.decode()
    bench.refuse()
    (silent,) = bench.servers()

    assert (answering.engine, answering.state, silent.state) == (None, "loading", "down")
    assert 'vramscope_server_info{engine="",' in page


def test_series_of_processes_only_where_they_are_asked_for(bench: Bench) -> None:
    """Each by pid and name; none of one whose bytes the driver hides, and none by default."""
    device = gpu(bench.clock, used={7: GIB, 8: None, 9: 0})
    node = NodeReading(at=bench.clock.now, driver_version="580", devices=(device,))
    bench.board.took_node(node)
    default = bench.board.tick().metrics

    bench.board.took_node(with_names(node, lambda pid: "py\n3" if pid == 7 else ""))
    asked = bench.board.tick().metrics

    assert b"process_memory_bytes" not in default
    assert [line for line in asked.splitlines() if line.startswith(b"vramscope_process_memory_bytes")] == [
        b'vramscope_process_memory_bytes{gpu="0",name="",pid="9"} 0',
        b'vramscope_process_memory_bytes{gpu="0",name="py\\n3",pid="7"} 1073741824',
    ]
