"""Reading a whole vLLM server over HTTP: what is asked how often, and what comes of each thing that can go wrong."""

import asyncio
import gzip
import re
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from collectors.errors import Refused, Unreachable, Unreadable
from collectors.http_text import MAX_BYTES, Endpoint
from collectors.readings import ReplicaReading, ServerReading
from collectors.vllm.reader import PATHS, VllmReader
from tests.collectors.replay import Replay, Script, redirect, replaying, reply, vllm

JSON = "application/json"
FACT_DEADLINE_SECONDS = 0.2


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def server_of(metrics: str, *, version: str = "0.32.0") -> dict[str, bytes | Script]:
    """The answers of a healthy server with this metrics page."""
    return {
        "/metrics": reply(metrics, content_type="text/plain; version=1.0.0; charset=utf-8"),
        "/version": reply(f'{{"version":"{version}"}}', content_type=JSON),
        "/v1/models": reply(vllm("0.32.0/models.json"), content_type=JSON),
    }


def with_reader(
    answers: dict[str, bytes | Script],
    scenario: Callable[[VllmReader, Replay, Clock], Awaitable[None]],
    *,
    api_key: str | None = None,
) -> None:
    """Run a scenario against a fresh reader of a fresh server."""

    async def run() -> None:
        async with replaying(answers) as server:
            clock = Clock()
            endpoint = Endpoint(server.url, paths=PATHS, deadline_seconds=5.0, api_key=api_key)
            try:
                await scenario(
                    VllmReader(endpoint, clock=clock, fact_deadline_seconds=FACT_DEADLINE_SECONDS), server, clock
                )
            finally:
                await endpoint.aclose()

    asyncio.run(run())


def read(answers: dict[str, bytes | Script], *, api_key: str | None = None) -> ServerReading:
    """One reading of a fresh server."""
    found: list[ServerReading] = []

    async def once(reader: VllmReader, server: Replay, clock: Clock) -> None:
        found.append(await reader.read())

    with_reader(answers, once, api_key=api_key)
    return found[0]


def test_a_recorded_server_is_read_whole() -> None:
    """A page recorded while preempting: 48 of 99 blocks held, two preemptions, tokens as counted."""
    reading = read(server_of(vllm("0.32.0/metrics_preempting.txt")))

    assert reading.at == 1000.0
    assert (reading.engine, reading.state, reading.version, reading.model) == (
        "vllm",
        "serving",
        "0.32.0",
        "tiny-llama",
    )
    assert reading.started_at == 1795970834.96
    assert reading.arguments["max_model_len"] == 2048
    assert [pool.used_tokens for pool in reading.pools] == [48 * 32]
    assert reading.replicas == (
        ReplicaReading(
            replica="0",
            running_requests=4,
            waiting_requests=0,
            preemptions=2,
            prompt_tokens=384,
            generation_tokens=4196,
            finished=2,
            finished_prompt_tokens=128,
            finished_generation_tokens=3000,
            prefix_hit_tokens=0,
            prefix_query_tokens=384,
            first_tokens=6,
            first_token_seconds=1.4527504444122314,
            multimodal_queries=0,
            multimodal_hits=0,
        ),
    )
    assert reading.notes == ()


@pytest.mark.parametrize(
    ("version", "known", "hits", "queries"),
    [
        ("0.8.5", "0.8.5", None, None),  # in blocks there
        ("0.9.2", "0.9.2", 1600, 4800),
        ("0.33.0", "0.33.0", 1600, 4800),
    ],
)
def test_prefix_counters_are_given_only_in_tokens(
    version: str, known: str, hits: int | None, queries: int | None
) -> None:
    """0.8 counts blocks under the old name: those are left out."""
    (replica,) = read(server_of(vllm(f"{version}/metrics.txt"), version=known)).replicas

    assert (replica.prefix_hit_tokens, replica.prefix_query_tokens) == (hits, queries)


