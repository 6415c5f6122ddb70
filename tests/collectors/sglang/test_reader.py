"""Reading a whole SGLang server over HTTP: what is asked how often, and what comes of each thing that can go wrong."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from collectors.errors import CollectorError
from collectors.facts import FACTS_SECONDS
from collectors.http_text import Endpoint
from collectors.readings import RankReport, ReplicaReading, ServerReading
from collectors.sglang.reader import PATHS, SglangReader
from tests.collectors.replay import FIXTURES, Replay, Script, replaying, reply

JSON = "application/json"
RECORDED = FIXTURES / "sglang" / "recorded-0.5.23"


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def fixture(name: str) -> str:
    return (FIXTURES / "sglang" / name).read_text(encoding="utf-8")


def server_of(metrics: str) -> dict[str, bytes | Script]:
    """The answers of a healthy server with this metrics page."""
    return {
        "/metrics": reply(metrics),
        "/server_info": reply((RECORDED / "server_info.json").read_bytes(), content_type=JSON),
    }


def with_reader(
    answers: dict[str, bytes | Script], scenario: Callable[[SglangReader, Replay, Clock], Awaitable[None]]
) -> None:
    async def run() -> None:
        async with replaying(answers) as server:
            clock = Clock()
            endpoint = Endpoint(server.url, paths=PATHS, deadline_seconds=5.0)
            try:
                await scenario(SglangReader(endpoint, clock=clock, fact_deadline_seconds=0.5), server, clock)
            finally:
                await endpoint.aclose()

    asyncio.run(run())


def read(answers: dict[str, bytes | Script]) -> ServerReading:
    """One reading of a fresh server."""
    found: list[ServerReading] = []

    async def once(reader: SglangReader, server: Replay, clock: Clock) -> None:
        found.append(await reader.read())

    with_reader(answers, once)
    return found[0]


def test_a_recorded_server_is_read_whole() -> None:
    """Nearly full: two requests run, two wait, tokens as computed, five first tokens."""
    reading = read(server_of(fixture("recorded-0.5.23/metrics_nearfull.txt")))

    assert (reading.engine, reading.state, reading.version, reading.model) == (
        "sglang",
        "serving",
        "0.5.23",
        "tiny-llama",
    )
    assert reading.replicas == (
        ReplicaReading(
            replica="0",
            running_requests=2,
            waiting_requests=2,
            preemptions=None,  # no series before the first retraction
            prompt_tokens=286,
            generation_tokens=5811,
            finished=3,
            finished_prompt_tokens=157,
            finished_generation_tokens=3008,
            prefix_hit_tokens=3,
            prefix_query_tokens=286,
            first_tokens=5,
            first_token_seconds=13.958091660568698,
        ),
    )
    assert reading.ranks == (RankReport(replica="0", pp_rank=0),)  # weights came out below 0, graphs are off
    assert reading.arguments == {
        "tp": 1,
        "pp": 1,
        "dp": 1,
        "dp_attention": False,
        "dtype": "auto",
        "kv_cache_dtype": "auto",
        "block_size": 1,
        "max_model_len": 2048,
        "mem_fraction_static": 0.719,
        "max_num_batched_tokens": 4096,
        "max_num_seqs": 8,
        "max_total_tokens": 3200,
        "swa_full_tokens_ratio": 0.8,
        "mamba_full_memory_ratio": 0.9,
        "enforce_eager": True,
        "prefix_caching": True,
    }
    assert reading.notes == ()


@pytest.mark.parametrize(
    ("version", "retracted", "prompt", "generated", "hits"),
    [
        ("0.4.6", None, 5000, 700, 1200),
        ("0.5.1", 4, 5000, 700, 1200),
        ("0.5.9", 4, 5200, 900, 1300),  # live, ahead of those of ended requests
        ("0.5.12.post1", 4, 5200, 900, 1300),
    ],
)
def test_counters_in_every_version(version: str, retracted: int | None, prompt: int, generated: int, hits: int) -> None:
    """Under the names that the version has."""
    (replica,) = read(server_of(fixture(f"{version}/metrics.txt"))).replicas

    assert (replica.preemptions, replica.prompt_tokens, replica.generation_tokens) == (retracted, prompt, generated)
    assert (replica.prefix_hit_tokens, replica.prefix_query_tokens) == (hits, prompt)
    assert (replica.running_requests, replica.waiting_requests) == (3, 1)
    assert (replica.first_tokens, replica.first_token_seconds) == (40, 12.5)


def test_all_schedulers_are_not_added_up() -> None:
    """Four ranks of one replica count the same requests and tokens."""
    (replica,) = read(server_of(fixture("shapes/all_schedulers_tp4.txt"))).replicas

    assert (replica.running_requests, replica.preemptions, replica.prompt_tokens) == (3, 4, 5200)


def test_counts_that_name_no_replica_belong_to_none_of_several() -> None:
    """Times to the first token are of the whole server."""
    replicas = read(server_of(fixture("shapes/dp2.txt"))).replicas

    assert [replica.prompt_tokens for replica in replicas] == [5200, 5200]
    assert [replica.first_tokens for replica in replicas] == [None, None]


def test_gigabytes_are_gibibytes() -> None:
    """14.96 and 0.5 + 0.25 of 2**30 bytes."""
    reading = read(server_of(fixture("shapes/gigabytes.txt")))

    assert reading.ranks == (
        RankReport(replica="0", pp_rank=0, weights_bytes=round(14.96 * 2**30), cuda_graphs_bytes=3 << 28),
    )


def test_tokens_in_use_without_a_request_may_be_old() -> None:
    """SGLang renews its figures every 30 s when idle: a note says so, the figures are passed on."""
    text = fixture("recorded-0.5.23/metrics_nearfull.txt")
    idle = "\n".join(
        f"{line.rpartition(' ')[0]} 0.0" if line.startswith(("sglang:num_running", "sglang:num_queue")) else line
        for line in text.split("\n")
    )
    reading = read(server_of(idle))

    assert "may be old" in reading.notes[0]
    assert reading.pools[0].used_tokens == 2899


def test_only_safe_paths_are_requested_and_facts_seldom() -> None:
    """Ten readings ask once for what goes through the scheduler; ``/health`` would generate a token."""

    async def scenario(reader: SglangReader, server: Replay, clock: Clock) -> None:
        for _ in range(10):
            await reader.read()
            clock.now += 30
        assert server.paths.count("/server_info") == 1
        clock.now = 1000.0 + FACTS_SECONDS
        await reader.read()
        assert server.paths.count("/server_info") == 2
        assert set(server.paths) == {"/metrics", "/server_info"}

    with_reader(server_of(fixture("recorded-0.5.23/metrics_growing.txt")), scenario)
    assert not any("health" in path or path.startswith(("/flush", "/start", "/stop", "/release")) for path in PATHS)


def test_old_versions_have_another_name_for_their_facts() -> None:
    """Asked for only where the new one is not there, since a new server logs a warning over it."""
    answers = server_of(fixture("0.4.6/metrics.txt"))
    del answers["/server_info"]
    answers["/get_server_info"] = reply('{"version":"0.4.6.post2","max_total_num_tokens":4000,"tp_size":2}')
    reading = read(answers)

    assert reading.version == "0.4.6.post2"
    assert reading.pools[0].capacity_tokens == 4000
    assert reading.arguments == {"tp": 2}


def test_a_server_without_facts_is_read_all_the_same() -> None:
    """Version and arguments are not known then, and a note says why."""
    answers = server_of(fixture("0.5.12.post1/metrics.txt"))
    answers["/server_info"] = reply("denied", status=401)
    reading = read(answers)

    assert reading.version is None
    assert reading.pools[0].used_tokens == 992
    assert "api_key_file" in reading.notes[0]


def test_keys_in_the_facts_are_not_kept() -> None:
    """``/server_info`` holds the server's API key."""
    answers = server_of(fixture("0.5.12.post1/metrics.txt"))
    answers["/server_info"] = reply('{"version":"0.5.12.post1","api_key":"canary","admin_api_key":"canary"}')

    assert "canary" not in repr(read(answers))


