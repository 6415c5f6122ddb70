"""The stream of snapshots: newest first and newest only, made once for all, and never in a scraper's way."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest

from agent.web import events, serving
from agent.web.web_config import WebConfig
from agent.web.web_file import WebFile
from tests.agent.web.serve import FakeLatest, serving_on_loopback

PATH = "/api/v1/events"
FILLING = "x" * 100_000
DEADLINE_SECONDS = 20


class Ticking(FakeLatest):
    """Has a new snapshot whenever it is asked, or the same while it is ``still``; counts how often it is."""

    still = False
    size = 0

    def __init__(self) -> None:
        self.asked = self.number = 0

    @property
    def snapshot_json(self) -> bytes:  # type: ignore[override]
        self.asked += 1
        self.number += not self.still
        return json.dumps({"number": self.number, "filling": FILLING[: self.size]}).encode()


@pytest.fixture
def latest(monkeypatch: pytest.MonkeyPatch) -> Ticking:
    monkeypatch.setattr(events, "PACE_SECONDS", 0.02)
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(events, "BEAT_SECONDS", 0.1)
    return Ticking()


@pytest.fixture
def base(latest: Ticking) -> Iterator[str]:
    with serving_on_loopback(latest) as url:
        yield url


class Stream:
    """A stream that stays open; ``answer`` is its head."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.iter_lines()

    def next(self) -> tuple[str, Any]:
        """Name and data of the next event."""
        name = ""
        for line in self._lines:
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                return name, json.loads(value)
        raise EOFError

    def numbers(self, count: int) -> list[int]:
        return [self.next()[1]["number"] for _ in range(count)]


@contextmanager
def stream(base: str, *, accepting: str = "gzip") -> Iterator[Stream]:
    with httpx.stream("GET", base + PATH, headers={"accept-encoding": accepting}) as answer:
        yield Stream(answer)


@pytest.mark.parametrize("accepted", ["gzip", "identity"])
def test_each_snapshot_is_an_event(base: str, accepted: str) -> None:
    """Plain or compressed, one behind the other, each readable as it comes."""
    with stream(base, accepting=accepted) as one:
        seen = one.numbers(5)

    assert one.answer.headers["content-type"] == "text/event-stream"
    assert one.answer.headers.get("content-encoding", "identity") == accepted
    assert one.answer.headers["cache-control"] == "no-store"
    assert seen == list(range(seen[0], seen[0] + 5))


def test_a_late_comer_reads_frames_that_were_packed_for_others(base: str) -> None:
    """It begins within everybody's compressed stream, at once with the newest snapshot."""
    with stream(base) as first:
        first.numbers(10)
        with stream(base) as second:
            seen = second.numbers(3)

    assert seen[0] >= 10


def test_nothing_is_made_while_nobody_listens(base: str, latest: Ticking) -> None:
    """Not before the first stream, and no more once the last has gone; for many it is made once."""
    assert latest.asked == 0

    with stream(base) as one, stream(base) as other:
        first, second = set(one.numbers(50)), set(other.numbers(50))
        assert len(first & second) > 30
    before = -1
    deadline = time.monotonic() + DEADLINE_SECONDS
    while before != latest.asked:
        assert time.monotonic() < deadline
        before = latest.asked
        time.sleep(0.3)


def test_silence_is_told_from_absence(base: str, latest: Ticking) -> None:
    """Without a new snapshot a beat comes, with the reason where there is one."""
    latest.still = True
    with stream(base) as one:
        first, second = one.next(), one.next()
        latest.healthy = "no tick for 12 s"
        said = second
        while said == second:
            said = one.next()

    assert (first[0], second, said) == ("", ("beat", None), ("beat", "no tick for 12 s"))


def test_a_reason_that_is_over_is_not_told_any_more(base: str, latest: Ticking) -> None:
    """Who comes after it begins with the newest figures and is told nothing of it."""
    latest.healthy = "no tick for 12 s"
    with stream(base) as one:
        said = one.next()
        latest.healthy = None
        with stream(base) as other:
            seen = [other.next()[0] for _ in range(5)]

    assert (said, seen) == (("beat", "no tick for 12 s"), [""] * 5)