@pytest.mark.parametrize(("version", "hits"), [("0.9.0.1", 1600), ("v0.10.2rc1", 1600), ("0.8.4", None), ("dev", None)])
def test_old_prefix_counters_need_a_version(version: str, hits: int | None) -> None:
    """Under the old name alone, blocks and tokens are told apart by the version only."""
    text = vllm("0.9.2/metrics.txt")
    only_old = "\n".join(line for line in text.split("\n") if "vllm:prefix_cache" not in line)

    (replica,) = read(server_of(only_old, version=version)).replicas

    assert replica.prefix_hit_tokens == hits


def test_four_replicas_have_their_own_counts() -> None:
    """One reading with four pools and four sets of counters; nothing is added up."""
    reading = read(server_of(vllm("shapes/dp4.txt")))

    assert [replica.running_requests for replica in reading.replicas] == [0, 3, 6, 9]
    assert [replica.prompt_tokens for replica in reading.replicas] == [0, 100, 200, 300]
    assert reading.replicas[0].preemptions is None
    assert reading.arguments["dp"] == 4


def test_a_sleeping_server_has_no_pools() -> None:
    """Its memory is given back, so what the gauges still say about it does not count."""
    reading = read(server_of(vllm("shapes/sleeping.txt")))

    assert reading.state == "sleeping"
    assert reading.pools == ()
    assert len(reading.replicas) == 1


def test_version_and_models_are_asked_once_a_minute() -> None:
    """The metrics every time, the rest at first and after 60 s."""

    async def scenario(reader: VllmReader, server: Replay, clock: Clock) -> None:
        await reader.read()
        clock.now += 59
        await reader.read()
        assert sorted(server.paths) == ["/metrics", "/metrics", "/v1/models", "/version"]
        clock.now += 1
        await reader.read()
        assert sorted(server.paths) == ["/metrics"] * 3 + ["/v1/models"] * 2 + ["/version"] * 2

    with_reader(server_of(vllm("0.33.0/metrics.txt")), scenario)


def test_a_restart_is_asked_for_its_version() -> None:
    """Another start time on the page: the version may be another too."""

    async def scenario(reader: VllmReader, server: Replay, clock: Clock) -> None:
        assert (await reader.read()).version == "0.32.0"
        restarted = vllm("0.33.0/metrics.txt").replace("1.75e+09", "1.76e+09")
        server.answers |= server_of(restarted, version="0.33.0")
        clock.now += 1
        reading = await reader.read()
        assert (reading.version, reading.started_at) == ("0.33.0", 1.76e9)

    with_reader(server_of(vllm("0.33.0/metrics.txt")), scenario)


def test_a_server_that_was_away_is_asked_again() -> None:
    """After a failed reading nothing said before is taken for granted."""

    async def scenario(reader: VllmReader, server: Replay, clock: Clock) -> None:
        await reader.read()
        good = server.answers["/metrics"]
        server.answers["/metrics"] = reply("boom", status=500)
        with pytest.raises(Unreadable, match="answered 500"):
            await reader.read()
        server.answers |= {"/metrics": good, "/version": reply('{"version":"0.33.0"}', content_type=JSON)}
        assert (await reader.read()).version == "0.33.0"

    with_reader(server_of(vllm("0.19.1/metrics.txt")), scenario)


def test_models_behind_a_key_are_a_note() -> None:
    """Everything else is read; only the model length is not known."""
    reading = read(server_of(vllm("0.33.0/metrics.txt")) | {"/v1/models": reply("no", status=401)})

    assert reading.state == "serving"
    assert reading.version == "0.32.0"
    assert "max_model_len" not in reading.arguments
    (note,) = reading.notes
    assert note.endswith("/v1/models answered 401; set api_key_file of this server to a file with its key")


def test_a_configured_key_opens_the_models() -> None:
    """The server sees the key; the reading does not hold it."""

    async def scenario(reader: VllmReader, server: Replay, clock: Clock) -> None:
        reading = await reader.read()
        sent = {request.path: request.headers.get("authorization") for request in server.requests}
        assert sent["/v1/models"] == "bearer sesame"
        assert reading.arguments["max_model_len"] == 2048
        assert "sesame" not in repr(reading)

    with_reader(server_of(vllm("0.33.0/metrics.txt")), scenario, api_key="sesame")


