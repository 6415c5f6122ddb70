"""Real servers under load, found by an agent that nobody configured: what it says is what they and their logs say.

At four points of each server's story: idle, growing, what it does when its pool is full, and what is left of it.
"""

import functools
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.engines.agreement import Moment, Watched, all_disagreements, play, shown
from tests.engines.record_agreement import FULL
from tests.engines.watched_llama_cpp import WatchedLlamaCpp
from tests.engines.watched_sglang import WatchedSglang
from tests.engines.watched_vllm import WatchedVllm
from tests.program import Program, running

pytestmark = pytest.mark.engines

_FOUND_SECONDS = 120.0
_POOL = {"capacity_tokens", "used_tokens"}
_REQUESTS = {"running", "waiting"}
_TOKENS = {"prompt_tokens", "generation_tokens"}
# What the engine tells at the point where its pool is full, by its answers and by its log.
TOLD = {
    "vllm": (_POOL | _REQUESTS | _TOKENS | {"preemptions", "first_tokens"}, _POOL | {"preemptions"}),
    "llama_cpp": (
        _POOL | _REQUESTS | _TOKENS | {"cached_tokens", "free_tokens"},
        _POOL | {"cached_tokens", "running", "refusals"},
    ),
    "sglang": (
        _POOL | _REQUESTS | _TOKENS | {"cached_tokens", "free_tokens", "preemptions", "first_tokens"},
        _POOL | _REQUESTS | {"preemptions"},
    ),
}


def _vllm(request: pytest.FixtureRequest, folder: Path) -> Watched:
    return WatchedVllm(request.getfixturevalue("vllm_command"), folder)


def _llama_cpp(request: pytest.FixtureRequest, folder: Path) -> Watched:
    return WatchedLlamaCpp(next(iter(request.getfixturevalue("llama_cpp_pythons").values())), folder)


def _sglang(request: pytest.FixtureRequest, folder: Path) -> Watched:
    return WatchedSglang(request.getfixturevalue("sglang_python"), folder)


# Only the engines that are wanted are installed.
MAKE = {"vllm": _vllm, "sglang": _sglang, "llama_cpp": _llama_cpp}


@pytest.mark.parametrize("engines", [*((engine,) for engine in MAKE), tuple(MAKE)], ids="+".join)
def test_an_unconfigured_agent_agrees_with_servers_and_logs(
    engines: tuple[str, ...], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Each figure that a server or its log tells is the agent's, with one server and with three at the same time."""
    (tmp_path / "empty.yml").touch()
    start = ("run", "--config", str(tmp_path / "empty.yml"), "--listen", "127.0.0.1:0")
    servers = [MAKE[engine](request, tmp_path) for engine in engines]
    with ExitStack() as stack:
        for one in servers:
            stack.enter_context(one)
        program = stack.enter_context(running(*start))
        _are_found(program, servers)
        for one, moment in play(program, servers):
            assert all_disagreements(one, moment) == []
            _is_whole(one, moment)


def _are_found(program: Program, servers: list[Watched]) -> None:
    """Each once, by its own engine, model and name."""
    names = set()
    for one in servers:
        said = program.until(functools.partial(shown, program, one.url), seconds=_FOUND_SECONDS)
        assert said is not None
        assert (said["engine"], said["configured"], said["state"]) == (one.engine, False, "serving")
        assert said["model_path"] == str(one.model)
        (pool,) = said["pools"]
        assert (pool["bytes_per_token"], pool["pool_bytes"]) == (one.bytes_per_token, one.pool_bytes)
        names.add(said["name"])
    assert len(names) == len(servers)


def _is_whole(server: Watched, moment: Moment) -> None:
    """Nothing that the engine tells was left out, and the point is what it is called."""
    before, after = server.of_pages(moment.before.pages), server.of_pages(moment.after.pages)
    assert (before == after) == (moment.point not in server.moving)
    if moment.point == FULL[server.engine]:
        answers, log = TOLD[server.engine]
        assert before.told().keys() == answers
        assert server.of_log(moment.before.log).told().keys() == log
        assert moment.agent.preemptions or moment.agent.refusals
