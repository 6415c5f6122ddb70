"""The one runner of every collector: it times a reading, sets a deadline and turns what it raises into a fault."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from msgspec import Struct

from collectors.errors import CollectorError
from collectors.readings import Fault

REPORT = "this is a bug of vramscope, please report it"
T = TypeVar("T")


class Outcome(Struct, Generic[T], frozen=True, kw_only=True):
    """One attempt. Without a fault ``value`` is what was read, and None there means that nothing is there to read.

    ``at`` is the clock at the end of the attempt.
    """

    value: T | None
    fault: Fault | None
    duration_seconds: float
    at: float


async def run(
    name: str,
    target: str,
    read: Callable[[], Awaitable[T]],
    *,
    deadline_seconds: float,
    clock: Callable[[], float],
) -> Outcome[T]:
    """Await one reading; never raises except ``asyncio.CancelledError``.

    A fault's reason is the collector's own, ``timeout`` when the deadline passed, or ``bug`` for any other exception:
    the message then names its type and place, never its text, which may hold a secret.
    """
    started = clock()
    value: T | None = None
    fault: Fault | None = None
    deadline = asyncio.timeout(deadline_seconds)
    try:
        async with deadline:
            value = await read()
    except CollectorError as exc:
        fault = exc.fault()
    except Exception as exc:
        fault = bug(name, target, exc)
        if isinstance(exc, TimeoutError) and deadline.expired():
            fault = Fault(
                reason="timeout", message=f"{_label(name, target)} did not finish within {deadline_seconds:g} s"
            )
    at = clock()
    return Outcome(value=value, fault=fault, duration_seconds=at - started, at=at)


def bug(name: str, target: str, exc: Exception) -> Fault:
    """The fault of a collector that failed in a way nobody foresaw."""
    return Fault(reason="bug", message=f"{_label(name, target)} failed with {place_of(exc)}; {REPORT}")


def place_of(exc: Exception) -> str:
    """An exception's type and place, without its text."""
    place = traceback.extract_tb(exc.__traceback__)[-1]
    return f"{type(exc).__name__} at {place.filename.rpartition('/')[2]}:{place.lineno}"


def _label(name: str, target: str) -> str:
    return f"collector {name} of {target}" if target else f"collector {name}"