@pytest.mark.parametrize("body", ["", "{}", "[]", "null", '{"version": 3}', "[" * 5000, "<html>"])
def test_a_version_that_is_not_one_is_a_note(body: str) -> None:
    """The page counts; the version is not known, and is asked again soon."""

    async def scenario(reader: VllmReader, server: Replay, clock: Clock) -> None:
        reading = await reader.read()
        assert reading.version is None
        assert reading.notes == (
            f"{server.url}/version is not the JSON that is expected there; check that the URL is right",
        )
        server.answers["/version"] = reply('{"version":"0.33.0"}', content_type=JSON)
        clock.now += 10
        assert (await reader.read()).version == "0.33.0"

    with_reader(server_of(vllm("0.33.0/metrics.txt")) | {"/version": reply(body, content_type=JSON)}, scenario)


def test_a_fact_that_hangs_does_not_cost_the_reading() -> None:
    """The page is read at once; the version is given up after its own short deadline."""

    async def hang(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(10)

    reading = read(server_of(vllm("0.33.0/metrics.txt")) | {"/version": hang})

    assert reading.version is None
    assert len(reading.pools) == 1
    assert "/version did not answer within 0.2 s" in reading.notes[0]


def test_an_adapter_is_not_taken_for_the_model() -> None:
    """LoRA adapters are listed beside the base model; the length is the base model's."""
    models = (
        '{"data": [{"id": "adapter", "parent": "base", "max_model_len": 7},'
        ' {"id": "base", "parent": null, "max_model_len": 4096}]}'
    )
    reading = read(server_of(vllm("0.33.0/metrics.txt")) | {"/v1/models": reply(models, content_type=JSON)})

    assert reading.arguments["max_model_len"] == 4096


def test_nothing_listening_is_raised() -> None:
    """Whether that means loading or down, the process table tells."""

    async def scenario() -> None:
        async with replaying({}) as server:
            url = server.url
        endpoint = Endpoint(url, paths=PATHS, deadline_seconds=5.0)
        try:
            await VllmReader(endpoint, clock=Clock()).read()
        finally:
            await endpoint.aclose()

    with pytest.raises(Unreachable) as caught:
        asyncio.run(scenario())
    assert caught.value.reason == "refused"


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (reply("", status=401), Refused, "http_401"),
        (reply("", status=404), Unreadable, "http_404"),
        (reply(vllm("0.33.0/metrics.txt")[:-30]), Unreadable, "truncated"),
    ],
)
def test_metrics_that_cannot_be_used_are_raised(answer: bytes, kind: type[Exception], reason: str) -> None:
    """The message names the URL of the page."""
    with pytest.raises((Refused, Unreadable), match=r"http://127\.0\.0\.1:\d+/metrics") as caught:
        read(server_of("") | {"/metrics": answer})

    assert isinstance(caught.value, kind)
    assert caught.value.reason == reason


OTHER_SERVER: dict[str, bytes | Script] = {
    "/v1/models": reply('{"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}', content_type=JSON)
}


@pytest.mark.parametrize("page", ['[{"iter": 1}]\n', "", "<html></html>\n", "sglang:num_running_reqs 1\n"])
def test_another_server_is_told_by_its_models(page: str) -> None:
    """No vLLM series, and the models are not owned by vLLM: the message says what to check."""
    with pytest.raises(Unreadable, match=r"/metrics has no vllm: series; .* check that the URL is") as caught:
        read(server_of(page) | OTHER_SERVER)

    assert caught.value.reason == "no_series"


def test_another_server_is_not_asked_for_its_models_each_time() -> None:
    """What it is does not change from second to second."""

    async def scenario(reader: VllmReader, server: Replay, clock: Clock) -> None:
        for _ in range(3):
            with pytest.raises(Unreadable):
                await reader.read()
        assert sorted(server.paths) == ["/metrics"] * 3 + ["/v1/models", "/version"]

    with_reader(server_of("") | OTHER_SERVER, scenario)


