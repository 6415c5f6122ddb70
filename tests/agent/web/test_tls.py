"""TLS on real sockets: scrapes, client certificates, renewal, and clients that do it wrong."""

import logging
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.web import events, serving
from agent.web.web_file import WebFile
from tests.agent.web.configs import CERTIFICATES, MUTUAL, SERVER, trust, write
from tests.agent.web.serve import FakeLatest, serving_on_loopback

Serve = Callable[..., str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serve a web config with these sections; its base URL."""
    with ExitStack() as stack:

        def start(**config: Any) -> str:
            return stack.enter_context(serving_on_loopback(web=WebFile(write(tmp_path, **config))))

        yield start


def get(url: str, *, client: str | None = None) -> httpx.Response:
    return httpx.get(url, verify=trust(client=client), trust_env=False)


def connect(base: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2])), timeout=10)


def serial_number(base: str) -> str:
    """Which certificate a new connection is shown."""
    with trust().wrap_socket(connect(base), server_hostname="127.0.0.1") as client:
        certificate = client.getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])


def closed(client: socket.socket) -> bool:
    """Whether the other side has ended a connection without a word."""
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True


def test_a_scrape_over_https(serve: Serve) -> None:
    """The same bytes, verified against the authority, with what the config adds to the headers."""
    base = serve(
        tls_server_config=SERVER, http_server_config={"headers": {"Strict-Transport-Security": "max-age=3600"}}
    )

    answer = get(base + "/metrics")

    assert base.startswith("https://")
    assert (answer.status_code, answer.content) == (200, FakeLatest.metrics)
    assert answer.headers["strict-transport-security"] == "max-age=3600"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("offered", "spoken"), [(ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")]
)
def test_both_versions_are_spoken(serve: Serve, offered: ssl.TLSVersion, spoken: str) -> None:
    """1.2 and 1.3, and HTTP/1.1 is agreed upon with a client that could do more."""
    context = trust()
    context.minimum_version = context.maximum_version = offered
    context.set_alpn_protocols(["h2", "http/1.1"])

    with context.wrap_socket(connect(serve(tls_server_config=SERVER)), server_hostname="localhost") as client:
        assert (client.version(), client.selected_alpn_protocol()) == (spoken, "http/1.1")


def test_a_client_below_the_minimum_is_refused(serve: Serve) -> None:
    """The handshake fails, for that client."""
    base = serve(tls_server_config={**SERVER, "min_version": "TLS13"})
    context = trust()
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    with pytest.raises(ssl.SSLError):
        context.wrap_socket(connect(base), server_hostname="localhost")
    assert get(base + "/metrics").status_code == 200


def test_a_client_certificate_lets_in(serve: Serve) -> None:
    """One that the authority vouches for."""
    base = serve(tls_server_config=MUTUAL)

    assert get(base + "/metrics", client="client").status_code == 200


@pytest.mark.parametrize("client", [None, "stranger"])
def test_without_a_verified_client_certificate_nothing_is_answered(
    serve: Serve, client: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """None, or one that vouches for itself: the connection ends, and the log says why."""
    base = serve(tls_server_config=MUTUAL)

    with pytest.raises(httpx.TransportError):
        get(base + "/metrics", client=client)

    reason = "certificate verify failed" if client else "peer did not return a certificate"
    deadline = time.monotonic() + 10
    while not caplog.messages and time.monotonic() < deadline:
        time.sleep(0.01)
    assert caplog.messages[0] == f"TLS handshake with 127.0.0.1 failed: {reason}"


def test_an_optional_client_certificate_is_still_verified(serve: Serve) -> None:
    """Without one is fine, with a wrong one is not."""
    base = serve(tls_server_config={**MUTUAL, "client_auth_type": "VerifyClientCertIfGiven"})

    assert get(base + "/metrics").status_code == 200
    assert get(base + "/metrics", client="client").status_code == 200
    with pytest.raises(httpx.TransportError):
        get(base + "/metrics", client="stranger")


@pytest.mark.parametrize(
    ("names", "let_in"),
    [
        (["prometheus.example.net"], True),
        (["other.example.net", "192.0.2.7"], True),
        (["other.example.net", "test client"], False),
    ],
)
def test_only_clients_with_an_allowed_name(serve: Serve, names: list[str], let_in: bool) -> None:
    """A verified certificate is not enough when names are listed; its common name does not count."""
    base = serve(tls_server_config={**MUTUAL, "client_allowed_sans": names})

    if let_in:
        assert get(base + "/metrics", client="client").status_code == 200
    else:
        with pytest.raises(httpx.TransportError):
            get(base + "/metrics", client="client")


def test_plain_http_to_a_tls_port_is_told_so(serve: Serve) -> None:
    """One sentence at once, and the server goes on."""
    base = serve(tls_server_config=SERVER)

    answer = httpx.get(base.replace("https", "http") + "/metrics", trust_env=False)

    assert (answer.status_code, answer.text) == (400, "this port speaks TLS; use https://\n")
    assert get(base + "/metrics").status_code == 200


def test_tls_to_a_plain_port_ends_at_once() -> None:
    """Without TLS configured a handshake is a bad request."""
    with serving_on_loopback() as base:
        with pytest.raises(ssl.SSLError):
            trust().wrap_socket(connect(base), server_hostname="localhost")
        assert httpx.get(base + "/metrics").status_code == 200


@pytest.mark.parametrize("start", [b"", b"\x16\x03\x01"], ids=["silent", "half a hello"])
def test_a_handshake_has_a_deadline(serve: Serve, start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that says nothing, or begins and stops, does not keep a connection; the others don't wait for it."""
    monkeypatch.setattr(serving, "HANDSHAKE_SECONDS", 0.3)
    base = serve(tls_server_config=SERVER)

    with connect(base) as client:
        client.sendall(start)
        assert closed(client)


def test_clients_that_never_shake_hands_count_as_connections(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit a client is turned away at once; when the silent ones are gone it is served."""
    monkeypatch.setattr(serving, "MAX_TLS_CONNECTIONS", 3)
    base = serve(tls_server_config=SERVER)
    silent = [connect(base) for _ in range(3)]

    with connect(base) as client:
        assert closed(client)
    for client in silent:
        client.close()
    deadline = time.monotonic() + 10
    while True:
        try:
            assert get(base + "/metrics").status_code == 200
            break
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_garbage_instead_of_a_handshake_ends_that_connection(serve: Serve) -> None:
    """The server goes on."""
    base = serve(tls_server_config=SERVER)

    with connect(base) as client:
        client.sendall(b"\x00" * 64)
        client.recv(100)  # an alert, or the end
    assert get(base + "/metrics").status_code == 200


def test_a_renewed_certificate_is_shown_without_a_restart(serve: Serve, tmp_path: Path) -> None:
    """New connections get it soon; a connection made before is ended between two requests, and none fails."""
    base = serve(tls_server_config=SERVER)
    before = serial_number(base)
    with httpx.Client(verify=trust(), trust_env=False) as scraper:
        assert scraper.get(base + "/metrics").status_code == 200

        for kind in ("pem", "key"):
            shutil.copy(CERTIFICATES / f"renewed.{kind}", tmp_path / f"server.{kind}")
        deadline = time.monotonic() + 20
        while serial_number(base) == before:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        shown = before
        while shown == before:
            assert time.monotonic() < deadline
            time.sleep(0.1)
            answer = scraper.get(base + "/metrics")
            assert answer.status_code == 200
            shown = answer.extensions["network_stream"].get_extra_info("ssl_object").getpeercert()["serialNumber"]


def test_a_switch_to_tls_ends_plain_connections(tmp_path: Path) -> None:
    """What was open in plain text does not stay open beside TLS."""
    web = WebFile()
    with serving_on_loopback(web=web) as base, connect(base) as client:
        client.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while not answer.endswith(b"healthy\n"):
            answer += client.recv(1000)

        web.use(write(tmp_path, tls_server_config=SERVER))

        assert closed(client)
        assert get(base.replace("http", "https") + "/-/healthy").status_code == 200


def test_a_flood_of_connections_leaves_the_loop_to_others(serve: Serve) -> None:
    """Clients that come and go by the hundred, shaking no hands, leave a scrape answered and nothing behind."""
    base = serve(tls_server_config=SERVER)
    threads = threading.active_count()

    for _ in range(300):
        connect(base).close()

    assert get(base + "/metrics").status_code == 200
    assert threading.active_count() <= threads + 1


def test_stopping_does_not_wait_for_a_handshake(tmp_path: Path) -> None:
    """A client that is in the middle of one is dropped."""
    with ExitStack() as stack:
        with serving_on_loopback(web=WebFile(write(tmp_path, tls_server_config=SERVER))) as base:
            client = stack.enter_context(connect(base))
            client.sendall(b"\x16")

        assert closed(client)


def test_nothing_that_a_client_sends_is_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A request with a secret in path and header, malformed on top, leaves no trace of it."""
    caplog.set_level(logging.DEBUG)
    base = serve(tls_server_config=SERVER)

    httpx.get(base + "/nothing?key=hunter2", headers={"authorization": "Bearer hunter2"}, verify=trust())
    with trust().wrap_socket(connect(base), server_hostname="localhost") as client:
        client.sendall(b"GET hunter2\r\nhunter2\r\n\r\n")
        client.recv(1000)

    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert not [record for record in ours if "hunter2" in record.getMessage()]


def test_a_request_behind_a_stream_ends_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would never be answered, and while it is unread a client's end is not seen: the stream would stay for good."""
    monkeypatch.setattr(events, "MAX_STREAMS", 1)
    base = serve(tls_server_config=SERVER)
    with trust().wrap_socket(connect(base), server_hostname="localhost") as client:
        client.sendall(
            b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        deadline = time.monotonic() + 10
        while not closed(client):
            assert time.monotonic() < deadline

    with httpx.stream("GET", base + "/api/v1/events", verify=trust(), trust_env=False) as answer:
        assert answer.status_code == 200
        assert next(answer.iter_lines()).startswith("data: ")


def test_a_wish_for_another_protocol_is_no_warning(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """Who asks for a WebSocket gets what stands there, and the log tells nobody to install something."""
    base = serve(tls_server_config=SERVER)
    upgrade = {"connection": "upgrade", "upgrade": "websocket"}

    answer = httpx.get(base + "/metrics", headers=upgrade, verify=trust(), trust_env=False)

    assert answer.status_code == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
