"""Routes behind a real server: what is answered, what is refused, and what a client can't make the agent spend."""

import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from agent.errors import RunError
from agent.exporter import CONTENT_TYPE
from agent.web import serving
from agent.web.serving import bind
from tests.agent.web.serve import FakeLatest, serving_on_loopback


@pytest.fixture
def latest() -> FakeLatest:
    return FakeLatest()


@pytest.fixture
def base(latest: FakeLatest) -> Iterator[str]:
    with serving_on_loopback(latest) as url:
        yield url


def port_of(base: str) -> int:
    return int(base.rpartition(":")[2])


def talk(base: str, request: bytes) -> bytes:
    """Send raw bytes and read until the server closes or has answered."""
    with socket.create_connection(("127.0.0.1", port_of(base)), timeout=10) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := client.recv(65536):
            answer += chunk
        return answer


def is_dropped(client: socket.socket, requests: bytes) -> bool:
    """Whether the server ends a connection on which it is sent these all the time."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            client.send(requests)
        except BlockingIOError:
            time.sleep(0.05)
        except ConnectionError:
            return True
    return False


@pytest.mark.parametrize(
    ("path", "kind", "start"),
    [
        ("/", "text/html; charset=utf-8", b"<!doctype html>"),
        ("/static/app.js", "text/javascript; charset=utf-8", b""),
        ("/static/style.css", "text/css; charset=utf-8", b""),
        ("/metrics", CONTENT_TYPE, b"vramscope_build_info"),
        ("/api/v1/snapshot", "application/json", b'{"schema"'),
        ("/api/v1/history", "application/json", b'{"schema"'),
        ("/-/ready", "text/plain; charset=utf-8", b"ready"),
        ("/-/healthy", "text/plain; charset=utf-8", b"healthy"),
    ],
)
def test_every_route_answers(base: str, path: str, kind: str, start: bytes) -> None:
    """Content, type and the safe headers."""
    answer = httpx.get(base + path)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == kind
    assert answer.content.lower().startswith(start)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_metrics_are_compressed_when_asked(base: str) -> None:
    """Ready-made bytes, plain and gzip."""
    plain = httpx.get(base + "/metrics", headers={"accept-encoding": "identity"})
    packed = httpx.get(base + "/metrics", headers={"accept-encoding": "gzip"})

    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.content == packed.content == FakeLatest.metrics


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip", True),
        ("deflate, GZIP ; q=0.5", True),
        ("gzip;q=1.0", True),
        ("gzip;q=0", False),
        ("gzip; q=0.00, identity", False),
        ("notgzip", False),
        ("*", False),
        ("", False),
    ],
)
def test_what_a_client_accepts_is_read_with_its_weight(base: str, accepted: str, packed: bool) -> None:
    """Gzip goes to whoever names it, and to nobody who refuses it."""
    answer = httpx.get(base + "/metrics", headers={"accept-encoding": accepted})

    assert ("content-encoding" in answer.headers) == packed


@pytest.mark.parametrize("path", ["/nothing", "/static/routes.py", "/static/..%2froutes.py", "/metrics/", "//metrics"])
def test_other_paths_are_not_found(base: str, path: str) -> None:
    """Only the listed routes exist; no file of the package leaks."""
    answer = httpx.get(base + path)

    assert answer.status_code == 404
    assert "the page is at /" in answer.text


def test_stale_collection_is_not_ready_and_a_stuck_tick_serves_nothing(base: str, latest: FakeLatest) -> None:
    """A frozen value is worse than none."""
    latest.ready = "nvml: no driver"
    assert (httpx.get(base + "/-/ready").status_code, httpx.get(base + "/-/ready").text) == (503, "nvml: no driver\n")
    assert httpx.get(base + "/metrics").status_code == 200

    latest.healthy = "no tick for 12 s"
    assert [httpx.get(base + path).status_code for path in ("/-/healthy", "/metrics", "/api/v1/snapshot")] == [503] * 3


def test_what_was_recorded_is_there_where_something_was(base: str) -> None:
    """Without a recorder one sentence says what there is instead."""
    answer = httpx.get(base + "/api/v1/history?recorded")

    assert (answer.status_code, answer.text.partition(";")[0]) == (404, "nothing is recorded here")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_only_reading_is_allowed(base: str, method: str) -> None:
    """One clear sentence and the allowed methods."""
    answer = httpx.request(method, base + "/metrics")

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_head_has_no_body(base: str) -> None:
    """HEAD answers like GET without content."""
    answer = httpx.head(base + "/metrics")

    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    ("host", "path", "status"),
    [
        ("127.0.0.1", "/", 200),
        ("[::1]:1", "/", 200),
        ("gpu-node.example.net:10175", "/", 200),
        ("GPU-NODE.example.net", "/api/v1/snapshot", 200),
        ("gpu-node", "/", 200),
        ("evil.example.com", "/", 421),
        ("evil.example.com", "/api/v1/snapshot", 421),
        ("evil.example.com", "/static/app.js", 421),
        ("metrics.monitoring.svc", "/metrics", 200),
        ("a b", "/metrics", 400),
        ("x/y", "/metrics", 400),
        ("user@host", "/metrics", 400),
    ],
)
def test_host_must_name_this_node(base: str, host: str, path: str, status: int) -> None:
    """A page that resolves a foreign name to this node can't read it; scrapers may use any well-formed name."""
    answer = talk(base, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())

    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