def test_a_server_without_statistics_serves_all_the_same() -> None:
    """With --disable-log-stats version, model and length are known, and a note says what is not and why."""
    reading = read(server_of(vllm("shapes/log_stats_disabled.txt")))

    assert (reading.state, reading.version, reading.model) == ("serving", "0.32.0", "tiny-llama")
    assert (reading.pools, reading.replicas, reading.arguments) == ((), (), {"max_model_len": 2048})
    assert reading.notes == (
        "no vllm: series, so pools and requests are not known; start vLLM without --disable-log-stats",
    )


@pytest.mark.parametrize(
    ("shape", "note"),
    [
        (
            "sleeping",
            "asleep at level 1: the weights are in host memory, the KV pool is given up; vLLM does not tell what is "
            "back already while it is woken in part",
        ),
        (
            "sleeping_discarded",
            "asleep at level 2: weights and KV pool are given up; vLLM does not tell what is back already while it is "
            "woken in part",
        ),
    ],
)
def test_the_level_of_sleep_is_said(shape: str, note: str) -> None:
    """A sleeping server has no pools, and the note says what became of its weights."""
    reading = read(server_of(vllm(f"shapes/{shape}.txt")))

    assert (reading.state, reading.pools, reading.notes) == ("sleeping", (), (note,))


def test_a_paused_server_keeps_its_pools() -> None:
    """Level 0 stops the scheduler and frees nothing; the pool may have been released on top, which is not told."""
    reading = read(server_of(vllm("shapes/paused.txt")))

    assert (reading.state, len(reading.pools)) == ("serving", 1)
    assert reading.may_be_released
    assert "does not tell whether the KV pool was released" in reading.notes[-1]


@pytest.mark.parametrize(
    ("flags", "running", "may_be"),
    [({"enable-sleep-mode": True}, 0, True), ({"enable-sleep-mode": True}, 3, False), ({}, 0, False), (None, 0, False)],
)
def test_only_an_idle_server_with_sleep_mode_may_have_released_memory(
    flags: dict[str, Any] | None, running: int, may_be: bool
) -> None:
    """Up to 0.31 it calls itself awake as soon as it is woken in part."""
    page = vllm("0.33.0/metrics.txt").replace("num_requests_running{", "num_requests_running_before{")
    page += f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}\n'
    found: list[ServerReading] = []

    async def scenario() -> None:
        async with replaying(server_of(page)) as server:
            endpoint = Endpoint(server.url, paths=PATHS, deadline_seconds=5.0)
            found.append(await VllmReader(endpoint, clock=Clock(), flags=flags).read())
            await endpoint.aclose()

    asyncio.run(scenario())

    assert found[0].may_be_released is may_be


def test_the_v0_engine_is_read_like_its_successors() -> None:
    """No replica label, no counters of the prefix cache, a hit rate of -1 that means switched off."""
    reading = read(server_of(vllm("0.6.6/metrics.txt"), version="0.6.6"))

    (pool,), (replica,) = reading.pools, reading.replicas
    assert (pool.replica, pool.blocks, pool.used_blocks, pool.used_tokens) == ("0", 1000, 250, 4000)
    assert (replica.running_requests, replica.waiting_requests, replica.preemptions) == (3, 1, 2)
    assert (replica.prefix_hit_tokens, replica.prefix_query_tokens) == (None, None)


def test_metrics_behind_a_slash_are_read_each_time() -> None:
    """A bare mount answers 307; compressed or not, in OpenMetrics or not, the reading is the same."""
    page = vllm("shapes/openmetrics.txt")
    packed = reply(
        gzip.compress(page.encode()),
        content_type="application/openmetrics-text; version=1.0.0; charset=utf-8",
        extra="Content-Encoding: gzip\r\n",
    )
    plain = read(server_of(page))
    behind = read(server_of("") | {"/metrics": redirect("/metrics/"), "/metrics/": packed})

    assert behind == plain


