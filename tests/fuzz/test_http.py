"""Answers of servers, byte by byte: whatever comes over the connection, it is text or one error of one line."""

import asyncio
import gzip

import pytest
from hypothesis import strategies as st

from collectors.errors import CollectorError
from collectors.http_text import Endpoint
from tests.collectors.replay import redirect, replaying, reply
from tests.fuzz.mutations import damaged_bytes
from tests.fuzz.trying import tried

MAX_BYTES = 4096
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4;a=b\r\nup 1\r\n1\r\n\n\r\n0\r\nTrailer: x\r\n\r\n"
)
ANSWERS = (
    reply("up 1\n"),
    reply(gzip.compress(b"up 1\n" * 100), extra="Content-Encoding: gzip\r\n"),
    reply("", status=503),
    redirect("/metrics/"),
    redirect("//elsewhere/metrics"),
    CHUNKED,
    b"HTTP/1.0 200 OK\r\n\r\nup 1\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + reply("up 1\n"),
    b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\nContent-Length: 99999999999999999999\r\n\r\nup",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nup",
)


async def asked(answer: bytes) -> tuple[str, str]:
    """The text or the error of a server that answers so."""
    async with replaying({"/metrics": answer, "/metrics/": reply("up 1\n")}) as server:
        endpoint = Endpoint(server.url, paths=["/metrics"], deadline_seconds=10.0, max_bytes=MAX_BYTES)
        try:
            return (await endpoint.get("/metrics")).text, ""
        except CollectorError as error:
            return "", str(error)
        finally:
            await endpoint.aclose()


@tried(damaged_bytes(ANSWERS) | st.sampled_from(ANSWERS) | st.binary(max_size=100), briefly=60, at_length=1500)
def test_any_answer_is_text_or_an_error(answer: bytes) -> None:
    """And never more of it than was asked for."""
    text, error = asyncio.run(asked(answer))

    assert len(text) <= MAX_BYTES
    assert "\n" not in error


@pytest.mark.parametrize("answer", [reply("up 1\n"), CHUNKED, redirect("/metrics/")])
def test_whole_answers_are_text(answer: bytes) -> None:
    """Before anything is done to them."""
    assert asyncio.run(asked(answer)) == ("up 1\n", "")
