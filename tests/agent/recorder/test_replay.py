"""A recording through the pipeline gives what the live agent gave."""

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from msgspec.structs import replace

from agent import watch
from agent.memory import budget
from agent.memory.upgrades import Record, Run, Share
from agent.processes import with_names
from agent.recorder.records import Paced
from agent.snapshot import Snapshot
from agent.watch import ServerWatch
from collectors.engine_search import ENGINE_UNKNOWN
from collectors.probe_files import ProbePass
from collectors.readings import Container, Fault, Home, HostKills, NodeReading, ProbeReading
from collectors.vllm.titles import rank_of
from tests.agent.recorder.flight import Flight, pages, replayed
from tests.agent.test_board import GIB, LLAMA, facts, gpu, serving


def same(snapshot: Snapshot) -> bytes:
    """All of a snapshot but where it is from."""
    return msgspec.json.encode(replace(snapshot, recording=None))


def test_every_tick_is_as_it_was(tmp_path: Path) -> None:
    """Byte by byte, of lives in which all kinds of readings and faults come in any order, simulated ones too."""
    for seed, pace in enumerate((1.0, 10.0, 1.0, 20.0)):
        servers = facts("chat"), facts("code", url="http://127.0.0.1:8001")
        flight = Flight(tmp_path / str(seed), *servers, pace=pace)
        chance = random.Random(seed)
        share = Share(uuid="GPU-0", components={"weights": GIB})
        run = Run(engine="vllm", version="0.19.1", started_at=1.0, settled_at=2.0, devices=(share,))
        flight.board.recalled({"chat": Record(current=run)})
        for _ in range(150):
            for step in chance.sample(STEPS, chance.randrange(1, 6)):
                step(flight, chance)
            flight.ticks()
            flight.writer.flush()
        flight.tape.close()
        flight.writer.flush()

        again = replayed(flight.file)

        assert pages(flight.live) == pages(again)
        assert [same(one.snapshot) for one in flight.live] == [same(one.snapshot) for one in again]
        assert all(one.snapshot.recording is not None for one in again)


