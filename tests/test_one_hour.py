"""An hour of the demo's story, second by second, with each source failing in turn: the sum closes on every tick."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
from msgspec.structs import replace

from agent.board import Board
from agent.memory.arguments import from_flags
from agent.watch import ServerFacts, ServerWatch
from collectors.http_text import Endpoint
from collectors.model_files import read_model
from collectors.nvml import faults
from collectors.nvml.driver import NvmlFault
from collectors.nvml.passes import Passes
from collectors.probe_files import ProbePass
from collectors.readings import Fault, NodeReading, ProcessTree
from collectors.registry import ENGINES
from collectors.run import Outcome, run
from collectors.simulated.driver import SimulatedDriver
from collectors.simulated.probes import SimulatedProbes
from collectors.simulated.processes import SimulatedProcesses
from collectors.simulated.scenario import load_scenario
from collectors.simulated.simulation import Simulation, write_model
from collectors.simulated.state import NodeState, write_state

HOUR = 3600
TURN = 90
STRETCH = 60

Change = Callable[[NodeState], NodeState]


def _failing(call: str, code: int) -> Change:
    return lambda state: replace(state, faults=((call, None, code),))


def _unchanged(state: NodeState) -> NodeState:
    return state


def _unlisted(state: NodeState) -> NodeState:
    return replace(state, gpu_processes=())


def _unknown(state: NodeState) -> NodeState:
    return replace(state, gpu_processes=tuple(replace(process, used_bytes=None) for process in state.gpu_processes))


def _shared_twice(state: NodeState) -> NodeState:
    doubled = (replace(process, used_bytes=(process.used_bytes or 0) * 2) for process in state.gpu_processes)
    return replace(state, gpu_processes=tuple(doubled))


DRIVER_FAULTS: dict[str, Change] = {
    "no v2 memory": _failing("memory_v2", faults.FUNCTION_NOT_FOUND),
    "memory fails": lambda state: replace(state, faults=(("memory", None, 15), ("memory_v2", None, 15))),
    "process lists fail": _failing("processes", faults.NOT_SUPPORTED),
    "driver gone": _failing("memory_v2", faults.UNINITIALIZED),
    "empty process lists": _unlisted,
    "process bytes hidden": _unknown,
    "shared memory counted twice": _shared_twice,
}
ENDPOINT_FAULTS: dict[str, httpx.Response | None] = {
    "endpoint refuses": None,
    "endpoint answers 500": httpx.Response(500),
    "endpoint answers nonsense": httpx.Response(200, text="vllm:kv_cache_usage_perc{ 1 \x00"),
}
PROBE_FAULTS = ("probe gone", "probe silent", "probe absurd")
OTHER_FAULTS = ("process tree hidden", "model unreadable", "nothing")
TURNS = (*DRIVER_FAULTS, *ENDPOINT_FAULTS, *PROBE_FAULTS, *OTHER_FAULTS)


def fault_at(second: int) -> str:
    """Each fault for a minute, half a minute of health between; twice and more in an hour."""
    turn, within = divmod(second, TURN)
    return TURNS[turn % len(TURNS)] if within < STRETCH else "nothing"


class Hour:
    """The node, its readers and a board, moved a second at a time."""

    def __init__(self, folder: Path, *, faults: Callable[[int], str] = fault_at) -> None:
        self.now = 0.0
        self._faults = faults
        self.fault = "nothing"
        scenario = load_scenario("reasoning")
        self._server = scenario.servers[0]
        self._simulation = Simulation(scenario, seed=1, ports={self._server.name: 8000})
        self._state_file = folder / "node.state"
        self._driver = SimulatedDriver(self._state_file)
        self._passes: Passes | None = None
        self._tree = SimulatedProcesses(self._state_file)
        self._probes = SimulatedProbes(self._state_file, clock=lambda: self.now)
        write_model(self._server.model, folder / "model")
        self._model = read_model(folder / "model")
        engine = ENGINES["vllm"]
        transport = httpx.MockTransport(self._answer)
        endpoint = Endpoint("http://127.0.0.1:8000", paths=engine.paths, deadline_seconds=5, transport=transport)
        self._reader = engine.open(endpoint, clock=lambda: self.now)
        facts = ServerFacts(
            name="reasoner", engine="vllm", url=endpoint.url, given=from_flags({"max-num-seqs": 96}, engine="vllm")
        )
        self._watch = ServerWatch(facts, rank_of=engine.rank_of)
        self.board = Board(
            [self._watch], memory_interval_seconds=1.0, clock=lambda: self.now, wall=lambda: 1.7e9 + self.now
        )

    async def second(self) -> None:
        """One second of the story, everything read, one tick."""
        self.now += 1.0
        self._simulation.advance(1.0)
        self.fault = self._faults(int(self.now))
        change = DRIVER_FAULTS.get(self.fault, _unchanged)
        write_state(self._state_file, change(self._simulation.state()))
        self._read_devices()
        outcome = await run("endpoint", "reasoner", self._reader.read, deadline_seconds=5, clock=lambda: self.now)
        self.board.took_server(self._watch, outcome)
        hidden = self.fault == "process tree hidden"
        tree = None if hidden else self._tree.tree(8000)
        self.board.took_tree(self._watch, self._done(tree))
        self._read_probes(tree)
        if self.fault == "model unreadable":
            self.board.took_model(self._watch, self._done(None, Fault(reason="malformed", message="no JSON")))
        elif int(self.now) >= 300 and self._watch.model is None:
            self.board.took_model(self._watch, self._done(self._model))
        self.board.tick()

    def _read_devices(self) -> None:
        try:
            if self._passes is None:
                self._driver.start()
                self._passes = Passes(
                    self._driver, announce=lambda _: None, clock=lambda: self.now, processes_interval_seconds=5.0
                )
            self.board.took_node(msgspec.convert(self._passes.read(), NodeReading))
        except NvmlFault as fault:
            self._passes = None
            self.board.lost_node(msgspec.convert(faults.explain(fault.code, fault.text), Fault))

    def _read_probes(self, tree: ProcessTree | None) -> None:
        places = self._probes.find(tree.processes) if tree is not None and self.fault != "probe gone" else ()
        found = self._probes.read(places)
        if self.fault == "probe silent":
            stale = Fault(reason="stale", message="old")
            found = ProbePass(faults={place.pid: stale for place in places if place.pid is not None})
        if self.fault == "probe absurd":
            found = replace(found, readings=tuple(replace(one, active_bytes=2**62) for one in found.readings))
        self.board.took_probes(self._done(found), {place.pid for place in places})

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if self.fault in ENDPOINT_FAULTS:
            answer = ENDPOINT_FAULTS[self.fault]
            if answer is None:
                raise httpx.ConnectError("refused") from ConnectionRefusedError()
            return httpx.Response(answer.status_code, stream=httpx.ByteStream(answer.content))
        text = self._simulation.metrics_text(self._server.name)
        if text is None:
            raise httpx.ConnectError("refused") from ConnectionRefusedError()
        documents = {
            "/metrics": text,
            "/version": json.dumps(self._simulation.version(self._server.name)),
            "/v1/models": json.dumps(self._simulation.models(self._server.name)),
        }
        return httpx.Response(200, stream=httpx.ByteStream(documents[request.url.path].encode()))

    def _done(self, value: object, fault: Fault | None = None) -> Outcome:  # type: ignore[type-arg] # of whatever it is
        return Outcome(value=value, fault=fault, duration_seconds=0.0, at=self.now)


def hour(folder: Path) -> Iterator[Hour]:
    """The node after each second of an hour."""
    node = Hour(folder)
    with asyncio.Runner() as runner:
        for _ in range(HOUR):
            runner.run(node.second())
            yield node


def test_the_sum_closes_on_every_tick_of_an_hour(tmp_path: Path) -> None:
    """3,600 ticks through loading, a full pool, preemptions, a neighbour, a crash and every fault, none left out."""
    seen: dict[str, set[str]] = {}
    shown = dict.fromkeys(TURNS, 0)
    restarts = preemptions = 0
    for node in hour(tmp_path):
        snapshot = node.board.published.snapshot
        for device in snapshot.devices:
            assert all(part.bytes >= 0 for part in device.components), (node.now, node.fault, device)
            if device.components:
                assert sum(part.bytes for part in device.components) == device.total_bytes, (node.now, node.fault)
                shown[node.fault] += 1
            seen.setdefault(node.fault, set()).update(part.component for part in device.components)
        restarts = max(restarts, snapshot.servers[0].restarts)
        preemptions = max(preemptions, snapshot.servers[0].counters.preemptions or 0)
        failing = {(c.name, c.target) for c in snapshot.collectors if not c.success}
        if node.fault == "driver gone":
            assert snapshot.devices == ()
            assert ("nvml", "") in failing
        if node.fault in ENDPOINT_FAULTS:
            assert snapshot.servers[0].pools == ()
            assert ("endpoint", "reasoner") in failing

        if node.fault == "model unreadable":
            assert ("model", "reasoner") in failing
        if node.fault == "probe silent" and snapshot.servers[0].state == "serving":
            assert ("probe", "reasoner") in failing

    known = {"weights", "kv_used", "kv_available", "runtime", "other_processes", "reserved", "hidden", "free"}
    inside = {"cuda_graphs", "activations", "allocator_slack", "context"}
    whole = known | inside
    assert seen["nothing"] == whole
    assert seen["probe gone"] == seen["probe silent"] == known
    assert seen["no v2 memory"] == whole - {"reserved"}
    assert seen["memory fails"] == set()
    assert not {"runtime", "other_processes"} & seen["empty process lists"]
    assert not {"weights", "kv_used"} & seen["endpoint refuses"]
    assert "runtime" not in seen["process bytes hidden"]
    assert all(shown[name] >= STRETCH for name in TURNS if name not in ("memory fails", "driver gone"))
    assert restarts >= 2
    assert preemptions >= 1