def test_a_client_without_chunks_gets_events_as_they_are(base: str) -> None:
    """As proxies ask that speak HTTP/1.0, which has none: the answer ends with its connection."""
    with socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2])), DEADLINE_SECONDS) as client:
        client.sendall(f"GET {PATH} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
        with client.makefile("rb") as answer:
            head = list(iter(answer.readline, b"\r\n"))
            events = [answer.readline() for _ in range(6)]

    assert not any(line.lower().startswith(b"transfer-encoding") for line in head)
    assert all(json.loads(line[6:])["number"] for line in events[::2])
    assert events[1::2] == [b"\n"] * 3


def test_too_many_streams_are_refused_and_a_scraper_is_not(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence that says what to do instead; when a page goes, the next is let in."""
    monkeypatch.setattr(events, "MAX_STREAMS", 2)
    with stream(base) as first:
        first.numbers(1)
        with stream(base) as second:
            second.numbers(1)

            refused = httpx.get(base + PATH)
            scraped = httpx.get(base + "/metrics")

        assert refused.status_code == 503
        assert refused.text == "2 pages are being kept live already; ask /api/v1/snapshot again and again instead\n"
        assert scraped.status_code == 200
        deadline = time.monotonic() + DEADLINE_SECONDS
        while httpx.head(base + PATH).status_code != 200:
            assert time.monotonic() < deadline


def test_all_streams_together_leave_connections_for_others() -> None:
    """With TLS too, where there are fewer."""
    assert min(serving.MAX_CONNECTIONS, serving.MAX_TLS_CONNECTIONS) > 2 * events.MAX_STREAMS


def listen_only(base: str) -> socket.socket:
    """A client with little room that asks for a stream and does not read it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", int(base.rpartition(":")[2])))
    client.sendall(f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    client.settimeout(DEADLINE_SECONDS)
    return client


def test_a_slow_client_gets_the_newest_and_no_queue(base: str, latest: Ticking) -> None:
    """While it does not read, hundreds of snapshots go by; some that are under way, and then the newest, are left."""
    latest.size = len(FILLING)
    with listen_only(base) as client, stream(base) as other:
        other.numbers(200)
        newest = latest.number
        seen: list[int] = []
        rest = b""
        while not seen or seen[-1] < newest:
            *lines, rest = (rest + client.recv(1 << 16)).split(b"\n")
            seen += [json.loads(line[6:])["number"] for line in lines if line.startswith(b"data: ")]

    assert len(seen) < 20


def test_who_takes_nothing_is_closed(base: str, latest: Ticking, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the connection ends; one that keeps up stays, although it has said nothing since."""
    monkeypatch.setattr(serving, "SEND_SECONDS", 0.3)
    latest.size = len(FILLING)
    with listen_only(base) as client, stream(base) as other:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while _is_held_for(client):
            assert other.numbers(20)
            assert time.monotonic() < deadline
        assert other.numbers(20)


def _is_held_for(client: socket.socket) -> bool:
    """Whether the server, in a thread of this process, still has the other end of a connection."""
    return any(one.raddr == client.getsockname() for one in psutil.Process().net_connections("tcp4"))


def test_a_stream_ends_with_the_web_config_under_which_it_began() -> None:
    """Who is no user any more is asked again who he is."""
    web = WebFile()
    with serving_on_loopback(Ticking(), web=web) as base, stream(base) as one:
        one.numbers(1)

        web.config = WebConfig()

        with pytest.raises(EOFError):
            one.numbers(100)


def test_an_agent_that_stops_does_not_wait_for_its_pages(latest: Ticking) -> None:
    """Streams have no end of their own, so it ends them."""
    with serving_on_loopback(latest) as base:
        listening = threading.Event()

        def listen() -> None:
            with stream(base) as one:
                one.numbers(1)
                listening.set()
                with pytest.raises(httpx.RemoteProtocolError):
                    one.numbers(10_000)

        thread = threading.Thread(target=listen)
        thread.start()
        assert listening.wait(DEADLINE_SECONDS)
    thread.join(DEADLINE_SECONDS)

    assert not thread.is_alive()


def test_head_tells_of_a_stream_without_being_one(base: str, latest: Ticking) -> None:
    """It ends at once and makes nothing."""
    answer = httpx.head(base + PATH)

    assert (answer.status_code, answer.content, latest.asked) == (200, b"", 0)
