"""What probes inside engines say, from a pass over their files to components, series and sentences."""

import io

import msgspec
from msgspec.structs import replace
from rich.console import Console

from agent.snapshot import Collector
from agent.terminal import print_snapshot
from collectors.probe_files import ProbePass
from collectors.readings import Fault, ProbeReading
from collectors.run import Outcome
from tests.agent.test_board import BLOCK, BLOCKS, GIB, WEIGHTS, Bench, closed, facts, gpu

MIB = 2**20
POOL = BLOCKS * BLOCK
NAMED = WEIGHTS + POOL
HELD = 40 * GIB
RESERVED = HELD - 600 * MIB
GRAPHS = 800 * MIB
ACTIVE = NAMED + 500 * MIB


def inside(bench: Bench, pid: int | None = 7, **fields: object) -> ProbeReading:
    reading = ProbeReading(
        pid=pid,
        at=bench.clock.now - 0.5,
        lasts_seconds=5.0,
        file=f"/proc/{pid}/root/dev/shm/vramscope-0/4026-1",
        number=0,
        uuid_digits="0",
        expandable_segments=False,
        backend="native",
        active_bytes=ACTIVE,
        active_peak_bytes=ACTIVE + 3 * GIB,
        reserved_bytes=RESERVED,
        private_pools_bytes=GRAPHS,
        inactive_split_bytes=7,
        alloc_retries=3,
        ooms=1,
    )
    return replace(reading, **fields)


def took(bench: Bench, *readings: ProbeReading, faults: dict[int, Fault] | None = None) -> None:
    seen = frozenset(one.pid for one in readings if one.pid is not None)
    found = ProbePass(readings=readings, seen=seen, faults=faults or {})
    asked = {one.pid for one in readings} | set(faults or {})
    bench.board.took_probes(bench.outcome(found), asked)


def serving() -> Bench:
    """A server with a model, whose process 7 holds 40 GiB of the device."""
    bench = Bench(facts())
    bench.node(gpu(bench.clock, used={7: HELD, 9: 3 * GIB}))
    bench.server()
    bench.tree(5, 7)
    bench.model()
    return bench


def probes(bench: Bench) -> list[Collector]:
    return [one for one in bench.board.tick().snapshot.collectors if one.name == "probe"]


def test_the_runtime_is_told_apart() -> None:
    """A - N = 500 MiB, H - R = 600 MiB, R - A - G the rest; nothing is left for the runtime."""
    bench = serving()
    took(bench, inside(bench))

    device = bench.device()

    found = closed(device)
    assert (found["activations"], found["context"], found["cuda_graphs"]) == (500 * MIB, 600 * MIB, GRAPHS)
    assert found["allocator_slack"] == RESERVED - ACTIVE - GRAPHS
    assert found["runtime"] == 0
    assert (found["weights"], found["kv_used"] + found["kv_available"]) == (WEIGHTS, POOL)
    slack = next(part for part in device.components if part.component == "allocator_slack")
    assert (slack.evidence, slack.age_seconds) == ("measured", 0.5)
    assert slack.source == "probe: reserved - active - private_pools"
    room = 20 * GIB + found["allocator_slack"] + found["activations"]
    assert device.headroom_ratio == room / (80 * GIB)
    assert device.transients["chat"].room_bytes == room
    assert device.transients["chat"].peak_bytes == 3 * GIB


def test_a_rank_has_its_allocators_figures() -> None:
    """As they are, with the age; split segments where they mean something."""
    bench = serving()
    took(bench, inside(bench))

    figures = bench.servers()[0].ranks[0].allocator

    assert figures is not None
    assert (figures.ooms, figures.alloc_retries, figures.active_bytes, figures.age_seconds) == (1, 3, ACTIVE, 0.5)
    assert (figures.inactive_split_bytes, figures.active_lowest_bytes) == (7, ACTIVE)
    assert figures.files == ("/proc/7/root/dev/shm/vramscope-0/4026-1",)
    took(bench, inside(bench, expandable_segments=True))
    again = bench.servers()[0].ranks[0].allocator
    assert again is not None
    assert again.inactive_split_bytes is None


