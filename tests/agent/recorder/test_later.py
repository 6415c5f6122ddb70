"""A ring whose beginning is gone, runs one behind another, and gaps."""

import re
from pathlib import Path

from agent.recorder.chunks import RecordingFile
from agent.recorder.records import Start
from tests.agent.recorder.flight import Flight, pages, replayed

EXPECTED = re.compile(rb"(?m)^.*kv_exhaustion_probability.*\n")  # from all that was seen, however long ago
OF_THE_PAST = re.compile(rb"(?m)^.*(?:collector_failures_total|risk_level).*\n")


def test_from_a_later_segment_on(tmp_path: Path) -> None:
    """Model, log, processes and servers are known at once; what is a matter of minutes, after these."""
    flight = Flight(tmp_path)
    flight.model()
    flight.log(cuda_oom=1)
    flight.lives(400)
    first, *later = flight.ring.segments()
    first.unlink()

    again = replayed(flight.file)

    assert len(later) == 6
    cut = len(flight.live) - len(again)
    assert 55 < cut < 65
    assert flight.live[cut].snapshot.devices[0].components == again[0].snapshot.devices[0].components
    assert {part.component for part in again[0].snapshot.devices[0].components} >= {"weights", "kv_used", "runtime"}
    assert again[0].snapshot.servers[0].log == flight.live[cut].snapshot.servers[0].log
    live, later_on = ([EXPECTED.sub(b"", page) for page in pages(one)[-100:]] for one in (flight.live, again))
    assert live == later_on


def test_an_agent_that_was_started_anew(tmp_path: Path) -> None:
    """Another run is another board: what the first one counted does not go on."""
    flight = Flight(tmp_path)
    flight.lives(5)
    flight.refuse()
    flight.writer.flush()
    flight.ring.close()
    second = Flight(tmp_path, run="two")
    second.lives(5)

    again = replayed(second.file)

    assert pages(again) == pages([*flight.live, *second.live])


def test_readings_that_were_left_out(tmp_path: Path) -> None:
    """After a gap all is said again; what failed meanwhile was not counted, and raised no level that is held."""
    flight = Flight(tmp_path)
    flight.lives(3)
    for _ in range(400):
        flight.node()
        flight.ticks()
    assert flight.writer.status.dropped > 0
    flight.watches[0].starts.restarts += 1
    flight.model()
    flight.lives(100)

    starts = [one for one in RecordingFile(flight.file).records() if isinstance(one, Start)]
    again = replayed(flight.file)

    assert any(start.gap for start in starts)
    assert OF_THE_PAST.sub(b"", pages(again)[-1]) == OF_THE_PAST.sub(b"", pages(flight.live)[-1])
    assert b'server_restarts_total{server="chat"} 1' in pages(again)[-1]
