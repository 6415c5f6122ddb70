"""The state file: whatever stands in it, it is used or kept aside, and what is used can be shown."""

import shutil
import tempfile
from pathlib import Path

import msgspec
from hypothesis import strategies as st

from agent.exporter import render
from agent.memory.upgrades import Record
from agent.seating import ServerView
from agent.snapshot import Counters, Requests, Server, Snapshot
from agent.state_file import StateFile
from agent.upgrades import Upgrades
from collectors.errors import CollectorError
from collectors.readings import ServerReading
from tests.agent.test_state_file import record
from tests.fuzz.mutations import damaged_bytes, damaged_json
from tests.fuzz.trying import outcome, tried

RIGHT = {"schema": "vramscope.upgrades/1", "servers": {"chat": msgspec.to_builtins(record())}}
CONTENTS = st.one_of(
    damaged_bytes([msgspec.json.encode(RIGHT)]), damaged_json([RIGHT]).map(msgspec.json.encode), st.binary(max_size=50)
)


def shown(records: dict[str, Record]) -> bytes:
    """Metrics and JSON of servers that run as they are remembered."""
    upgrades = Upgrades(settle_seconds=60.0)
    upgrades.restore(records)
    servers = []
    for name, one in upgrades.records.items():
        run = one.current
        reading = ServerReading(
            at=1.0, engine=run.engine, state="serving", version=run.version, started_at=run.started_at
        )
        view = ServerView(name=name, engine=run.engine, url="", state="serving", reading=reading)
        found = upgrades.of(view, {share.uuid: "0" for share in run.devices})
        requests = Requests(running=None, waiting=None)
        counters = Counters(preemptions=None, prompt_tokens=None, generation_tokens=None)
        servers.append(
            Server(
                name=name,
                engine=run.engine,
                version=run.version,
                url="",
                model=run.model,
                state="serving",
                age_seconds=0.0,
                started_at=run.started_at,
                restarts=0,
                requests=requests,
                counters=counters,
                upgrade=found,
            )
        )
    snapshot = Snapshot(time=1.0, version="1", servers=tuple(servers))
    return render(snapshot) + msgspec.json.encode(snapshot)


@tried(CONTENTS)
def test_a_state_is_used_or_kept_aside(content: bytes) -> None:
    """Nothing else is raised, what was there is never lost, and what was taken can be shown and written again."""
    folder = Path(tempfile.mkdtemp(prefix="vramscope-fuzz-"))
    file = StateFile(folder)
    try:
        file.path.write_bytes(content)
        records, sentence = outcome(file.read, CollectorError)
        kept = {path.read_bytes() for path in folder.iterdir()}
        assert content in kept
        if records is None:
            assert "\n" not in sentence
            assert len(sentence) < 500
            return
        assert shown(records)
        file.write(records)
        assert file.read() == records
    finally:
        file.close()
        shutil.rmtree(folder)


def test_the_original_is_used(tmp_path: Path) -> None:
    """What is damaged here is right as it stands."""
    (tmp_path / "upgrades.json").write_bytes(msgspec.json.encode(RIGHT))
    file = StateFile(tmp_path)

    assert b"since 0.19.1 -> 0.21.0" in shown(file.read())
    file.close()
