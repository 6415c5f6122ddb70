"""The node over time: what must hold for memory and processes at every step, and the story of the default scenario."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from collectors.simulated.scenario import load_scenario
from collectors.simulated.simulation import Simulation
from collectors.simulated.sizing import MIB
from collectors.simulated.state import DeviceState, NodeState
from collectors.simulated.story import Crash, Process, Scenario

SERVER = "reasoner"
SERVING_AT = 80.1  # the loading phases of the default scenario, and the step that notices


def states(simulation: Simulation, until: float, *, every: float) -> Iterator[tuple[float, NodeState]]:
    while simulation.time < until - 1e-6:
        simulation.advance(every)
        yield simulation.time, simulation.state()


def only_device(state: NodeState) -> DeviceState:
    (device,) = state.devices
    return device


def quiet(**changes: Any) -> Scenario:
    """The default scenario without requests, other processes and crashes, with some changes of its server."""
    scenario = load_scenario("reasoning")
    server = msgspec.structs.replace(scenario.servers[0], workload=type(scenario.servers[0].workload)(), crashes=())
    return msgspec.structs.replace(
        scenario,
        period_seconds=None,
        servers=(msgspec.structs.replace(server, **changes),),
        processes=(),
    )


@pytest.mark.parametrize("name", ["reasoning", "idle", "eight", "upgrade"])
def test_memory_is_a_closed_sum_in_steps_of_the_driver(name: str) -> None:
    """reserved + allocated + free is the total; allocated is what processes hold plus 16 to 39 MiB, in 2 MiB steps."""
    for _, state in states(Simulation(load_scenario(name)), 1500, every=5):
        for device in state.devices:
            held = [process.used_bytes or 0 for process in state.gpu_processes if process.index == device.index]
            residual = device.allocated_bytes - sum(held)
            assert device.free_bytes >= 0
            assert device.reserved_bytes + device.allocated_bytes + device.free_bytes == device.total_bytes
            assert all(size > 0 and size % (2 * MIB) == 0 for size in (*held, *([residual] if held else [])))
            assert 16 * MIB <= residual <= 39 * MIB if held else residual == 0


def test_loading_goes_through_its_phases_in_order() -> None:
    """Nothing, context, a ramp of weights, the profiling peak, the pool in one step, graphs, then everything."""
    simulation = Simulation(quiet())
    sizes = simulation.life(SERVER).sizes
    phases: list[str | None] = []
    held: dict[str | None, list[int]] = {}

    for _, state in states(simulation, 90, every=0.5):
        phase = simulation.life(SERVER).phase
        if phase not in phases:
            phases.append(phase)
        held.setdefault(phase, []).append(sum(process.used_bytes or 0 for process in state.gpu_processes))

    loaded = sizes.context_bytes + sizes.weights_bytes
    assert phases == ["boot", "context", "weights", "profiling", "pool", "graphs", "serving"]
    assert set(held["boot"]) == {0}
    assert set(held["context"]) == {sizes.context_bytes}
    assert 450 * MIB <= sizes.context_bytes <= 600 * MIB
    assert held["weights"] == sorted(held["weights"])
    assert len(set(held["weights"])) > 50
    assert set(held["profiling"]) == {loaded + sizes.activations_bytes}
    assert set(held["pool"]) == {loaded + sizes.pool_bytes}
    assert held["graphs"] == sorted(held["graphs"])
    assert set(held["serving"]) == {loaded + sizes.pool_bytes + sizes.graphs_bytes + sizes.activations_bytes}


def test_nothing_answers_and_nothing_listens_while_loading() -> None:
    """The processes are there, and none of them listens; once it serves, the API process does."""
    simulation = Simulation(quiet(), ports={SERVER: 4711})
    simulation.advance(SERVING_AT - 1)
    loading = simulation.state().host_processes
    answer = simulation.metrics_text(SERVER)

    simulation.advance(2)

    serving = simulation.state().host_processes
    assert answer is None
    assert [process.port for process in loading] == [None, None]
    assert [process.port for process in serving] == [4711, None]
    assert [process.pid for process in loading] == [process.pid for process in serving]
    assert simulation.metrics_text(SERVER) is not None


def test_device_memory_stays_flat_while_the_pool_fills() -> None:
    """The pool is allocated at the start: its usage shows in the engine's metrics only."""
    simulation = Simulation(load_scenario("reasoning"))
    simulation.advance(SERVING_AT + 5)
    engine = simulation.life(SERVER).engine
    assert engine is not None
    before, allocated = engine.usage, only_device(simulation.state()).allocated_bytes

    for _, state in states(simulation, 700, every=5):
        assert only_device(state).allocated_bytes == allocated

    assert engine.usage > before + 0.4


