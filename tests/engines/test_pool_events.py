"""A real server's pool is overfilled beside an agent that records: what is kept has the event, and is replayed."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.app import replayed_board
from agent.postmortem.command import look_into
from agent.recorder.player import Player
from tests.engines.pool_load import STORIES
from tests.engines.pool_servers import Filled, FilledLlamaCpp, FilledSglang, FilledVllm
from tests.engines.record_pools import NAME, record, rewritten

pytestmark = pytest.mark.engines

BURST = replace(next(one for one in STORIES if one.name == "burst"), before=20.0, aftermath=5.0, calm=5.0)


def _server(engine: str, request: pytest.FixtureRequest, folder: Path) -> Filled:
    if engine == "vllm":
        return FilledVllm(request.getfixturevalue("vllm_command"), folder)
    if engine == "sglang":
        return FilledSglang(request.getfixturevalue("sglang_python"), folder)
    return FilledLlamaCpp(next(iter(request.getfixturevalue("llama_cpp_pythons").values())), folder)


@pytest.mark.parametrize(("engine", "kind"), [("vllm", "preempted"), ("sglang", "preempted"), ("llama_cpp", "refused")])
def test_a_burst_is_recorded(engine: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Preemption, retraction, refusal, by the server's own count and by the postmortem."""
    with _server(engine, request, tmp_path) as server:
        bundle = record(server, BURST, tmp_path / "agent", print)
        counted = server.shortages()
    path = tmp_path / "kept.vramscope"
    path.write_bytes(rewritten(bundle, {str(tmp_path): "/srv/node"}))
    report = look_into(Player(path, replayed_board))

    assert counted > 0
    assert report.problem is None
    assert report.incident is not None
    assert (report.incident.kind, report.incident.subject) == (kind, NAME)
