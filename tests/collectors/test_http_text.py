"""Reading text from a server that may do anything: every bad answer is one error, bounded in time and memory."""

import asyncio
import gzip
import socket
import tracemalloc

import pytest

from collectors.errors import CollectorError, Refused, Unreachable, Unreadable
from collectors.http_text import MAX_DOCUMENT_BYTES, Answer, Endpoint, parse_base_url
from tests.collectors.replay import TLS, Replay, Script, redirect, replaying, reply

PATHS = ("/metrics", "/version")
KEY = "sk-do-not-show"


def get(
    answers: dict[str, bytes | Script],
    *,
    path: str = "/metrics",
    base: str = "",
    key: bool = False,
    deadline_seconds: float = 5.0,
    max_bytes: int = 1 << 20,
    host: str = "127.0.0.1",
) -> tuple[Answer | CollectorError, Replay]:
    """Ask a fresh server once; the error is returned like an answer."""

    async def scenario() -> tuple[Answer | CollectorError, Replay]:
        async with replaying(answers, host=host) as server:
            endpoint = Endpoint(
                server.url + base, paths=PATHS, deadline_seconds=deadline_seconds, max_bytes=max_bytes, api_key=KEY
            )
            try:
                return await endpoint.get(path, key=key), server
            except CollectorError as exc:
                return exc, server
            finally:
                await endpoint.aclose()

    return asyncio.run(scenario())


def error(
    answers: dict[str, bytes | Script], *, deadline_seconds: float = 5.0, max_bytes: int = 1 << 20
) -> CollectorError:
    outcome, _ = get(answers, deadline_seconds=deadline_seconds, max_bytes=max_bytes, key=True)
    assert isinstance(outcome, CollectorError)
    assert KEY not in str(outcome)
    assert "\n" not in str(outcome)
    return outcome


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_text_answer_is_given_whole() -> None:
    """Status, content type and text come back as they were sent."""
    answer, server = get({"/metrics": reply("a 1\n")})

    assert answer == Answer(status=200, content_type="text/plain; version=0.0.4", text="a 1\n")
    assert server.paths == ["/metrics"]


@pytest.mark.parametrize(
    "content_type",
    ["text/plain; version=1.0.0; charset=utf-8", "application/openmetrics-text", "application/json", "TEXT/PLAIN"],
)
def test_every_text_type_of_the_engines_is_accepted(content_type: str) -> None:
    """Plain text of any version, OpenMetrics and JSON are text."""
    answer, _ = get({"/metrics": reply("a 1\n", content_type=content_type)})

    assert isinstance(answer, Answer)


def test_an_answer_without_content_type_is_text() -> None:
    """HTTP/1.0 without any header, the end of the body given by the end of the connection."""
    answer, _ = get({"/metrics": b"HTTP/1.0 200 OK\r\n\r\na 1\n"})

    assert answer == Answer(status=200, content_type="", text="a 1\n")


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    """One bad byte in a label does not cost the page."""
    answer, _ = get({"/metrics": reply(b'a{b="\xff"} 1\n')})

    assert isinstance(answer, Answer)
    assert answer.text == 'a{b="�"} 1\n'


def test_a_path_off_the_list_is_never_requested() -> None:
    """Asking for another path is an error of the program and reaches no server."""

    async def scenario() -> Replay:
        async with replaying({}) as server:
            endpoint = Endpoint(server.url, paths=PATHS, deadline_seconds=1.0)
            with pytest.raises(ValueError, match="'/sleep' is not one of the paths"):
                await endpoint.get("/sleep")
            await endpoint.aclose()
            return server

    assert asyncio.run(scenario()).paths == []


def test_the_key_is_sent_only_when_asked_for() -> None:
    """No path gets the key unless the caller says that it needs it."""
    _, without = get({"/metrics": reply("")})
    _, with_key = get({"/metrics": reply("")}, key=True)

    assert "authorization" not in without.requests[0].headers
    assert with_key.requests[0].headers["authorization"] == f"bearer {KEY}"


