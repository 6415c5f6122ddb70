"""Every fault of a server under the whole program: sixteen servers, one fault each, all at once, then well again."""

import asyncio
import contextlib
import gzip
import re
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import psutil
import pytest
from msgspec import Struct

from collectors.simulated.state import write_state
from tests.collectors.replay import Replay, Script, redirect, reply
from tests.double.build import build, environment
from tests.node import state
from tests.program import Program, running
from tests.served import RECORDED, ServerProcess, answers, served

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
MEBIBYTE = 2**20
LAST_SECONDS = 3.0  # a fault goes on for this long after the last server is known to have it
LIMIT_MIB = 160  # of memory, with five servers that send all they can


async def drip(writer: asyncio.StreamWriter) -> None:
    """A byte every 50 ms."""
    writer.write(HEAD + b"\r\n")
    for character in RECORDED.encode():
        writer.write(bytes([character]))
        await writer.drain()
        await asyncio.sleep(0.05)


async def hundred_megabytes(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 104857600\r\n\r\n")
    for _ in range(1600):
        writer.write(b"# a comment as long as it is void of content\n" * 1456 + b"#" * 15 + b"\n")
        await writer.drain()


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"\r\n")
    while True:
        writer.write(b"vllm:num_requests_running 1\n" * 1000)
        await writer.drain()


def with_values(value: str) -> str:
    """The recorded page with every sample at this value."""
    return re.sub(r"^(vllm:.*) \S+$", rf"\1 {value}", RECORDED, flags=re.M)


def doubled() -> str:
    """The recorded page with every sample twice."""
    return re.sub(r"^([^#].*\n)", r"\1\1", RECORDED, flags=re.M)


BOMB = reply(gzip.compress(b"\n" * 100 * MEBIBYTE, compresslevel=1), extra="Content-Encoding: gzip\r\n")
LONG_NAME = "".join(
    f'vllm:{name}{{model_name="{"x" * 2 * MEBIBYTE}"}} 1\n' for name in ("kv_cache_usage_perc", "num_requests_running")
)
FAULTS: dict[str, tuple[bytes | Script, str]] = {
    "drips": (drip, "timeout"),
    "sends 100 MB": (hundred_megabytes, "too_large"),
    "never ends": (endless, "too_large"),
    "gzip bomb": (BOMB, "too_large"),
    "name of 2 MB": (reply(LONG_NAME), "too_large"),
    "malformed": (reply(RECORDED.replace("} ", " ")), "malformed"),
    "cut off": (reply(RECORDED).replace(b"Content-Length: 4", b"Content-Length: 9"), "truncated"),
    "fails": (reply("Internal Server Error", status=500), "http_500"),
    "wants a key": (reply("", status=401), "http_401"),
    "binary": (reply(b"PNG", content_type="image/png"), "not_text"),
    "not HTTP": (b"\x16\x03\x01\x02\x00\r\n\r\n", "not_http"),
}
MILD: dict[str, bytes | Script] = {"doubled": reply(doubled()), "all NaN": reply(with_values("NaN"))}


FAILING = {**{name: reason for name, (_, reason) in FAULTS.items()}, "redirects": "redirect", "stopped": "timeout"}
ALSO = {"reset", "timeout"}  # what an end in mid-answer, and a busy machine, may add
GONE = "killed"
PROCESSES = ("stopped", GONE, "restarted")
CALM = "calm"
OF_ITS_PROCESSES = {
    *("server_state", "server_info", "server_device_info", "server_restarts_total"),
    *(f"memory_{what}" for what in ("bytes", "evidence_info", "overattributed_bytes")),
}
"""Series that rest on the driver and the process table: they stay while the processes live."""


class Story(Struct, frozen=True, kw_only=True):
    """What was scraped before the faults, when a server was first seen failing, at their end and after; and the log."""

    before: str
    first: dict[str, str]
    during: list[str]
    end: str
    after: str
    log: list[str]
    rss_mib: float
    asked_elsewhere: list[str]


def failing(text: str, server: str) -> bool:
    return f'vramscope_collector_success{{collector="endpoint",target="{server}"}} 0' in text


def serving(text: str, server: str) -> bool:
    return f'vramscope_server_state{{server="{server}",state="serving"}} 1' in text