@pytest.mark.parametrize(
    ("answer", "reason", "word"),
    [
        (reply("not found", status=404), "metrics_off", "--enable-metrics"),
        (reply("x", status=503), "http_503", "not ready"),
        (reply("some_other_metric 1\n"), "no_series", "SGLang"),
    ],
)
def test_what_can_go_wrong_is_said(answer: bytes, reason: str, word: str) -> None:
    """One sentence each, with the flag to set where there is one."""
    with pytest.raises(CollectorError) as caught:
        read({"/metrics": answer})

    assert caught.value.reason == reason
    assert word in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("tp_size", value) for value in ('"8"', "[]", "8.5", "true", "9" * 40)),
        *(("page_size", value) for value in ("-5", "9" * 40)),
        *(("context_length", "-5"), ("cpu_offload_gb", '"4"'), ("mem_fraction_static", "1e300")),
        *(("quantization", "7"), ("dtype", "{}"), ("kv_cache_dtype", f'"{"x" * 1000}"')),
        *(("disable_cuda_graph", "1"), ("disable_radix_cache", '"no"')),
    ],
)
def test_a_fact_that_can_not_be_is_not_known(name: str, value: str) -> None:
    """It alone, with a note; the page and all other facts stay, and nothing is asked before its time."""

    async def scenario(reader: SglangReader, server: Replay, clock: Clock) -> None:
        for _ in range(3):
            reading = await reader.read()
        assert (reading.version, reading.pools[0].used_tokens) == ("0.5.12.post1", 992)
        assert reading.arguments.keys() <= {"pp", "max_model_len", "block_size"}
        assert reading.notes[0] == f"its facts have what can't be as {name}: that is not known"
        assert server.paths.count("/server_info") == 1

    answers = server_of(fixture("0.5.12.post1/metrics.txt"))
    answers["/server_info"] = reply(f'{{"version":"0.5.12.post1","pp_size":1,"{name}":{value}}}', content_type=JSON)
    with_reader(answers, scenario)


def test_whatever_a_parser_of_facts_raises_the_page_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a note for a minute, not a failure of the server."""

    async def scenario(reader: SglangReader, server: Replay, clock: Clock) -> None:
        for _ in range(3):
            reading = await reader.read()
        assert reading.pools[0].used_tokens == 992
        assert "is not the JSON that is expected there" in reading.notes[0]
        assert server.paths.count("/server_info") == 1

    def failing(text: str) -> None:
        raise OverflowError(text)

    monkeypatch.setattr("collectors.sglang.reader.parse_info", failing)
    with_reader(server_of(fixture("0.5.12.post1/metrics.txt")), scenario)