def test_a_base_path_behind_a_reverse_proxy_is_kept() -> None:
    """``http://host/llm/`` and ``/metrics`` make ``/llm/metrics``."""
    for base in ("/llm", "/llm/"):
        answer, server = get({"/llm/metrics": reply("a 1\n")}, base=base)
        assert isinstance(answer, Answer)
        assert server.paths == ["/llm/metrics"]


@pytest.mark.skipif(not socket.has_ipv6, reason="this host has no IPv6")
def test_ipv6_addresses_work() -> None:
    """A literal IPv6 address in brackets is a base URL like any other."""
    answer, _ = get({"/metrics": reply("a 1\n")}, host="::1")

    assert isinstance(answer, Answer)


def test_a_proxy_in_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are asked directly, whatever the environment says about proxies."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")

    answer, _ = get({"/metrics": reply("a 1\n")})

    assert isinstance(answer, Answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\na 1\n",  # until the connection ends
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n\r\n0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n",
    ],
)
def test_every_way_to_end_an_answer_is_understood(answer: bytes) -> None:
    """By the connection, by chunks, and after a head that only announces another."""
    found, _ = get({"/metrics": answer})

    assert isinstance(found, Answer), found
    assert found.text == "a 1\n"


def test_nothing_that_was_not_asked_for_is_taken_as_the_next_answer() -> None:
    """A server that sends two answers to one request is asked on a new connection."""

    async def scenario() -> list[str]:
        kept = reply("a 1\n").replace(b"Connection: close\r\n", b"")
        async with replaying({"/metrics": kept + reply("forged 1\n")}) as server:
            endpoint = Endpoint(server.url, paths=PATHS, deadline_seconds=5.0)
            texts = [(await endpoint.get("/metrics")).text for _ in range(2)]
            await endpoint.aclose()
            return texts

    assert asyncio.run(scenario()) == ["a 1\n", "a 1\n"]