def test_two_hosts_are_refused(base: str) -> None:
    """An ambiguous request is answered with 400."""
    answer = talk(base, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil\r\nConnection: close\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_body_is_refused(base: str) -> None:
    """Nothing here takes one, and none is read."""
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"

    assert talk(base, request).startswith(b"HTTP/1.1 413 ")


def test_endless_headers_are_cut(base: str) -> None:
    """A header block over 16 KiB ends the connection with 400."""
    answer = talk(base, b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000)

    assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_head_that_is_too_long_is_refused_although_it_came_at_once(base: str) -> None:
    """One header of 17 KiB, or a thousand small ones."""
    for headers in (b"X: " + b"a" * 17_000 + b"\r\n", b"Some-Header: something\r\n" * 1000):
        answer = talk(base, b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n")

        assert answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


def test_a_client_that_never_reads_is_dropped(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelined requests whose answers nobody takes hold a connection for a while only."""
    monkeypatch.setattr(serving, "SEND_SECONDS", 0.3)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(("127.0.0.1", port_of(base)))
        client.setblocking(False)

        assert is_dropped(client, b"GET /static/style.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 20)
    assert httpx.get(base + "/-/healthy").status_code == 200


def test_slow_request_is_dropped(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that never completes its request does not keep a connection."""
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", port_of(base)), timeout=10) as client:
        client.sendall(b"GET /metrics HT")

        assert client.recv(100) == b""


def test_keep_alive_survives_the_request_deadline(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline is for a request, not for a scraper's connection between scrapes."""
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.1)
    with httpx.Client() as client:
        first = client.get(base + "/-/healthy").extensions["network_stream"].get_extra_info("client_addr")
        threading.Event().wait(0.3)
        second = client.get(base + "/-/healthy").extensions["network_stream"].get_extra_info("client_addr")

    assert first == second


def test_idle_connections_make_room_for_a_scraper(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit the one that has waited longest for its client is ended; the others go on."""
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 3)
    kept = [socket.create_connection(("127.0.0.1", port_of(base)), timeout=10) for _ in range(3)]
    streams = [client.makefile("rwb") for client in kept]

    def is_served(number: int) -> bool:
        streams[number].write(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        streams[number].flush()
        return any(line == b"healthy\n" for line in streams[number])

    assert all(is_served(number) for number in (1, 2, 0))

    assert httpx.get(base + "/-/healthy").status_code == 200

    assert kept[1].recv(100) == b""
    assert is_served(0)
    assert is_served(2)
    for stream, client in zip(streams, kept, strict=True):
        stream.close()
        client.close()


def test_connections_that_are_being_answered_are_not_ended_for_another(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all of them at work, a further one is turned away at once."""
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 0)

    with socket.create_connection(("127.0.0.1", port_of(base)), timeout=10) as extra:
        try:
            refused = extra.recv(100) == b""
        except ConnectionResetError:
            refused = True

    assert refused


def test_port_in_use_is_one_sentence() -> None:
    """Address, reason, what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(RunError) as caught:
            bind("127.0.0.1", port)

    expected = f"can't listen on 127.0.0.1:{port}: Address already in use; choose another address with --listen"
    assert caught.value.message == expected
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-name.invalid"])
def test_foreign_address_is_one_sentence(host: str) -> None:
    """An address this host does not have, or a name nobody knows."""
    with pytest.raises(RunError, match=rf"^can't listen on {host}:1: .+; .+$"):
        bind(host, 1)