def settled(text: str, here: Collection[str], servers: Collection[str]) -> str:
    """The scrape, once all servers serve and say something, and what is here is seen on the GPU; else nothing."""
    known = all(serving(text, name) and "server_requests" in series(text, name) for name in servers)
    return text if known and all("memory_bytes" in series(text, name) for name in here) else ""


def series(text: str, server: str) -> set[str]:
    """Names of the samples that carry this server's label, but for those of its log, which is there or not."""
    return set(re.findall(rf'^vramscope_(\w+){{[^}}]*server="{server}"', text, re.M)) - {"server_oom_events_total"}


def sample(text: str, name: str, label: str) -> float | None:
    """The value of the one sample with this name and label."""
    found = re.search(rf"^vramscope_{name}{{[^}}]*{re.escape(label)}[^}}]*}} (\S+)$", text, re.M)
    return float(found[1]) if found else None


def failures(text: str, server: str) -> dict[str, int]:
    """Failed readings of a server's endpoint by reason, without those that never happened."""
    pattern = rf'failures_total{{collector="endpoint",reason="(\w+)",target="{server}"}} (\S+)'
    return {reason: int(float(count)) for reason, count in re.findall(pattern, text) if float(count)}


def node(folder: Path, urls: dict[str, str]) -> tuple[Path, dict[str, str]]:
    """Settings that name these servers, and the environment of the program: a GPU of which they hold nothing."""
    write_state(folder / "node.state", state())
    lines = [f"  - {{name: '{name}', url: '{url}'}}" for name, url in urls.items()]
    config = folder / "vramscope.yml"
    config.write_text("\n".join(["discovery: false", "intervals: {endpoints: 0.2}", "servers:", *lines]) + "\n")
    return config, environment(build(folder), folder / "node.state")


def fall_ill(replays: dict[str, Replay], processes: dict[str, ServerProcess]) -> None:
    for name, (answer, _) in FAULTS.items():
        replays[name].answers["/metrics"] = answer
    for name, mild in MILD.items():
        replays[name].answers["/metrics"] = mild
    replays["redirects"].answers["/metrics"] = redirect(f"{replays['elsewhere'].url}/metrics")
    processes["stopped"].signal(signal.SIGSTOP)
    processes[GONE].kill()
    processes["restarted"].kill()
    processes["restarted"].start()


def recover(replays: dict[str, Replay], processes: dict[str, ServerProcess]) -> None:
    for replay in replays.values():
        replay.answers |= answers()
    processes["stopped"].signal(signal.SIGCONT)
    processes[GONE].start()


def watch_them_fail(program: Program, servers: set[str]) -> tuple[dict[str, str], list[str]]:
    """The first scrape in which each server fails, and every scrape until some time after the last of them."""
    first: dict[str, str] = {}
    during: list[str] = []

    def all_seen() -> bool:
        text = program.metrics()
        during.append(text)
        first.update({name: text for name in servers - set(first) if failing(text, name)})
        return servers == set(first)

    program.until(all_seen)
    until = time.monotonic() + LAST_SECONDS
    while time.monotonic() < until:
        during.append(program.metrics())
        time.sleep(0.1)
    return first, during


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """All faults at once on one node."""
    in_thread = [*FAULTS, *MILD, "redirects", CALM]
    with contextlib.ExitStack() as stack:
        processes = {name: stack.enter_context(ServerProcess()) for name in PROCESSES}
        replays = stack.enter_context(served({name: answers() for name in [*in_thread, "elsewhere"]}))
        urls = {name: replays[name].url for name in in_thread} | {name: one.url for name, one in processes.items()}
        config, variables = node(tmp_path_factory.mktemp("node"), urls)
        with running("run", "--config", str(config), "--listen", "127.0.0.1:0", environment=variables) as program:
            before = program.until(lambda: settled(program.metrics(), in_thread, urls))
            fall_ill(replays, processes)
            first, during = watch_them_fail(program, {*FAILING, GONE})
            end = program.metrics()
            rss_mib = psutil.Process(program.process.pid).memory_info().rss / MEBIBYTE
            asked_elsewhere = replays["elsewhere"].paths
            recover(replays, processes)
            after = program.until(lambda: settled(program.metrics(), in_thread, urls))
        yield Story(
            before=before,
            first=first,
            during=during,
            end=end,
            after=after,
            log=program.errors,
            rss_mib=rss_mib,
            asked_elsewhere=asked_elsewhere,
        )