def test_a_connection_that_the_server_closed_is_opened_again() -> None:
    """A server that closes an idle connection without notice costs no reading."""

    async def scenario() -> list[str]:
        quiet_close = reply("a 1\n").replace(b"Connection: close\r\n", b"")
        async with replaying({"/metrics": quiet_close}) as server:
            endpoint = Endpoint(server.url, paths=PATHS, deadline_seconds=5.0)
            for _ in range(2):
                await endpoint.get("/metrics")
                await asyncio.sleep(0.02)
            await endpoint.aclose()
            return server.paths

    assert asyncio.run(scenario()) == ["/metrics", "/metrics"]


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_kept_connection_that_ends_as_it_is_used_costs_no_reading(is_reset: bool) -> None:
    """The server closed it at that very moment: the request is made once more, on a new connection, and no oftener."""

    async def scenario() -> tuple[list[str], str]:
        asked = 0

        async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            for answer in answers.pop(0) if answers else [b""]:
                await reader.readuntil(b"\r\n\r\n")
                asked += 1
                writer.write(answer)
            if is_reset:
                writer.transport.abort()
            writer.close()

        kept = reply("a 1\n").replace(b"Connection: close\r\n", b"")
        answers = [[kept, b""], [kept, b""]]
        async with await asyncio.start_server(leaves, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            endpoint = Endpoint(url, paths=PATHS, deadline_seconds=5.0)
            texts = [(await endpoint.get("/metrics")).text for _ in range(2)]
            with pytest.raises(Unreachable) as failed:
                await endpoint.get("/metrics")
            assert asked == 5
            return texts, failed.value.reason

    assert asyncio.run(scenario()) == (["a 1\n", "a 1\n"], "reset")


def test_refused_connection() -> None:
    """Nothing listens: the server is down or loading."""

    async def scenario() -> None:
        endpoint = Endpoint(f"http://127.0.0.1:{free_port()}", paths=PATHS, deadline_seconds=5.0)
        try:
            await endpoint.get("/metrics")
        finally:
            await endpoint.aclose()

    with pytest.raises(
        Unreachable, match=r"nothing listens at http://127\.0\.0\.1:\d+/metrics; the server is down"
    ) as caught:
        asyncio.run(scenario())
    assert caught.value.reason == "refused"


def test_an_unknown_host_name() -> None:
    """A name that can't be resolved is told apart from a refused connection."""

    async def scenario() -> None:
        endpoint = Endpoint("http://no-such-host.invalid:8000", paths=PATHS, deadline_seconds=5.0)
        try:
            await endpoint.get("/metrics")
        finally:
            await endpoint.aclose()

    with pytest.raises(Unreachable) as caught:
        asyncio.run(scenario())
    assert caught.value.reason in ("name", "timeout")


def test_https_to_a_server_that_speaks_http() -> None:
    """A failed TLS handshake is its own reason."""

    async def scenario() -> None:
        async with replaying({}) as server:
            endpoint = Endpoint(server.url.replace("http", "https"), paths=PATHS, deadline_seconds=5.0)
            try:
                await endpoint.get("/metrics")
            finally:
                await endpoint.aclose()

    with pytest.raises(Unreachable, match="no trusted TLS connection") as caught:
        asyncio.run(scenario())
    assert caught.value.reason == "tls"


def test_a_tls_handshake_that_hangs_meets_the_deadline() -> None:
    """And leaves no socket behind: an unclosed one is a warning, and warnings are errors here."""

    async def hang(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    async def scenario() -> None:
        async with replaying({TLS: hang}) as server:
            endpoint = Endpoint(server.url.replace("http", "https"), paths=PATHS, deadline_seconds=0.2)
            try:
                await endpoint.get("/metrics")
            finally:
                await endpoint.aclose()

    with pytest.raises(Unreachable) as caught:
        asyncio.run(scenario())
    assert caught.value.reason == "timeout"


def test_a_dripping_body_meets_the_total_deadline() -> None:
    """Each byte comes in time, the whole does not: the deadline is for the whole."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.01)

    fault = error({"/metrics": drip}, deadline_seconds=0.15)

    assert isinstance(fault, Unreachable)
    assert fault.reason == "timeout"
    assert "did not answer completely within 0.15 s" in str(fault)


def test_a_server_that_never_answers_meets_the_deadline() -> None:
    """A hung server accepts the connection and says nothing."""

    async def hang(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1)

    assert error({"/metrics": hang}, deadline_seconds=0.1).reason == "timeout"


def test_an_endless_body_is_stopped_at_the_cap() -> None:
    """Of 100 MB little more than the cap is ever taken off the wire."""
    sent = 0

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        for _ in range(1600):
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    fault = error({"/metrics": flood})

    assert isinstance(fault, Unreadable)
    assert fault.reason == "too_large"
    assert "more than 1,048,576 bytes" in str(fault)
    assert sent < 20_000_000


def test_a_gzip_bomb_is_stopped_at_the_cap() -> None:
    """The cap is on decoded bytes, and memory stays near it."""
    bomb = gzip.compress(b"\n" * 32_000_000, compresslevel=1)
    tracemalloc.start()
    try:
        fault = error({"/metrics": reply(bomb, extra="Content-Encoding: gzip\r\n")})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert fault.reason == "too_large"
    assert peak < 8_000_000


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
GZIPPED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "more", "reason"),
    [
        (CHUNKED + b"1;", b"e" * 65536, "not_http"),
        (CHUNKED, b"1;name=value\r\nx\r\n" * 4000, "not_http"),
        (CHUNKED + b"1\r\nx\r\n0\r\n", b"T: y\r\n" * 10_000, "not_http"),
        (CHUNKED + b"1\r\nx\r\n0\r\nT: ", b"y" * 65536, "not_http"),
        (GZIPPED + gzip.compress(b"a 1\n"), b"\0" * 65536, "too_large"),
        (GZIPPED + gzip.compress(b"a 1\n"), b"z" * 65536, "encoding"),
        (GZIPPED, gzip.compress(b"a 1\n") * 100, "encoding"),
        (GZIPPED + gzip.compress(b"")[:10], b"\x00\x00\x00\xff\xff" * 13_000, "too_large"),
    ],
)
def test_what_is_no_part_of_a_body_is_bounded_too(begin: bytes, more: bytes, reason: str) -> None:
    """Endless extensions and trailers of chunks, and compressed data that says nothing, end before any deadline."""
    sent = 0

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(begin)
        while sent < 100_000_000:
            writer.write(more)
            await writer.drain()
            sent += len(more)

    assert error({"/metrics": flood}, deadline_seconds=60.0).reason == reason
    assert sent < 20_000_000


def test_a_page_with_a_chunk_for_each_line_is_read() -> None:
    """What frames its body may be more than a head may be."""
    lines = 20_000
    answer, _ = get({"/metrics": CHUNKED + b'15;x=y\r\nname{label="abc"} 12\n\r\n' * lines + b"0\r\nT: y\r\n\r\n"})

    assert isinstance(answer, Answer), answer
    assert answer.text.count("\n") == lines


def test_an_answer_of_several_gzip_members_is_whole() -> None:
    """As a server that flushes, or a proxy that joins pages, sends it; zeros may fill it up."""
    members = [gzip.compress(text) for text in (b"a 1\n", b"b 2\n", b"c 3\n" * 50_000)]
    answer, _ = get({"/metrics": reply(b"".join(members) + b"\0" * 512, extra="Content-Encoding: gzip\r\n")})

    assert isinstance(answer, Answer), answer
    assert answer.text == "a 1\nb 2\n" + "c 3\n" * 50_000


def test_what_is_no_page_of_metrics_may_be_smaller() -> None:
    """A document is taken apart at once, while nothing else goes on; the message says the bound."""
    text = "[" + "{}," * (MAX_DOCUMENT_BYTES // 3) + "{}]"
    answers: dict[str, bytes | Script] = {path: reply(text) for path in PATHS}

    page, _ = get(answers, max_bytes=8 << 20)
    document, _ = get(answers, path="/version", max_bytes=8 << 20)

    assert isinstance(page, Answer)
    assert isinstance(document, Unreadable)
    assert (document.reason, "more than 1,048,576 bytes" in str(document)) == ("too_large", True)


def test_a_gzip_answer_is_decoded() -> None:
    """A server that compresses unasked is still read; none is asked to."""
    answer, server = get({"/metrics": reply(gzip.compress(b"a 1\n"), extra="Content-Encoding: gzip\r\n")})

    assert isinstance(answer, Answer)
    assert answer.text == "a 1\n"
    assert server.requests[0].headers["accept-encoding"] == "identity"


def test_a_key_never_follows_a_redirect_to_another_host() -> None:
    """The other host is not even asked."""

    async def scenario() -> tuple[CollectorError, Replay]:
        async with replaying({"/metrics": reply("stolen 1\n")}) as other:
            async with replaying({"/metrics": redirect(f"{other.url}/metrics")}) as server:
                endpoint = Endpoint(server.url, paths=PATHS, deadline_seconds=5.0, api_key=KEY)
                with pytest.raises(Unreadable) as caught:
                    await endpoint.get("/metrics", key=True)
                await endpoint.aclose()
                return caught.value, other

    fault, other = asyncio.run(scenario())
    assert fault.reason == "redirect"
    assert f"redirects to {other.url}/metrics; only the same host and path is followed" in str(fault)
    assert other.requests == []


@pytest.mark.parametrize("location", ["/metrics/", "/version"])
def test_one_redirect_within_the_list_is_followed(location: str) -> None:
    """A bare mount answers 307 to the path with a slash."""
    answer, server = get({"/metrics": redirect(location), location: reply("a 1\n")}, key=True)

    assert isinstance(answer, Answer)
    assert server.paths == ["/metrics", location]


@pytest.mark.parametrize(
    "location", ["/sleep", "/metrics/?a=b", "https://127.0.0.1/metrics", "http://[", "//evil/metrics"]
)
def test_any_other_redirect_is_not_followed(location: str) -> None:
    """Another path, a query, another scheme or host, or no URL at all."""
    outcome, server = get({"/metrics": redirect(location)})

    assert isinstance(outcome, Unreadable)
    assert outcome.reason == "redirect"
    assert server.paths == ["/metrics"]


def test_a_redirect_loop_ends_after_one() -> None:
    """The second redirect is an error."""
    outcome, server = get({"/metrics": redirect("/metrics/"), "/metrics/": redirect("/metrics/")})

    assert isinstance(outcome, Unreadable)
    assert server.paths == ["/metrics", "/metrics/"]


@pytest.mark.parametrize(
    ("status", "kind", "advice"),
    [
        (401, Refused, "set api_key_file"),
        (403, Refused, "set api_key_file"),
        (404, Unreadable, "nothing is served there"),
        (500, Unreadable, "look into its log"),
        (503, Unreadable, "not ready"),
        (418, Unreadable, "expected 200"),
        (204, Unreadable, "expected 200"),
    ],
)
def test_every_other_status_is_an_error_with_advice(status: int, kind: type[CollectorError], advice: str) -> None:
    """The message names URL, status and what to do."""
    fault = error({"/metrics": reply("no", status=status) if status != 204 else b"HTTP/1.1 204 X\r\n\r\n"})

    assert isinstance(fault, kind)
    assert fault.reason == f"http_{status}"
    assert f"/metrics answered {status}; " in str(fault)
    assert advice in str(fault)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply(b"a\0b"), "not_text"),
        (reply(b"\x89PNG", content_type="image/png"), "not_text"),
        (reply("a 1\n").replace(b"Content-Length: 4", b"Content-Length: 400"), "truncated"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\na 1\n", "truncated"),
        (reply(gzip.compress(b"a 1\n" * 1000)[:-20], extra="Content-Encoding: gzip\r\n"), "truncated"),
        (
            reply(gzip.compress(b"a 1\n") + gzip.compress(b"b 1\n")[:-9], extra="Content-Encoding: gzip\r\n"),
            "truncated",
        ),
        (reply(b"not gzip at all", extra="Content-Encoding: gzip\r\n"), "encoding"),
        (reply(b"x", extra="Content-Encoding: br\r\n"), "encoding"),
        (b"\x16\x03\x01\x02\x00 binary\r\n\r\n", "not_http"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000, "not_http"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000, "not_http"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nx", "not_http"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "not_http"),
        (b"", "reset"),
    ],
)
def test_every_damaged_answer_is_an_error(answer: bytes, reason: str) -> None:
    """Binary, cut off, wrongly encoded, not HTTP at all, or nothing."""
    assert error({"/metrics": answer}).reason == reason


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("127.0.0.1:8000", "expected the form http://HOST:PORT"),
        ("ftp://host", "expected the form http://HOST:PORT"),
        ("http://", "expected the form http://HOST:PORT"),
        ("http://host:99999999", "expected the form http://HOST:PORT"),
        ("http://host/?a=1", "expected the form http://HOST:PORT"),
        ("http://user:secret@host:1", "put a key into api_key_file instead"),
    ],
)
def test_a_base_url_that_cannot_be_used_is_one_sentence(url: str, message: str) -> None:
    """The sentence never repeats a password that stood in the URL."""
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        parse_base_url(url)

    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["with\nnewline", "ünïcode", " padded "])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(key: str) -> None:
    """A key with a line break would otherwise end up in a header error."""
    with pytest.raises(ValueError, match="check the key file") as caught:
        Endpoint("http://host", paths=PATHS, deadline_seconds=1.0, api_key=key)

    assert key.strip() not in str(caught.value)


def test_the_key_is_in_no_representation() -> None:
    """``repr`` shows the URL only."""
    endpoint = Endpoint("http://host:1/", paths=PATHS, deadline_seconds=1.0, api_key=KEY)

    assert repr(endpoint) == "Endpoint('http://host:1')"