NEEDED_LINE = b'vllm:num_requests_running{engine="0",model_name="m"} 1\n'
PACKED = "Content-Encoding: gzip\r\n"


@pytest.mark.parametrize(
    "body",
    [
        reply(NEEDED_LINE * 150_000),
        reply(NEEDED_LINE * 160_000),
        reply(NEEDED_LINE * 3_000 + b'vllm:cache_config_info{a="' + "\U0001f525".encode() * 2_000_000 + b'"} 1\n'),
        reply(gzip.compress(NEEDED_LINE * 1_000_000, compresslevel=1), extra=PACKED),
        reply(gzip.compress(b"".join(b'vllm:cache_config_info{a%d=""} 1\n' % n for n in range(200_000))), extra=PACKED),
    ],
    ids=["lines", "too many bytes", "one label", "bomb", "label names"],
)
def test_the_memory_that_a_page_costs_is_bounded(body: bytes) -> None:
    """However large it is, packed or not: a few times the 8 MiB that are read at most."""

    async def scenario(reader: VllmReader, server: Replay, clock: Clock) -> None:
        tracemalloc.start()
        try:
            with pytest.raises(Unreadable) as caught:
                await reader.read()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert caught.value.reason == "too_large"
        assert peak < 7 * MAX_BYTES  # a wide character takes four bytes once it is text

    with_reader(server_of("") | {"/metrics": body}, scenario)


def test_no_other_path_is_ever_requested() -> None:
    """Paths that change a server's state are not even on the list."""
    assert sorted(PATHS) == ["/metrics", "/v1/models", "/version"]


def without(engine: int, text: str) -> str:
    """The page without what one of its replicas says."""
    return "".join(line for line in text.splitlines(keepends=True) if f'engine="{engine}"' not in line)


@pytest.mark.parametrize("gone", [0, 3])
def test_a_replica_that_is_missing_on_a_page_keeps_its_share(gone: int) -> None:
    """The sum of blocks is still over four: the pools of the others are as large as before, under their names."""

    async def scenario(reader: VllmReader, server: Replay, clock: Clock) -> None:
        whole = await reader.read()
        server.answers["/metrics"] = reply(without(gone, vllm("shapes/dp4.txt")))
        for _ in range(2):
            reading = await reader.read()
        rest = tuple(pool for pool in whole.pools if pool.replica != str(gone))
        assert reading.pools == rest
        assert reading.arguments["dp"] == 4
        assert [one for one in reading.replicas if one.replica == str(gone)] == [ReplicaReading(replica=str(gone))]
        assert any(f"nothing of replica {gone} any more" in note for note in reading.notes)
        server.answers["/metrics"] = reply(vllm("shapes/dp4.txt"))
        assert await reader.read() == whole

    with_reader(server_of(vllm("shapes/dp4.txt")), scenario)


@pytest.mark.parametrize("begins", ["refused", "start", "blocks"])
def test_a_run_with_fewer_replicas_is_another(begins: str) -> None:
    """What was there before it is no part of it."""

    async def scenario(reader: VllmReader, server: Replay, clock: Clock) -> None:
        await reader.read()
        text = "".join(f"{line}\n" for line in without(3, vllm("shapes/dp4.txt")).splitlines())
        if begins == "start":
            text = (
                re.sub(r"^process_start_time_seconds .*\n", "", text, flags=re.M) + "process_start_time_seconds 1.8e9\n"
            )
        if begins == "blocks":
            text = text.replace('num_gpu_blocks="4000"', 'num_gpu_blocks="3000"')
        if begins == "refused":
            reader._replicas.lost(Unreachable("refused", "nothing listens"))
        server.answers["/metrics"] = reply(text)
        reading = await reader.read()
        assert [pool.blocks for pool in reading.pools] == [1000 if begins == "blocks" else 1333] * 3
        assert not any("any more" in note for note in reading.notes)

    with_reader(server_of(vllm("shapes/dp4.txt")), scenario)
