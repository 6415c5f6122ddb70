"""The daemon's log: one line per event, readable by people and programs, and no flood."""

import asyncio
import io
import json
import logging
import re
import socket
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent import log as agent_log
from agent.log import Format, configure
from tests.agent.web.serve import serving_on_loopback

Log = Callable[[], list[str]]
OWN = logging.getLogger("vramscope")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def start(clock: Clock) -> Iterator[Callable[[Format], Log]]:
    """Set up logging in a form; what it gives reads the lines so far. All is as before afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in agent_log.NOISY_LOGGERS}

    def begin(form: Format) -> Log:
        stream = io.StringIO()
        root.handlers = []
        configure(form, stream, clock=clock)
        return lambda: stream.getvalue().splitlines()

    yield begin
    logging.captureWarnings(False)
    root.handlers = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def events(log: Log) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log()]


def test_text_is_time_level_message_fields(start: Callable[[Format], Log]) -> None:
    """The time is RFC 3339 in UTC."""
    log = start("text")

    OWN.warning("%s failed: %s", "nvml", "no driver", extra={"fields": {"collector": "nvml", "attempt": 2}})

    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING nvml failed: no driver collector=nvml attempt=2", log()[0]
    )


def test_json_is_an_object_a_line(start: Callable[[Format], Log]) -> None:
    """Time, level and message under these names, whatever a record's own fields are called."""
    log = start("json")

    OWN.info("endpoint chat works again", extra={"fields": {"collector": "endpoint", "level": "mine", "odd": {1}}})

    [event] = events(log)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("time"))
    assert event == {"level": "info", "message": "endpoint chat works again", "collector": "endpoint", "odd": "{1}"}


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_event_is_one_line_whatever_is_in_it(start: Callable[[Format], Log], form: Format) -> None:
    """Line ends, escape sequences and lone surrogates from a server or a process can't forge a line or colour one."""
    log = start(form)

    OWN.error("endpoint failed: %s", "first\r\n2026-01-01T00:00:00Z ERROR forged\x1b[31m\u2028\udcff")

    assert len(log()) == 1
    assert "\x1b" not in log()[0]
    log()[0].encode()


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_is_on_the_same_line(start: Callable[[Format], Log], form: Format) -> None:
    """With its traceback."""
    log = start(form)

    try:
        raise ValueError("boom")
    except ValueError:
        OWN.exception("the tick failed")

    assert len(log()) == 1
    assert "the tick failed" in log()[0]
    assert "ValueError: boom" in log()[0]
    assert "test_log.py" in log()[0]


def test_other_libraries_are_heard_only_when_they_warn(start: Callable[[Format], Log]) -> None:
    """A line per request of the HTTP client, or per start of the server, is nobody's need."""
    log = start("text")

    for name in ("httpx", "httpcore.connection", "uvicorn.error", "asyncio"):
        logging.getLogger(name).info("busy")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")

    assert [line.split(" ", 1)[1] for line in log()] == ["WARNING Invalid HTTP request received."]


def test_a_repeated_warning_of_others_is_held_back_and_counted(start: Callable[[Format], Log], clock: Clock) -> None:
    """Once a minute, with how many there were; another warning is another matter, and ours are never held back."""
    log = start("text")
    noisy = logging.getLogger("uvicorn.error")

    def scan() -> None:
        for number in range(50):
            noisy.warning("Invalid HTTP request received.")
            logging.getLogger("vramscope.web").warning("TLS handshake with %s failed", f"203.0.113.{number}")

    scan()
    clock.now = 61.0
    scan()
    for _ in range(3):
        OWN.warning("said as often as it is said")

    assert [line.split(" ", 2)[2] for line in log()] == [
        "Invalid HTTP request received.",
        "TLS handshake with 203.0.113.0 failed",
        "Invalid HTTP request received. (and 49 more like this before)",
        "TLS handshake with 203.0.113.0 failed (and 49 more like this before)",
        *["said as often as it is said"] * 3,
    ]


def test_what_is_remembered_of_warnings_is_bounded(start: Callable[[Format], Log]) -> None:
    """However many different ones there are."""
    log = start("text")

    for number in range(2000):
        logging.getLogger("asyncio").error(f"unique {number}")

    assert len(log()) == 2000
    [handler] = logging.getLogger().handlers
    [thinned] = handler.filters
    assert len(thinned._passed) <= agent_log.MAX_PLACES  # type: ignore[union-attr] # the bound is the point


def test_python_warnings_are_log_lines(start: Callable[[Format], Log]) -> None:
    """They don't end up as two bare lines between the others."""
    log = start("text")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("this will change", FutureWarning, stacklevel=1)

    assert len(log()) == 1
    assert "FutureWarning: this will change" in log()[0]


def test_setting_up_again_replaces(start: Callable[[Format], Log]) -> None:
    """No line comes twice."""
    start("text")
    log = start("json")

    OWN.info("once")

    assert len(events(log)) == 1
    assert len(logging.getLogger().handlers) == 1


def test_a_scanner_does_not_flood_the_log(start: Callable[[Format], Log]) -> None:
    """A hundred malformed requests to the real server are one line."""
    log = start("json")

    with serving_on_loopback() as base:
        for _ in range(100):
            with socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2])), timeout=10) as client:
                client.sendall(b"\x00\x01\x02\r\n\r\n")
                client.recv(1000)

    assert [event["message"] for event in events(log)] == ["Invalid HTTP request received."]


def test_an_error_nobody_caught_is_one_line_of_json(start: Callable[[Format], Log]) -> None:
    """What asyncio says about a callback that failed carries its traceback."""
    log = start("json")

    async def fail() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(0.01)

    asyncio.run(fail())

    [event] = events(log)
    assert event["level"] == "error"
    assert "ZeroDivisionError" in event["exception"]