@pytest.mark.parametrize("server", [*FAILING, GONE])
def test_a_failing_server_is_exported_as_what_it_is(story: Story, server: str) -> None:
    """In the very scrape that says it fails nothing is left of what it had said; the reason is counted."""
    assert "kv_used_ratio" in series(story.before, server)
    assert series(story.first[server], server) - {"risk_level"} <= OF_ITS_PROCESSES
    assert sample(story.first[server], "risk_level", f'server="{server}"') != 0, "blindness is never ok"
    assert (
        {FAILING.get(server, "refused")} <= set(failures(story.end, server)) <= ALSO | {FAILING.get(server, "refused")}
    )


def test_of_a_dead_server_its_state_alone_is_left(story: Story) -> None:
    """Once the process table was looked at again."""
    assert series(story.end, GONE) == {"server_state"}


@pytest.mark.parametrize("server", [*FAILING, GONE])
def test_a_failing_server_recovers_by_itself(story: Story, server: str) -> None:
    """As soon as it answers again, everything is back as it was."""
    assert not failing(story.after, server)
    assert series(story.after, server) == series(story.before, server)


@pytest.mark.parametrize("server", [*FAILING, GONE])
def test_a_failing_server_is_logged_once(story: Story, server: str) -> None:
    """One line for each reason, however often it is asked meanwhile, and one when it works again."""
    lines = [line for line in story.log if f"endpoint {server} " in line]

    assert ["failed: " in line for line in lines] == [True] * len(failures(story.after, server)) + [False]
    assert lines[-1].endswith(f"endpoint {server} works again\n")


@pytest.mark.parametrize(("server", "state"), [("stopped", "loading"), (GONE, "down"), ("malformed", "loading")])
def test_the_state_of_a_failing_server(story: Story, server: str, state: str) -> None:
    """Without an answer it is loading while its processes live, else down."""
    assert f'vramscope_server_state{{server="{server}",state="{state}"}} 1' in story.end


def test_a_restart_is_counted(story: Story) -> None:
    """A server that was killed and started again; one that merely stood still did not restart."""
    for text in (story.end, story.after):
        assert sample(text, "server_restarts_total", 'server="restarted"') == 1
    assert sample(story.after, "server_restarts_total", f'server="{GONE}"') == 1
    assert sample(story.after, "server_restarts_total", 'server="stopped"') == 0


def test_a_page_that_says_everything_twice_counts_once(story: Story) -> None:
    """Nothing is added up, and it is no failure."""
    for name in series(story.before, "doubled") - {"collector_duration_seconds"}:
        label = 'server="doubled"'
        assert sample(story.end, name, label) == sample(story.before, name, label)
    assert failures(story.end, "doubled") == {}


def test_a_page_full_of_nan_says_nothing(story: Story) -> None:
    """The server serves, what it does not know has no series, and no NaN is passed on."""
    assert serving(story.end, "all NaN")
    assert failures(story.end, "all NaN") == {}
    assert not series(story.end, "all NaN") & {
        "kv_used_ratio",
        "kv_tokens",
        "server_requests",
        "server_preemptions_total",
    }
    assert "NaN" not in story.end.replace('"all NaN"', "")


def test_a_redirect_to_another_host_is_not_followed(story: Story) -> None:
    """The other host is not even asked."""
    assert story.asked_elsewhere == []


def test_a_healthy_server_beside_them_is_read_all_the_time(story: Story) -> None:
    """No fault of one server takes anything away from another, and every scrape was answered."""
    whole = series(story.before, CALM)
    assert "kv_tokens" in whole
    assert all(series(text, CALM) == whole and not failing(text, CALM) for text in story.during)
    assert [line for line in story.log if f" {CALM} " in line] == []


def test_memory_stays_bounded(story: Story) -> None:
    """While five servers send as much as they can."""
    assert story.rss_mib < LIMIT_MIB


def test_nothing_else_is_logged(story: Story) -> None:
    """No traceback, no warning of a library; that a recording was kept of a server that died is said."""
    kept = r"INFO recording kept \((server died|risk critical) [\w ]+\)"
    expected = rf"(INFO|WARNING) endpoint .* (failed: |works again)|{kept}"
    assert [line for line in story.log if not re.search(expected, line)] == []
