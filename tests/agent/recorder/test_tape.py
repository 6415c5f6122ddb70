"""When a recording is kept, and what is queued."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.recorder.chunks import RecordingFile
from agent.recorder.records import Frozen, Servers, Start
from agent.recorder.tape import AFTERMATH_SECONDS, BETWEEN_SECONDS, WARNED_SECONDS
from collectors.procfs import redact
from collectors.readings import ProcessTree, ServerProcess
from tests.agent.recorder.flight import Flight, replayed
from tests.agent.test_board import serving

AFTERMATH = int(AFTERMATH_SECONDS)


@pytest.fixture
def flight(tmp_path: Path) -> Flight:
    flight = Flight(tmp_path)
    flight.wall_offset = 1.8e9
    flight.lives(20)
    return flight


def kept(flight: Flight) -> list[tuple[str, str]]:
    """Reason and subject of every bundle, oldest first."""
    found: list[tuple[str, str]] = []
    for path in flight.bundles:
        *_, last = RecordingFile(path).records()
        assert isinstance(last, Frozen)
        found.append((last.reason, last.subject))
    return found


def dies(flight: Flight) -> None:
    """Its processes end and it answers no more."""
    flight.tree()
    flight.refuse()
    flight.ticks()
    flight.writer.flush()


def waits(flight: Flight, seconds: int) -> None:
    for _ in range(seconds):
        flight.ticks()
        flight.writer.flush()


def test_a_server_that_dies(flight: Flight) -> None:
    """Kept once what came of it is on it too; it names the server and the moment."""
    moment = flight.wall()
    dies(flight)
    waits(flight, AFTERMATH - 1)
    assert kept(flight) == []
    waits(flight, 2)

    assert kept(flight) == [("server_died", "chat")]
    *_, last = RecordingFile(flight.bundles[0]).records()
    assert isinstance(last, Frozen)
    assert last.wall == moment


def test_a_server_that_was_started_anew(flight: Flight) -> None:
    """Also where nobody saw it down."""
    flight.lives(AFTERMATH + 2, started_at=6e8)

    assert kept(flight) == [("server_died", "chat")]


@pytest.mark.parametrize("kind", ["cuda_oom", "no_cache_blocks", "capture_failed"])
def test_memory_that_ran_out(kind: str, flight: Flight) -> None:
    """As its log says; not what the log told when it was first read."""
    flight.log(**{kind: 1})
    flight.lives(AFTERMATH + 2)
    assert kept(flight) == []
    flight.log(**{kind: 2})
    flight.lives(AFTERMATH + 2)

    assert kept(flight) == [("oom", "chat")]


def test_what_needs_no_recording(flight: Flight) -> None:
    """A request that is refused, a preemption, sleep: events, and no incident."""
    flight.log()
    flight.lives(1)
    flight.log(context_refused=3, kv_pool_full=1)
    flight.lives(2, state="sleeping")
    flight.lives(2 * AFTERMATH)

    assert kept(flight) == []


def loses_the_gpu(flight: Flight, seconds: int = 1) -> None:
    """The GPU is lost: its risk is critical."""
    for _ in range(seconds):
        flight.node()
        flight.server()
        flight.ticks()
        flight.writer.flush()


def test_a_device_whose_risk_turns_critical(flight: Flight) -> None:
    """Kept once for it, however long it stays so."""
    loses_the_gpu(flight, 60)

    assert kept(flight) == [("risk_critical", "gpu 0")]


def test_a_server_whose_risk_turns_critical(flight: Flight) -> None:
    """Requests are preempted faster than it gets on."""
    running = serving(0).replicas[0]
    for second in range(90):
        flight.lives(1, replicas=(replace(running, running_requests=10, preemptions=second),))

    assert ("risk_critical", "chat") in kept(flight)
    assert len(kept(flight)) == 1


def test_a_risk_that_comes_and_goes(flight: Flight) -> None:
    """Kept for once in half an hour of one subject; what comes within the aftermath is on the same recording."""
    for _ in range(int(WARNED_SECONDS / BETWEEN_SECONDS) + 1):
        flight.tape.freeze("risk_critical", "gpu 0")
        flight.tape.freeze("risk_critical", "chat")
        waits(flight, 20)
        flight.clock.now += BETWEEN_SECONDS - 20

    assert kept(flight) == [("risk_critical", "gpu 0"), ("risk_critical", "gpu 0")]


def test_an_incident_is_before_a_risk(flight: Flight) -> None:
    """It names the recording that both are on, and waits for none that was kept for a risk."""
    flight.tape.freeze("risk_critical", "chat")
    waits(flight, 5)
    flight.tape.freeze("oom", "chat")
    flight.tape.freeze("risk_critical", "gpu 0")
    waits(flight, AFTERMATH + 2)
    assert kept(flight) == [("oom", "chat")]

    flight.tape.freeze("risk_critical", "gpu 1")
    waits(flight, int(BETWEEN_SECONDS))
    assert kept(flight)[1:] == [("risk_critical", "gpu 1")]
    flight.tape.freeze("oom", "other")
    waits(flight, AFTERMATH + 2)
    assert kept(flight)[2:] == [("oom", "other")]


def test_a_loop_of_restarts(flight: Flight) -> None:
    """One recording in five minutes; the one that waited for it has the last of them."""
    for number in range(20):
        flight.lives(20, started_at=6e8 + 100 * number)

    assert len(kept(flight)) == 2
    flight.lives(int(BETWEEN_SECONDS))
    assert len(kept(flight)) == 3
    flight.lives(2 * int(BETWEEN_SECONDS))
    assert len(kept(flight)) == 3


def test_an_agent_that_ends_keeps_what_it_was_about_to(flight: Flight) -> None:
    """It does not wait for the rest."""
    dies(flight)
    flight.tape.close()
    flight.writer.flush()

    assert kept(flight) == [("server_died", "chat")]


def test_what_seldom_changes_is_queued_when_it_does(flight: Flight) -> None:
    """The same processes, looked at anew every second, are one record; so is the server itself."""
    flight.lives(20)
    records = list(RecordingFile(flight.file).records())
    start = records[0]

    assert isinstance(start, Start)
    assert sum(isinstance(one, Servers) for one in records) == 1
    assert sum(isinstance(one, Start) for one in records) == 1


def test_an_answer_of_a_server_that_is_watched_no_more(flight: Flight) -> None:
    """It may still be on its way; it is nobody's."""
    gone = flight.watches.pop()
    flight.board.took_server(gone, flight.outcome(serving(flight.clock.now)))
    flight.ticks()
    flight.writer.flush()

    assert replayed(flight.file)[-1].snapshot.servers == ()


def test_nothing_of_what_is_recorded_is_a_secret(flight: Flight) -> None:
    """Keys are no part of a reading, and a command line is masked where it is collected."""
    secrets = ("sk-abcdefghijklmnop", "hunter2", "hf_ABCDEFGHIJKLMNOP", "top-secret-value")
    title = redact(
        f"python -m vllm serve m --api-key {secrets[0]} --password={secrets[1]} HF_TOKEN={secrets[2]} "
        f"--hf-token {secrets[3]} --port 8000".split()
    )
    processes = (ServerProcess(pid=7, started_at=1.0, title=title),)
    flight.board.took_tree(flight.watches[0], flight.outcome(ProcessTree(at=1.0, processes=processes)))
    flight.ticks()
    flight.writer.flush()

    found = repr(list(RecordingFile(flight.file).records()))
    assert "--port 8000" in found
    assert not [secret for secret in secrets if secret in found]