def test_the_series() -> None:
    """Fragmentation with its kind and GPU and no bound, peak and room, the collector."""
    bench = serving()
    took(bench, inside(bench))
    bench.board.tick()

    text = bench.board.metrics.decode()

    ratio = 1 - ACTIVE / RESERVED
    assert f'vramscope_fragmentation_ratio{{gpu="0",kind="allocator",server="chat"}} {ratio!r}\n' in text
    assert 'kind="kv_block"' in text
    assert f'vramscope_transient_peak_bytes{{gpu="0",server="chat"}} {3 * GIB}\n' in text
    assert f'vramscope_transient_room_bytes{{gpu="0",server="chat"}} {20 * GIB + RESERVED - GRAPHS - NAMED}\n' in text
    assert 'vramscope_collector_success{collector="probe",target="chat"} 1\n' in text
    assert 'component="allocator_slack",evidence="measured",gpu="0",server="chat"} 1\n' in text


def test_without_a_probe_there_is_no_such_source() -> None:
    """No series, no failure; the peak is the budget's, which is no series either."""
    bench = serving()
    device = bench.device()

    assert probes(bench) == []
    assert device.transients["chat"].peak_evidence == "predicted"
    assert "transient_peak_bytes{" not in bench.board.metrics.decode()


def test_a_probe_that_is_silent_is_a_failure_with_its_reason() -> None:
    """And the runtime is one again."""
    bench = serving()
    took(bench, inside(bench))
    bench.board.tick()
    took(bench, faults={7: Fault(reason="silent", message="the probe of pid 7 is silent: OSError: no room")})

    assert [(one.success, one.error) for one in probes(bench)] == [
        (False, "the probe of pid 7 is silent: OSError: no room")
    ]
    assert "activations" not in closed(bench.device())


def test_a_probe_that_goes_leaves_nothing() -> None:
    """Its file went with its process: the source is gone, not failing."""
    bench = serving()
    took(bench, inside(bench))
    took(bench)

    assert probes(bench) == []
    assert "context" not in closed(bench.device())


def test_a_pass_that_hangs_is_a_failure_of_who_has_a_probe() -> None:
    """The last figures are not passed on."""
    bench = serving()
    took(bench, inside(bench))
    hung: Outcome[ProbePass] = Outcome(
        value=None, fault=Fault(reason="timeout", message="slow"), duration_seconds=10.0, at=bench.clock.now
    )
    bench.board.took_probes(hung, {7})

    assert [(one.target, one.error) for one in probes(bench)] == [("chat", "slow")]
    assert "context" not in closed(bench.device())


def test_figures_that_were_not_renewed_are_old() -> None:
    """While no pass comes, they last as long as the file said."""
    bench = serving()
    took(bench, inside(bench, lasts_seconds=2.0))
    for later, fresh in ((1.0, True), (2.0, False)):
        bench.clock.now += later
        bench.node(gpu(bench.clock, used={7: HELD, 9: 3 * GIB}))
        bench.server()

        assert ("context" in closed(bench.device())) is fresh


def test_another_process_begins_a_new_floor() -> None:
    """After a restart the least that was active is of the new process."""
    bench = serving()
    took(bench, inside(bench))
    bench.board.tick()
    bench.tree(8)
    bench.server(started_at=6e8)
    bench.node(gpu(bench.clock, used={8: HELD}))
    took(bench, inside(bench, pid=8, active_bytes=ACTIVE + GIB))

    assert bench.device().transients["chat"].peak_bytes == 2 * GIB


def test_a_process_that_lies_takes_only_its_own_figures_away() -> None:
    """A neighbour on the device keeps all of its parts; the sum stays closed; what can't be is absent."""
    bench = Bench(facts(), facts("other", url="http://127.0.0.1:8001"))
    bench.node(gpu(bench.clock, used={7: 30 * GIB, 8: 25 * GIB}))
    for number, pid in ((0, 7), (1, 8)):
        bench.server(number)
        bench.tree(pid, number=number)
        bench.model(number)
    honest = {part.component: part.bytes for part in bench.device().components if part.server == "other"}
    lies = ({"reserved_bytes": 500 * GIB}, {"active_bytes": 79 * GIB, "reserved_bytes": 79 * GIB}, {"active_bytes": 0})
    for lie in lies:
        took(bench, inside(bench, **lie))

        device = bench.device()

        closed(device)
        assert {part.component: part.bytes for part in device.components if part.server == "other"} == honest


