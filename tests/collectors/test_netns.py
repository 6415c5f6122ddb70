"""HTTP through the network namespace of a process: here our own, which takes the same way."""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from collectors.errors import CollectorError
from collectors.http_streams import StreamTransport
from collectors.http_text import Answer, Endpoint
from collectors.netns import can_enter, connect_in_network_of, in_network_of
from tests.collectors.replay import FIXTURES, Script, replaying, reply
from tests.collectors.test_procfs import as_nobody

OWN = os.getpid()

pytestmark = pytest.mark.skipif(not can_enter(OWN), reason="entering a network namespace is not permitted here")


def get(answers: dict[str, bytes | Script], *, pid: int = OWN, host: str = "127.0.0.1", times: int = 1) -> list[str]:
    """What an endpoint makes of the answers: texts, or the reasons of errors."""

    async def scenario() -> list[str]:
        async with replaying(answers, host=host) as server:
            transport = StreamTransport(connect=connect_in_network_of(pid))
            endpoint = Endpoint(server.url, paths=["/metrics"], deadline_seconds=2.0, transport=transport)
            found = [await _outcome(endpoint) for _ in range(times)]
            await endpoint.aclose()
            return found

    return asyncio.run(scenario())


async def _outcome(endpoint: Endpoint) -> str:
    try:
        answer: Answer = await endpoint.get("/metrics")
    except CollectorError as exc:
        return exc.reason
    return answer.text


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_answer(host: str) -> None:
    """The same text as over any other connection, also in pieces and twice."""
    if ":" in host and not Path("/proc/net/if_inet6").read_text():
        pytest.skip("IPv6 is not available")

    assert get({"/metrics": reply("a 1\n" * 50_000)}, host=host, times=2) == ["a 1\n" * 50_000] * 2


async def _silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def _rude(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def _cut(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nabc")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(_silent, "timeout", id="silent"),
        pytest.param(_rude, "reset", id="reset"),
        pytest.param(_cut, "truncated", id="cut"),
        pytest.param(b"garbage\r\n\r\n", "not_http", id="garbage"),
        pytest.param(reply("", status=401), "http_401", id="refused"),
    ],
)
def test_errors_are_those_of_any_endpoint(answer: bytes | Script, reason: str) -> None:
    """A silent, rude or broken server is told apart as everywhere."""
    assert get({"/metrics": answer}) == [reason]


def test_nobody_listens() -> None:
    """Refused, as while a server loads."""

    async def scenario() -> str:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{bound.getsockname()[1]}"
            endpoint = Endpoint(
                url,
                paths=["/metrics"],
                deadline_seconds=2.0,
                transport=StreamTransport(connect=connect_in_network_of(OWN)),
            )
            try:
                return await _outcome(endpoint)
            finally:
                await endpoint.aclose()

    assert asyncio.run(scenario()) == "refused"


def test_names_are_not_looked_up() -> None:
    """An address is one of the other network; a name would be one of ours."""

    async def scenario() -> str:
        transport = StreamTransport(connect=connect_in_network_of(OWN))
        endpoint = Endpoint("http://localhost:1", paths=["/metrics"], deadline_seconds=2.0, transport=transport)
        try:
            return await _outcome(endpoint)
        finally:
            await endpoint.aclose()

    assert asyncio.run(scenario()) == "no_route"


def test_a_process_that_has_ended() -> None:
    """No connection at all, not one into somebody else's network."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()

    assert get({"/metrics": reply("x 1\n")}, pid=ended.pid) == ["no_route"]
    assert not can_enter(ended.pid)


def test_a_pid_that_was_given_to_another_process() -> None:
    """The start time tells them apart."""
    with pytest.raises(ProcessLookupError):
        in_network_of(OWN, lambda: None, started=1)


def test_a_connection_with_tls() -> None:
    """Encrypted inside the other network; a certificate that is not trusted is refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FIXTURES / "tls" / "server.pem", FIXTURES / "tls" / "server.key")
    trusting = ssl.create_default_context(cafile=FIXTURES / "tls" / "ca.pem")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply("a 1\n"))
        await writer.drain()
        writer.close()

    async def ask(port: int, tls: ssl.SSLContext) -> str:
        transport = StreamTransport(connect=connect_in_network_of(OWN), tls=tls)
        endpoint = Endpoint(f"https://127.0.0.1:{port}", paths=["/metrics"], deadline_seconds=5.0, transport=transport)
        try:
            return await _outcome(endpoint)
        finally:
            await endpoint.aclose()

    async def scenario() -> list[str]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return [await ask(port, trusting), await ask(port, ssl.create_default_context())]

    assert asyncio.run(scenario()) == ["a 1\n", "tls"]


def test_only_a_thread_of_its_own_goes_there() -> None:
    """What runs inside runs elsewhere, gives its result back, and its errors."""

    def fail() -> None:
        raise OSError(errno.EMFILE, "too many")

    assert in_network_of(OWN, threading.get_ident) != threading.get_ident()
    with pytest.raises(OSError, match="too many"):
        in_network_of(OWN, fail)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up privileges")
def test_without_the_privilege() -> None:
    """That is found out by trying, and said."""

    def attempt() -> str:
        try:
            return in_network_of(os.getpid(), lambda: "inside")
        except PermissionError:
            return "not permitted"

    assert as_nobody(attempt) == "not permitted"
    assert as_nobody(lambda: str(can_enter(os.getpid()))) == "False"


def test_a_connection_is_kept_and_replaced() -> None:
    """Requests share one while the server keeps it; when it was closed meanwhile a new one is made."""
    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\na 1\n")
        writer.close()

    async def scenario() -> list[str]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            transport = StreamTransport(connect=connect_in_network_of(OWN))
            endpoint = Endpoint(url, paths=["/metrics"], deadline_seconds=5.0, transport=transport)
            found = [await _outcome(endpoint) for _ in range(3)]
            assert len(writers) == 1
            writers[0].close()
            async with asyncio.timeout(5):
                while transport._idle is not None and transport._idle.is_usable():  # noqa: ASYNC110 - a few polls
                    await asyncio.sleep(0.01)
            found.append(await _outcome(endpoint))
            await endpoint.aclose()
            await writers[1].wait_closed()
            return found

    assert asyncio.run(scenario()) == ["a 1\n"] * 4
    assert len(writers) == 2


def test_connections_leave_nothing_behind() -> None:
    """No descriptor and no thread is left after many."""
    get({"/metrics": reply("x 1\n")}, times=2)
    before = len(list(Path("/proc/self/fd").iterdir()))
    get({"/metrics": reply("x 1\n")}, times=20)
    get({"/metrics": _rude}, times=5)

    assert len(list(Path("/proc/self/fd").iterdir())) <= before
    assert "vramscope-netns" not in [thread.name for thread in threading.enumerate()]