def test_a_crash_frees_the_device_and_a_restart_is_new_in_everything() -> None:
    """The port closes at once, the driver's list empties within seconds; pids, start time and counters begin anew."""
    simulation = Simulation(load_scenario("reasoning"))
    simulation.advance(1199)
    before = simulation.state()
    old = simulation.life(SERVER).engine
    simulation.advance(1.5)
    just_dead = simulation.state()
    simulation.advance(4)
    dead = simulation.state()
    simulation.advance(110)
    after = simulation.state()
    new = simulation.life(SERVER).engine

    assert [process.pid for process in just_dead.host_processes] == []
    assert {process.pid for process in just_dead.gpu_processes} == {process.pid for process in before.gpu_processes}
    freed = only_device(before).allocated_bytes - only_device(dead).allocated_bytes
    assert freed == simulation.life(SERVER).sizes.held_bytes("serving", 1)
    assert not {process.pid for process in before.host_processes} & {process.pid for process in after.host_processes}
    assert before.host_processes[0].port == after.host_processes[0].port
    assert after.host_processes[0].started_at > before.host_processes[0].started_at + 1000
    assert old is not None
    assert new is not None
    assert 0 < new.counters.generation_tokens < old.counters.generation_tokens / 10
    assert new.counters.preemptions == 0


def test_the_same_seed_is_the_same_story_however_time_is_cut() -> None:
    """Two ways to the same second give the same state and the same metrics; another seed gives others."""
    scenario = load_scenario("reasoning")
    at_once, in_parts, other = Simulation(scenario, seed=7), Simulation(scenario, seed=7), Simulation(scenario, seed=8)
    at_once.advance(300)
    other.advance(300)
    for _ in range(1200):
        in_parts.advance(0.25)
        in_parts.state()

    assert at_once.state() == in_parts.state()
    assert at_once.metrics_text(SERVER) == in_parts.metrics_text(SERVER)
    assert at_once.metrics_text(SERVER) != other.metrics_text(SERVER)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_story_reaches_all_it_tells(seed: int) -> None:
    """A pool that grows for minutes past 0.9, preemptions at the right moment, relief, a second process, a crash,
    a restart, and all of it again."""
    simulation = Simulation(load_scenario("reasoning"), seed=seed)
    usage: dict[int, float] = {}
    preemptions: dict[int, int] = {}
    waiting: dict[int, int] = {}
    free: dict[int, int] = {}

    for at, state in states(simulation, 2500, every=2):
        second = round(at)
        free[second] = only_device(state).free_bytes
        if engine := simulation.life(SERVER).engine:
            usage[second] = engine.usage
            preemptions[second] = engine.counters.preemptions
            waiting[second] = len(engine.waiting)

    assert min(usage) == 82
    minutes = [sum(usage[at] for at in range(start, start + 60, 2)) / 30 for start in range(100, 760, 60)]
    assert all(later > earlier + 0.01 for earlier, later in pairwise(minutes))
    first = min(second for second, count in preemptions.items() if count)
    assert 700 <= first <= 900
    assert max(usage[second] for second in range(first - 20, first + 20, 2)) > 0.95
    assert sum(usage[second] == 1.0 for second in usage) <= 5
    assert preemptions[900] > 50
    assert max(waiting.values()) > 50
    assert waiting[1000] == 0
    assert usage[1000] < 0.4
    assert min(free[second] for second in range(1050, 1200, 2)) < 0.05 * 81559 * MIB
    assert not any(second in usage for second in range(1202, 1290, 2))
    assert all(second in usage for second in range(1310, 2500, 2))
    assert preemptions[1310] == 0
    assert preemptions[2400] > 50


def test_a_server_does_not_start_where_less_is_free_than_it_asks_for() -> None:
    """It dies before it loads and is started again until the room is there."""
    hog = Process(start_seconds=1, end_seconds=100, mib=60000)
    scenario = msgspec.structs.replace(quiet(), processes=(hog,))
    simulation = Simulation(scenario)

    refused = [simulation.life(SERVER).phase for _ in states(simulation, 100, every=1)]
    simulation.advance(130)

    assert set(refused) == {"boot", "context", None}
    assert simulation.life(SERVER).phase == "serving"