def test_a_process_that_is_not_seen_is_known_by_its_device() -> None:
    """One file names the device, one server sits there: its parts are told apart but for the context."""
    bench = Bench(facts())
    bench.node(gpu(bench.clock, used={}, free=30 * GIB))
    bench.server()
    bench.hide()
    bench.model()
    took(bench, inside(bench, pid=None))

    found = closed(bench.device())

    assert (found["activations"], found["cuda_graphs"]) == (500 * MIB, GRAPHS)
    assert "context" not in found
    assert "runtime" not in found
    assert [(one.target, one.success) for one in probes(bench)] == [("", True)]


def test_two_files_of_one_device_are_nobodys() -> None:
    """Whose is whose can't be told: neither is used, and the reason stands there."""
    bench = Bench(facts())
    bench.node(gpu(bench.clock, used={}, free=30 * GIB))
    bench.server()
    bench.hide()
    bench.model()
    took(bench, inside(bench, pid=None), inside(bench, pid=None, file="/shared/4026-2"))

    assert "activations" not in closed(bench.device())
    (one,) = probes(bench)
    assert one.failures["ambiguous"] == 1
    assert one.error is not None
    assert one.error.startswith("/proc/None/root/dev/shm/vramscope-0/4026-1, /shared/4026-2: whose these are can't be")


def test_what_the_server_counted_itself_is_measured() -> None:
    """Told parameters and KV tensors stand before checkpoint and layout."""
    bench = serving()
    took(bench, inside(bench, parameters_bytes=WEIGHTS + MIB, kv_tensors_bytes=POOL - 8 * MIB))

    device = bench.device()

    found = closed(device)
    assert found["weights"] == WEIGHTS + MIB
    assert found["kv_used"] + found["kv_available"] == POOL - 8 * MIB
    assert {part.evidence for part in device.components if part.component in ("weights", "kv_used")} == {"measured"}


def test_while_it_loads_slack_is_known_and_no_context() -> None:
    """What is active then is weights or pool on their way, and list and figures are not of one moment: runtime."""
    bench = Bench(facts())
    bench.tree(5, 7)
    for late in (0, 10 * GIB):
        bench.node(gpu(bench.clock, used={7: HELD - late}))
        took(bench, inside(bench))

        found = closed(bench.device())

        graphs, slack = found["cuda_graphs"], found["allocator_slack"]
        assert found["runtime"] == HELD - late - graphs - slack
        assert slack == (RESERVED - GRAPHS - ACTIVE if not late else 0)
        assert {"context", "activations"}.isdisjoint(found)


def test_the_terminal_says_where_each_number_is_from() -> None:
    """Bytes, evidence, age, and file, field, endpoint or driver's list; room and fragmentation in sentences."""
    bench = serving()
    took(bench, inside(bench))
    out = io.StringIO()

    snapshot = bench.board.tick().snapshot
    print_snapshot(snapshot, explain=True, console=Console(file=out, width=250, highlight=False))

    text = out.getvalue()
    assert (
        f"  allocator_slack chat: {RESERVED - ACTIVE - GRAPHS:,} B measured, 0.5 s ago; "
        "probe /proc/7/root/dev/shm/vramscope-0/4026-1: reserved - active - private_pools\n"
    ) in text
    assert f"  weights chat: {WEIGHTS:,} B computed, 0.0 s ago; checkpoint: bytes of its tensors as this rank" in text
    assert "computed, 0.0 s ago; endpoint http://127.0.0.1:8000: blocks times bytes of a block by the model's" in text
    assert "  free: 21,474,836,480 B measured, 0.0 s ago; driver: memory, free\n" in text
    assert "  a prefill of chat needs up to 3.00 GiB (measured) for a moment, " in text
    assert "fragmentation of the allocator on gpu 0: " in text
    assert "out of memory 1 times, retries of an allocation 3 times\n" in text
    assert "fragmentation inside KV blocks: 0.0% to " in text


def test_the_terminal_says_when_there_is_no_room() -> None:
    """A neighbour has taken what a prefill needs."""
    bench = serving()
    took(bench, inside(bench, active_peak_bytes=ACTIVE + 39 * GIB, reserved_peak_bytes=None))
    out = io.StringIO()

    print_snapshot(bench.board.tick().snapshot, explain=False, console=Console(file=out, width=250, highlight=False))

    assert "no room: a prefill of chat needs 39.00 GiB (measured) for a moment, " in out.getvalue()


def test_every_component_has_a_source() -> None:
    """With and without a probe, in JSON."""
    bench = serving()
    for _ in range(2):
        document = msgspec.json.decode(bench.board.tick().snapshot_json)
        assert all(part["source"] for part in document["devices"][0]["components"])
        took(bench, inside(bench))
