"""Recordings: whatever stands in one, it is shown or refused in a sentence."""

import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from agent.app import replayed_board
from agent.postmortem.command import look_into
from agent.postmortem.html import as_html
from agent.postmortem.text import as_text
from agent.recorder.chunks import RecordingError, RecordingFile
from agent.recorder.player import Player
from tests.agent.recorder.flight import Flight
from tests.fuzz.mutations import damaged_bytes, damaged_json
from tests.fuzz.trying import outcome, tried


def recorded(folder: Path) -> bytes:
    """A short flight with a bit of everything."""
    flight = Flight(folder)
    flight.model()
    flight.log(cuda_oom=0)
    flight.lives(2)
    flight.log(cuda_oom=1)
    flight.lives(1)
    flight.refuse()
    flight.lives(1, started_at=6e8)
    flight.tape.close()
    flight.writer.flush()
    return flight.file.read_bytes()


with tempfile.TemporaryDirectory(prefix="vramscope-fuzz-") as made_in:
    RIGHT = recorded(Path(made_in))
    RECORDS: list[Any] = list(map(msgspec.to_builtins, RecordingFile(Path(made_in) / "whole.vramscope").records()))


def framed(records: object) -> bytes:
    """As a chunk whose checksum holds."""
    packed = zlib.compress(msgspec.msgpack.encode(records))
    return struct.pack("<4sBIII", b"VRSC", 1, len(packed), len(zlib.decompress(packed)), zlib.crc32(packed)) + packed


def writable(records: object) -> bytes:
    try:
        return framed(records)
    except (OverflowError, UnicodeEncodeError):
        return b""


CONTENTS = st.one_of(damaged_bytes([RIGHT]), damaged_json([RECORDS]).map(writable), st.binary(max_size=50))


@tried(CONTENTS)
def test_a_recording_is_shown_or_refused(content: bytes) -> None:
    """As text, JSON and HTML."""
    with tempfile.TemporaryDirectory(prefix="vramscope-fuzz-") as folder:
        path = Path(folder) / "f.vramscope"
        path.write_bytes(content)
        report, sentence = outcome(lambda: look_into(Player(path, replayed_board)), RecordingError)
        if report is None:
            assert "\n" not in sentence
            assert len(sentence) < 500
            return
        assert as_text(report)
        assert "<script" not in as_html(report)
        assert msgspec.json.encode(report)


def test_the_original_is_shown(tmp_path: Path) -> None:
    """What is damaged here is right as it stands."""
    (tmp_path / "f.vramscope").write_bytes(RIGHT)
    report = look_into(Player(tmp_path / "f.vramscope", replayed_board))

    assert report.incident is not None
    assert (report.incident.kind, report.ticks) == ("oom", 4)