def test_a_server_that_finds_no_room_for_its_pool_dies() -> None:
    """A process that comes while it loads takes the room; the device never holds more than it has."""
    greedy = Process(start_seconds=30, end_seconds=300, mib=80000)
    simulation = Simulation(msgspec.structs.replace(quiet(), processes=(greedy,)))

    phases = {simulation.life(SERVER).phase for _ in states(simulation, 90, every=0.5)}

    assert "weights" in phases
    assert "profiling" not in phases
    assert None in phases


def test_a_process_takes_what_there_is_and_gives_all_back() -> None:
    """More than free is not to be had; at its end the device is as before."""
    greedy = Process(start_seconds=100, end_seconds=150, ramp_seconds=10, mib=80000)
    simulation = Simulation(msgspec.structs.replace(quiet(), processes=(greedy,)))
    simulation.advance(95)
    before = only_device(simulation.state())
    simulation.advance(45)
    during = only_device(simulation.state())
    simulation.advance(20)

    assert during.free_bytes < 2 * MIB
    assert before.free_bytes - during.free_bytes > 40000 * MIB
    assert only_device(simulation.state()) == before


def test_a_server_comes_back_as_another_version_with_its_graphs_inside_the_fraction() -> None:
    """420 MiB of graphs came on top of the pool before 0.20.2; what the processes hold shrinks by them."""
    crash = Crash(at_seconds=200, restart_seconds=10, engine_version="0.21.0")
    simulation = Simulation(quiet(engine_version="0.19.1", crashes=(crash,)))
    simulation.advance(190)
    before, held = simulation.life(SERVER).sizes, only_device(simulation.state()).allocated_bytes
    assert simulation.version(SERVER) == {"version": "0.19.1"}
    simulation.advance(200)

    after = simulation.life(SERVER).sizes
    assert simulation.version(SERVER) == {"version": "0.21.0"}
    assert before.blocks - after.blocks == 420 * MIB // (16 * 131_072)
    assert held - only_device(simulation.state()).allocated_bytes == 420 * MIB


def test_a_crash_while_nothing_runs_changes_nothing() -> None:
    """The second crash finds the server already dead."""
    crashes = (Crash(at_seconds=100, restart_seconds=60), Crash(at_seconds=130, restart_seconds=500))
    simulation = Simulation(quiet(crashes=crashes))

    simulation.advance(165)

    assert simulation.life(SERVER).phase == "boot"


def test_ranks_of_a_tensor_parallel_server_are_worker_processes() -> None:
    """One worker on each device, children of the engine core, which itself holds no memory."""
    simulation = Simulation(load_scenario("eight"), ports={"large": 8000})

    simulation.advance(120)

    state = simulation.state()
    api, core, *workers = state.host_processes
    assert (api.port, core.parent, core.title) == (8000, api.pid, "VLLM::EngineCore")
    assert [worker.title for worker in workers] == [f"VLLM::Worker_TP{rank}" for rank in range(8)]
    assert {worker.parent for worker in workers} == {core.pid}
    assert [(process.index, process.pid) for process in state.gpu_processes] == [
        (rank, worker.pid) for rank, worker in enumerate(workers)
    ]
    assert len({process.used_bytes for process in state.gpu_processes}) == 1


def test_allocators_are_told_where_the_server_has_a_probe() -> None:
    """All that a rank holds is reserved but its context; graphs are apart; never more is active, or above its peak."""
    simulation = Simulation(load_scenario("reasoning"), seed=3)
    context = simulation.life(SERVER).sizes.context_bytes
    graphs = simulation.life(SERVER).sizes.graphs_bytes

    for at, state in states(simulation, 300, every=1):
        held = {(process.index, process.pid): process.used_bytes for process in state.gpu_processes}
        for one in state.allocators:
            assert one.reserved_bytes == (held[one.index, one.pid] or 0) - context
            assert 0 <= one.active_bytes <= one.reserved_bytes - one.private_pools_bytes
            assert one.active_bytes <= one.active_peak_bytes <= one.reserved_bytes
            assert one.private_pools_bytes == graphs or at < SERVING_AT

    assert len(state.allocators) == 1
    assert next(states(Simulation(load_scenario("eight")), 200, every=200))[1].allocators == ()