def test_what_a_bug_broke_breaks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config, a prediction and an answer that fail in ways nobody foresaw are the same failures and note."""
    for module, name, is_fatal in BUGS:
        monkeypatch.setattr(module, name, _failing(getattr(module, name), is_fatal))
    flight = Flight(tmp_path)
    for version, config in (("0.19.1", LLAMA), ("0.19.1", {**LLAMA, "later": 1}), ("?", {**LLAMA, "at_once": 1})):
        flight.model(config=config)
        flight.lives(2, version=version)
    flight.lives(2)
    flight.tape.close()
    flight.writer.flush()

    again = replayed(flight.file)

    failed = [{c.name for c in one.snapshot.collectors if not c.success} for one in flight.live[::2]]
    assert failed == [set(), set(), {"endpoint", "model"}, {"model"}]
    assert ["bug of vramscope" in str(one.snapshot.servers[0].notes) for one in flight.live[::2]] == [
        False,
        True,
        False,
        False,
    ]
    assert pages(flight.live) == pages(again)
    assert [same(one.snapshot) for one in flight.live] == [same(one.snapshot) for one in again]


BUGS: tuple[tuple[ModuleType, str, Callable[..., bool]], ...] = (
    (watch, "parse_model", lambda config: "at_once" in config),
    (watch, "completed", lambda reading, _: reading.version == "?"),
    (budget, "compute", lambda model, *_, **__: "later" in model.config),
)


def _failing(function: Callable[..., object], is_fatal: Callable[..., bool]) -> Callable[..., object]:
    def failing(*given: object, **named: object) -> object:
        if is_fatal(*given, **named):
            raise ZeroDivisionError
        return function(*given, **named)

    return failing


def test_headroom_is_judged_by_the_rule_of_then(tmp_path: Path) -> None:
    """Also by one that a reload changed midway, and in what begins later."""
    flight = Flight(tmp_path)
    flight.board.took_pace(memory_interval_seconds=1.0, settle_seconds=20.0, headroom_ratio=0.9)
    flight.model()
    flight.lives(90)
    flight.board.took_pace(memory_interval_seconds=1.0, settle_seconds=20.0, headroom_ratio=0.95)
    flight.lives(10)

    again = replayed(flight.file)

    risk = again[-1].snapshot.devices[0].risk
    assert risk is not None
    assert "low_headroom" in risk.levels
    assert [again[at].snapshot.thresholds.headroom_ratio for at in (0, -1)] == [0.9, 0.95]
    assert [same(one.snapshot) for one in flight.live] == [same(one.snapshot) for one in again]


def test_series_of_processes_are_in_a_recording_of_an_agent_that_had_them(tmp_path: Path) -> None:
    """With the names of then."""
    flight = Flight(tmp_path)
    for _ in range(3):
        device = gpu(flight.clock, used={7: GIB, 9: 2 * GIB})
        node = NodeReading(at=flight.clock.now, driver_version="580", devices=(device,))
        flight.board.took_node(with_names(node, lambda pid: f"name {pid}"))
        flight.ticks()
        flight.writer.flush()

    again = replayed(flight.file)

    assert b'process_memory_bytes{gpu="0",name="name 9",pid="9"}' in again[-1].metrics
    assert pages(flight.live) == pages(again)


def test_recordings_of_before_there_was_a_choice_have_the_usual_rule() -> None:
    """10 %."""
    record = msgspec.json.decode(b'{"type": "paced", "at": 1, "memory": 1, "settle": 60}', type=Paced)

    assert record.headroom == 0.10


def test_a_crash_loop_counts_as_it_did(tmp_path: Path) -> None:
    """From any segment on: processes tell of restarts, then the endpoint, then both, with one inside of its process."""
    flight = Flight(tmp_path)
    flight.lives(3)
    pid = 7
    for turn in range(40):
        flight.tree()
        flight.refuse()
        flight.ticks()
        pid += 1
        flight.tree(pid)
        flight.ticks()
        if turn % 3 == 0:
            flight.server(started_at=6e8 + 100 * turn)
            flight.ticks()
        if turn % 6 == 0:
            flight.server(started_at=6e8 + 100 * turn + 50)
            flight.ticks()
            flight.tree(*((pid,) if turn % 12 else (pid + 1000,)))
            flight.ticks()
        flight.writer.flush()
    first, *later = flight.ring.segments()

    whole = replayed(flight.file)
    first.unlink()
    from_later_on = replayed(flight.file)

    counts = [one.snapshot.servers[0].restarts for one in flight.live]
    assert later
    assert counts[-1] > 40
    assert [one.snapshot.servers[0].restarts for one in whole] == counts
    assert [same(one.snapshot) for one in flight.live] == [same(one.snapshot) for one in whole]
    assert [one.snapshot.servers[0].restarts for one in from_later_on] == counts[-len(from_later_on) :]


def _node(flight: Flight, chance: random.Random) -> None:
    held = chance.randrange(30, 60) * GIB
    flight.node(gpu(flight.clock, used={7: held, 9: GIB}, free=80 * GIB - held - 2 * GIB))


def _no_memory(flight: Flight, chance: random.Random) -> None:
    flight.node(gpu(flight.clock, memory=None, memory_fault=Fault(reason="gpu_lost", message="lost")))


def _no_driver(flight: Flight, chance: random.Random) -> None:
    flight.board.lost_node(Fault(reason="driver", message="no driver"))


def _answer(flight: Flight, chance: random.Random) -> None:
    used = chance.randrange(8000)
    pool = replace(serving(0).pools[0], used_blocks=used, used_tokens=used * 16, used_ratio=used / 8191)
    state = chance.choice(("serving", "serving", "serving", "sleeping"))
    flight.server(
        chance.randrange(len(flight.watches)),
        pools=(pool,),
        state=state,
        started_at=chance.choice((5e8, 5e8, 5e8, 6e8)),
    )


def _processes(flight: Flight, chance: random.Random) -> None:
    flight.tree(*chance.choice(((7,), (7, 8), (), (9,))), number=chance.randrange(len(flight.watches)))


def _hidden(flight: Flight, chance: random.Random) -> None:
    flight.hide(chance.randrange(len(flight.watches)))


def _home(flight: Flight, chance: random.Random) -> None:
    kills = HostKills(group=chance.randrange(2), count=chance.randrange(4))
    flight.watches[0].take_home(Home(container=Container(runtime="docker", id="1"), logs=("/l",), kills=kills))


def _probes(flight: Flight, chance: random.Random) -> None:
    size = chance.randrange(10, 30) * GIB
    reading = ProbeReading(
        pid=7,
        at=flight.clock.now,
        lasts_seconds=5.0,
        file="f",
        number=0,
        active_bytes=size,
        allocated_bytes=size,
        reserved_bytes=size + GIB,
    )
    found = ProbePass(readings=(reading,), seen=frozenset({7, 9}))
    if chance.random() < 0.3:
        found = ProbePass(faults={7: Fault(reason="stale", message="old")})
    flight.board.took_probes(flight.outcome(found), {7})


def _anew(flight: Flight, chance: random.Random) -> None:
    """It is watched no more, and then anew under the same name."""
    if len(flight.watches) == 2:
        flight.watches.pop()
    if len(flight.watches) == 1 and chance.random() < 0.5:
        engine = chance.choice((None, "vllm"))
        flight.watches.append(ServerWatch(facts("code", url="http://127.0.0.1:8001", engine=engine), rank_of=rank_of))


STEPS: tuple[Callable[[Flight, random.Random], None], ...] = (
    *(_node, _node, _node, _no_memory, _no_driver, _processes, _processes, _hidden, _home, _probes, _anew),
    lambda flight, chance: flight.refuse(0),
    lambda flight, chance: flight.refuse(0, reason=ENGINE_UNKNOWN),
    lambda flight, chance: flight.model(0),
    lambda flight, chance: flight.log(0, cuda_oom=chance.randrange(3)),
    lambda flight, chance: flight.board.lost_log(flight.watches[0]),
    lambda flight, chance: flight.board.took_state(None, 0.1),
    lambda flight, chance: flight.board.took_recorder(flight.writer.status),
    lambda flight, chance: flight.board.settings_reloaded(success=chance.random() < 0.5),
    lambda flight, chance: flight.board.took_pace(
        memory_interval_seconds=1.0, settle_seconds=20.0, headroom_ratio=chance.choice((0.05, 0.3))
    ),
    lambda flight, chance: flight.watches[0].forget_model(),
    lambda flight, chance: flight.watches[0].lost(),
    lambda flight, chance: flight.board.looked_for("", None, 0.1),
    lambda flight, chance: setattr(flight.clock, "now", flight.clock.now + chance.choice((0.1, 5.0, 30.0))),
    _answer,
    _answer,
)
