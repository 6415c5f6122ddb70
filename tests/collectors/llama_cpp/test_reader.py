"""Reading a whole llama.cpp server over HTTP: what is asked when, and what comes of each thing that can go wrong."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from collectors.errors import CollectorError
from collectors.http_text import Endpoint
from collectors.llama_cpp.reader import PATHS, LlamaCppReader
from collectors.llama_cpp.slots import Flags
from collectors.readings import ReplicaReading, ServerReading
from tests.collectors.replay import FIXTURES, Replay, Script, replaying, reply

JSON = "application/json"
RECORDED = FIXTURES / "llama_cpp" / "recorded-7e4c0a9"
UNIFIED: Flags = {"ctx-size": 4096, "parallel": 4, "kv-unified": True}


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def slots(name: str) -> bytes:
    return reply((RECORDED / f"slots_{name}.json").read_bytes(), content_type=JSON)


def props(**changes: object) -> bytes:
    document = json.loads((RECORDED / "props_not_unified.json").read_bytes())
    return reply(json.dumps({**document, **changes}), content_type=JSON)


def server_of(name: str) -> dict[str, bytes | Script]:
    """The answers of a healthy server at one recorded moment."""
    return {
        "/props": props(),
        "/slots": slots(name),
        "/metrics": reply((RECORDED / f"metrics_{name}.txt").read_bytes()),
    }


def with_reader(
    answers: dict[str, bytes | Script],
    scenario: Callable[[LlamaCppReader, Replay, Clock], Awaitable[None]],
    *,
    flags: Flags | None = UNIFIED,
) -> None:
    async def run() -> None:
        async with replaying(answers) as server:
            clock = Clock()
            endpoint = Endpoint(server.url, paths=PATHS, deadline_seconds=5.0)
            try:
                await scenario(LlamaCppReader(endpoint, clock=clock, flags=flags), server, clock)
            finally:
                await endpoint.aclose()

    asyncio.run(run())


def read(answers: dict[str, bytes | Script], *, flags: Flags | None = UNIFIED) -> ServerReading:
    """One reading of a fresh server."""
    found: list[ServerReading] = []

    async def once(reader: LlamaCppReader, server: Replay, clock: Clock) -> None:
        found.append(await reader.read())

    with_reader(answers, once, flags=flags)
    return found[0]


def test_a_recorded_server_is_read_whole() -> None:
    """Four slots busy, two requests deferred; tokens of answers are counted when a request ends."""
    reading = read(server_of("busy_t3"))

    assert (reading.engine, reading.state, reading.version, reading.model) == (
        "llama_cpp",
        "serving",
        "b1-7e4c0a9",
        "tiny-llama.gguf",
    )
    assert [(pool.used_tokens, pool.capacity_tokens) for pool in reading.pools] == [(3 * 611 + 614, 4096)]
    assert reading.replicas == (
        ReplicaReading(
            replica="0",
            running_requests=4,
            waiting_requests=2,
            refusals=0,
            prompt_tokens=776,
            sequence_tokens=(611, 611, 611, 614),
            generation_tokens=0,
            prefix_hit_tokens=0,
            prefix_query_tokens=776,
        ),
    )
    assert reading.arguments == {"max_model_len": 1024, "parallel": 4, "kv_unified": True}
    assert reading.notes == ()


def test_refused_requests_are_counted() -> None:
    """The cache was full, four requests failed: seen once, and remembered."""

    async def scenario(reader: LlamaCppReader, server: Replay, clock: Clock) -> None:
        await reader.read()
        server.answers |= server_of("after")
        first, second = await reader.read(), await reader.read()
        assert [first.replicas[0].refusals, second.replicas[0].refusals] == [4, 4]

    with_reader(server_of("busy_t3"), scenario)


def test_a_sleeping_server_is_not_woken() -> None:
    """A look at its slots would load the model again."""

    async def scenario(reader: LlamaCppReader, server: Replay, clock: Clock) -> None:
        reading = await reader.read()
        assert (reading.state, reading.pools) == ("sleeping", ())
        assert "asleep" in reading.notes[0]
        assert server.paths == ["/props"]

    with_reader({**server_of("after"), "/props": props(is_sleeping=True)}, scenario)


def test_an_idle_server_is_let_fall_asleep() -> None:
    """Every look restarts its clock, so an idle one is left alone for longer than it takes; its reading grows old."""

    async def scenario(reader: LlamaCppReader, server: Replay, clock: Clock) -> None:
        first = await reader.read()
        for _ in range(60):
            clock.now += 1
            assert (await reader.read()).at == first.at
        assert server.paths.count("/slots") == 1
        clock.now += 10
        assert (await reader.read()).at == clock.now

    with_reader(server_of("after"), scenario, flags={**UNIFIED, "sleep-idle-seconds": 60})


def test_a_busy_server_is_looked_at_every_time() -> None:
    """It does not fall asleep."""

    async def scenario(reader: LlamaCppReader, server: Replay, clock: Clock) -> None:
        for _ in range(5):
            clock.now += 1
            assert (await reader.read()).at == clock.now

    with_reader(server_of("busy_t1"), scenario, flags={**UNIFIED, "sleep-idle-seconds": 60})


def test_one_that_was_seen_asleep_may_fall_asleep_again() -> None:
    """Also where its flags are not known."""

    async def scenario(reader: LlamaCppReader, server: Replay, clock: Clock) -> None:
        await reader.read()
        server.answers["/props"] = props()
        await reader.read()
        clock.now += 300
        await reader.read()
        assert server.paths.count("/slots") == 1

    with_reader({**server_of("after"), "/props": props(is_sleeping=True)}, scenario, flags=None)


def test_a_server_that_loads_says_so() -> None:
    """Its 503 is no failure."""
    loading = reply('{"error":{"message":"Loading model","code":503}}', status=503, content_type=JSON)

    assert read({"/props": loading}).state == "loading"


@pytest.mark.parametrize(("path", "word"), [("/metrics", "--metrics"), ("/slots", "--no-slots")])
def test_what_is_switched_off_is_said(path: str, word: str) -> None:
    """The rest is read all the same."""
    reading = read({**server_of("busy_t3"), path: reply("{}", status=501, content_type=JSON)})

    assert word in reading.notes[0]
    assert reading.replicas[0].running_requests == 4
    assert bool(reading.pools) is (path == "/metrics")


def test_slots_with_all_their_prompts_may_be_too_long() -> None:
    """Then what its cache holds is not known; the rest is."""
    slots = f'[{{"id":0,"prompt":"{"x" * 2**20}"}}]'
    reading = read({**server_of("busy_t3"), "/slots": reply(slots, content_type=JSON)})

    assert "/slots answers with more than 1,048,576 bytes" in reading.notes[0]
    assert (reading.replicas[0].running_requests, reading.pools) == (4, ())


def test_without_flags_the_capacity_is_not_guessed() -> None:
    """A note says what would make it known."""
    reading = read(server_of("busy_t3"), flags=None)

    assert reading.pools[0].capacity_tokens is None
    assert "kv_unified" in reading.notes[0]


def test_a_router_has_no_pool() -> None:
    """It passes requests on to servers of its own."""
    reading = read({"/props": reply('{"role":"router","build_info":"b11549-x"}', content_type=JSON)})

    assert (reading.state, reading.pools) == ("serving", ())


def test_prompts_are_never_kept() -> None:
    """``/slots`` can hold their text."""
    document = json.loads((RECORDED / "slots_busy_t3.json").read_bytes())
    document[0] |= {"prompt": "canary", "generated": "canary", "params": {"grammar": "canary"}}
    answers = {**server_of("busy_t3"), "/slots": reply(json.dumps(document), content_type=JSON)}

    async def scenario(reader: LlamaCppReader, server: Replay, clock: Clock) -> None:
        reading = await reader.read()
        assert "canary" not in repr(reading)
        assert "canary" not in repr(vars(reader))

    with_reader(answers, scenario)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply("denied", status=401), "http_401"),
        (reply("not found", status=404), "http_404"),
        (reply("{}", content_type=JSON), "no_series"),
        (reply("<html>", content_type="text/html"), "malformed"),
    ],
)
def test_what_can_go_wrong_is_said(answer: bytes, reason: str) -> None:
    """One reason each."""
    with pytest.raises(CollectorError) as caught:
        read({"/props": answer})

    assert caught.value.reason == reason
