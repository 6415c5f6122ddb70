"""The daemon's log: one line per event, as text or JSON, and no line of another library more than once a minute.

What is logged under ``vramscope`` is said once per change of state by whoever says it; everything else, down to
``vramscope.web`` where any client can cause a line, is thinned here. Nothing that came from a request or a file is
logged but addresses, paths and names of keys.
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from agent.printable import printable

Format = Literal["text", "json"]

OWN_LOGGER = "vramscope"
NOISY_LOGGERS = ("asyncio", "httpcore", "httpx", "uvicorn")
REPEAT_SECONDS = 60.0
MAX_PLACES = 256


def configure(
    form: Format = "text", stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic
) -> None:
    """Send every log record to ``stream`` (default: standard error) in this form, replacing what was set up before.

    ``clock`` is monotonic seconds. A record may carry ``extra={"fields": {...}}``: keys of their own in JSON,
    ``key=value`` after the message in text.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Json() if form == "json" else _Text())
    handler.addFilter(_Thinned(clock))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), record.levelname, record.getMessage()]
        parts += [f"{key}={value}" for key, value in _fields(record).items()]
        if record.exc_info:
            parts.append(self.formatException(record.exc_info))
        return _one_line(" ".join(parts))


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            **_fields(record),
            "time": _time(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str)


class _Thinned(logging.Filter):
    """Passes a place in code once in ``REPEAT_SECONDS``, then with the number of lines held back; ours always."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._passed: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == OWN_LOGGER:
            return True
        place = (record.name, record.lineno, str(record.msg).partition("\n")[0])
        now = self._clock()
        passed_at, held_back = self._passed.get(place, (None, 0))
        if passed_at is not None and now - passed_at < REPEAT_SECONDS:
            self._passed[place] = (passed_at, held_back + 1)
            return False
        if len(self._passed) >= MAX_PLACES:
            self._passed.clear()
        self._passed[place] = (now, 0)
        if held_back:
            record.msg, record.args = f"{record.getMessage()} (and {held_back} more like this before)", None
        return True


def _time(record: logging.LogRecord) -> str:
    """RFC 3339, UTC, to the millisecond."""
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return fields


def _one_line(text: str) -> str:
    """The text with its lines joined, and nothing in it that a terminal would act on."""
    joined = " | ".join(line.strip() for line in text.splitlines() if line.strip())
    return printable(joined)
